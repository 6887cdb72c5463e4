"""Decision about an ensemble with failed members, by the ledger's mode and the user's options.

Leaves the list of failed members to `ensemble.EnsembleHealth`, the choice of spares to the
placement, and the change itself to `append`.

There are three ways to keep a replica set. *Replacing* (quorum mode): spares replace failed
members. *In sync* (Kafka's rule): failed members leave, and come back once they have caught up.
*Fixed*: no member ever leaves, as in a replica set of a Raft group; it exists for comparison.

Invariants of in-sync mode: a change keeps at least `min_in_sync` members that hold every entry and
have not failed, so it never removes the last member that is in sync.

Source: protocol rules 5.1-5.5, 11.1-11.4; KIP-16 for lag by time instead of messages.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from ledger_client.protocol.append_options import AppendOptions
from ledger_client.protocol.ensemble import EnsembleHealth
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX, LedgerMetadata, QuorumSpec

JOIN_FRAGMENTS_MAX: Final = FRAGMENTS_MAX // 2
"""Maximum number of fragments of a ledger that a member may join; the remaining fragments are for
members that leave.
"""


@dataclass(frozen=True, slots=True)
class Replace:
    """Fill these positions with spares."""

    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shrink:
    """Continue with these members only."""

    ensemble: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class ParkFailed:
    """Keep the ensemble, and wait for the failed members."""


Decision = Replace | Shrink | ParkFailed | None
"""None means that everything stays as it is."""


class Membership(Protocol):
    """Rule for keeping a replica set."""

    def decide(
        self,
        ensemble: tuple[BookieId, ...],
        in_sync: tuple[BookieId, ...],
        health: EnsembleHealth,
    ) -> Decision:
        """Return the decision about the failed members; at least one has failed. `in_sync` are
        those that hold every entry, are alive and do not lag.
        """

    def may_suspect(
        self, bookie_id: BookieId, in_sync: tuple[BookieId, ...], *, has_spare: bool
    ) -> bool:
        """Return whether the ledger can do without a silent member (rule 5.7)."""


class ReplacingMembership:
    """Quorum mode: the number of replicas stays, the bookies change."""

    def __init__(self, *, is_delayed: bool) -> None:
        self._is_delayed = is_delayed

    def decide(
        self,
        ensemble: tuple[BookieId, ...],
        in_sync: tuple[BookieId, ...],
        health: EnsembleHealth,
    ) -> Decision:
        """Replace, unless the change is delayed and entries still reach AQ (rule 5.4)."""
        if self._is_delayed and not health.must_replace(ensemble):
            return None
        return Replace(tuple(p for p, b in enumerate(ensemble) if b in health.failed))

    def may_suspect(
        self, bookie_id: BookieId, in_sync: tuple[BookieId, ...], *, has_spare: bool
    ) -> bool:
        """Suspect only if a spare could take the place."""
        return has_spare


class ShrinkingMembership:
    """In-sync mode: the number of replicas follows the members that are alive and do not lag."""

    def __init__(self, min_in_sync: int) -> None:
        self._min_in_sync = min_in_sync

    def decide(
        self,
        ensemble: tuple[BookieId, ...],
        in_sync: tuple[BookieId, ...],
        health: EnsembleHealth,
    ) -> Decision:
        """Remove the failed members, unless too few in-sync members would stay (rule 11.4)."""
        if len(in_sync) < self._min_in_sync:
            return ParkFailed()
        return Shrink(tuple(b for b in ensemble if not health.is_out(b)))

    def may_suspect(
        self, bookie_id: BookieId, in_sync: tuple[BookieId, ...], *, has_spare: bool
    ) -> bool:
        """Suspect if the member can leave because enough others are in sync."""
        return len([b for b in in_sync if b != bookie_id]) >= self._min_in_sync


class FixedMembership:
    """Members neither leave nor join; entries wait for their ack quorum among them."""

    def decide(
        self,
        ensemble: tuple[BookieId, ...],
        in_sync: tuple[BookieId, ...],
        health: EnsembleHealth,
    ) -> Decision:
        """Wait."""
        return ParkFailed()

    def may_suspect(
        self, bookie_id: BookieId, in_sync: tuple[BookieId, ...], *, has_spare: bool
    ) -> bool:
        """Suspect no member: it would have no effect."""
        return False


def members_with(
    bookie_id: BookieId,
    metadata: LedgerMetadata,
    parked: Collection[BookieId],
    in_sync: tuple[BookieId, ...],
) -> tuple[BookieId, ...] | None:
    """Return the members of an in-sync ledger after a bookie has joined (rule 11.3): in addition to
    the others where there is room; otherwise in the place of a member that failed and cannot leave,
    or, while too few are in sync, of a member that catches up and lacks more. None if there is no
    place for it.
    """
    quorum, ensemble = metadata.quorum, metadata.last_fragment.ensemble
    if bookie_id in ensemble or len(metadata.fragments) >= JOIN_FRAGMENTS_MAX:
        return None
    if len(ensemble) < quorum.ensemble_size:
        return (*ensemble, bookie_id)
    if not in_sync:
        return None

    def lacking(member: BookieId) -> int:
        return len(list(metadata.fragments_without(member)))

    giving_way = [b for b in ensemble if b in parked]
    if not giving_way and len(in_sync) < quorum.min_in_sync:
        lacked = lacking(bookie_id)
        giving_way = [b for b in ensemble if b not in in_sync and lacking(b) > lacked]
    if not giving_way:
        return None
    leaving = max(giving_way, key=lacking)
    return tuple(bookie_id if b == leaving else b for b in ensemble)


def membership_of(quorum: QuorumSpec, options: AppendOptions) -> Membership:
    """Return the rule for a ledger's mode and its writer's options."""
    if options.fixed_membership:
        return FixedMembership()
    if quorum.is_in_sync:
        return ShrinkingMembership(quorum.min_in_sync)
    return ReplacingMembership(is_delayed=options.delay_ensemble_change)
