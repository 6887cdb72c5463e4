"""Catalogue of the compared replication configurations.

Leaves the decisions of each to the product's `ledger_client.protocol.membership`.

Invariants: E = WQ in each, so that every member of a fragment holds all its entries; the names are
those of `quire bench compare`.
"""

from dataclasses import dataclass
from typing import Final

from ledger_client import Quorum
from ledger_client.protocol.append_options import AppendOptions
from ledger_client.protocol.membership import Membership, membership_of
from metadata.ledgers.ledger_metadata import QuorumSpec


@dataclass(frozen=True, slots=True)
class Configuration:
    """A way to replicate ledgers."""

    name: str
    says: str
    quorum: QuorumSpec
    is_fixed: bool = False

    def __post_init__(self) -> None:
        assert self.quorum.ensemble_size == self.quorum.write_quorum, "the model knows no stripes"

    @property
    def membership(self) -> Membership:
        """Return the product's decisions about failed members."""
        return membership_of(self.quorum, AppendOptions(fixed_membership=self.is_fixed))

    @property
    def replica_count(self) -> int:
        """Intended number of copies of each entry."""
        return self.quorum.write_quorum


CONFIGURATIONS: Final = (
    Configuration(
        "all-of-3", "3 replicas, all acknowledge; failed ones are replaced", Quorum.all(3).spec
    ),
    Configuration(
        "majority-3", "3 replicas, 2 acknowledge; failed ones are replaced", Quorum.majority(3).spec
    ),
    Configuration(
        "fixed-majority-5",
        "5 replicas, 3 acknowledge; never replaced, as in a Raft group",
        Quorum.majority(5).spec,
        is_fixed=True,
    ),
    Configuration(
        "4-of-4-ack-3",
        "4 replicas, 3 acknowledge; failed ones are replaced",
        Quorum(4, 4, 3).spec,
    ),
    Configuration(
        "all-of-2", "2 replicas, both acknowledge; failed ones are replaced", Quorum.all(2).spec
    ),
    Configuration(
        "fixed-2", "2 replicas, both acknowledge; never replaced", Quorum.all(2).spec, is_fixed=True
    ),
    Configuration(
        "in-sync-3", "3 replicas, all in sync acknowledge, at least 2", Quorum.in_sync(3, 2).spec
    ),
    Configuration(
        "in-sync-3-min-1", "the same, but one in sync is enough", Quorum.in_sync(3, 1).spec
    ),
)
BY_NAME: Final = {configuration.name: configuration for configuration in CONFIGURATIONS}
