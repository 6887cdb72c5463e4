"""Catalogue of the compared ways to replicate: each is one value.

Invariant: a setting that a configuration does not name has the client's default.

Source: docs/which-quorum.md, "How it is measured"; protocol sections 5 and 11.
"""

from dataclasses import dataclass, field
from typing import Final

from ledger_client import ClientConfig, Quorum

IN_SYNC_LAG_S: Final = 1.0
"""Maximum lag of a member in time. Kafka's default, 30 s, is longer than a run."""
IN_SYNC_LAG_MESSAGES: Final = 4_000
"""Maximum lag of a member in messages: the last default of Kafka's former
`replica.lag.max.messages`."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to replicate: the quorum, and the settings of its clients."""

    name: str
    title: str
    """Name in words, for pages and sentences."""
    says: str
    rule: str
    """Whose rule it is."""
    quorum: Quorum
    config: ClientConfig = field(default_factory=ClientConfig)
    is_for_use: bool = True
    """Whether it may be recommended; the others are for comparison only."""


FIXED: Final = ClientConfig(fixed_membership=True)
CONFIGURATIONS: Final = (
    Configuration(
        name="all-of-3",
        title="all of 3",
        says="3 replicas, all acknowledge; failed ones are replaced",
        rule="BookKeeper, AQ = WQ",
        quorum=Quorum.all(3),
    ),
    Configuration(
        name="majority-3",
        title="majority of 3",
        says="3 replicas, 2 acknowledge; failed ones are replaced",
        rule="BookKeeper, AQ < WQ",
        quorum=Quorum.majority(3),
    ),
    Configuration(
        name="fixed-majority-5",
        title="fixed majority of 5",
        says="5 replicas, 3 acknowledge; never replaced, as in a Raft group",
        rule="a Raft group",
        quorum=Quorum.majority(5),
        config=FIXED,
        is_for_use=False,
    ),
    Configuration(
        name="4-of-4-ack-3",
        title="3 of 4",
        says="4 replicas, 3 acknowledge; failed ones are replaced",
        rule="BookKeeper, AQ < WQ",
        quorum=Quorum(4, 4, 3),
    ),
    Configuration(
        name="all-of-2",
        title="all of 2",
        says="2 replicas, both acknowledge; failed ones are replaced",
        rule="BookKeeper, AQ = WQ",
        quorum=Quorum.all(2),
    ),
    Configuration(
        name="fixed-2",
        title="fixed 2",
        says="2 replicas, both acknowledge; never replaced",
        rule="primary and backup",
        quorum=Quorum.all(2),
        config=FIXED,
        is_for_use=False,
    ),
    Configuration(
        name="in-sync-3",
        title="in-sync set of 3, min 2",
        says=f"3 replicas, all in sync acknowledge, at least 2; lag at most {IN_SYNC_LAG_S:g} s",
        rule="Kafka, acks=all",
        quorum=Quorum.in_sync(3, 2, replica_lag_time_max=IN_SYNC_LAG_S),
    ),
    Configuration(
        name="in-sync-3-min-1",
        title="in-sync set of 3, min 1",
        says="the same, but one in sync is enough: an acknowledged entry may have one copy",
        rule="Kafka, acks=all",
        quorum=Quorum.in_sync(3, 1, replica_lag_time_max=IN_SYNC_LAG_S),
    ),
    Configuration(
        name="in-sync-3-messages",
        title="in-sync set, by messages",
        says=f"as in-sync-3, and lag at most {IN_SYNC_LAG_MESSAGES:,} entries, as in old Kafka",
        rule="Kafka before 0.9",
        quorum=Quorum.in_sync(3, 2, replica_lag_time_max=IN_SYNC_LAG_S),
        config=ClientConfig(replica_lag_messages_max=IN_SYNC_LAG_MESSAGES),
        is_for_use=False,
    ),
)
BY_NAME: Final = {configuration.name: configuration for configuration in CONFIGURATIONS}
