"""Replication modes of a ledger, as users name them.

Leaves their meaning to the protocols, and their stored form to `metadata.ledgers.ledger_metadata`.

Source: api design, "Client"; protocol sections 3 and 11.
"""

from dataclasses import dataclass
from typing import Final

from metadata.ledgers.ledger_metadata import (
    STRIPE_ENTRIES_DEFAULT,
    STRIPE_ENTRIES_MAX,
    QuorumMode,
    QuorumSpec,
)

REPLICA_LAG_TIME_MAX_S: Final = 10.0
REPLICA_LAG_TIME_LIMIT_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Quorum:
    """Replication of a ledger: each entry goes to `write` of the `ensemble` bookies and is
    acknowledged by `ack` of them.

    Needs ints, and ensemble >= write >= ack >= 1; anything else raises ValueError.
    """

    ensemble: int
    write: int
    ack: int
    stripe_entries: int = STRIPE_ENTRIES_DEFAULT
    """Number of consecutive entries with one write set; has no effect if ensemble = write."""
    mode: QuorumMode = QuorumMode.QUORUM
    min_in_sync: int = 1
    replica_lag_time_max: float = REPLICA_LAG_TIME_MAX_S
    """Lag after which a member leaves, in seconds; only used with `in_sync`."""

    def __post_init__(self) -> None:
        counts = ("ensemble", "write", "ack", "stripe_entries", "min_in_sync")
        wrong = [count for count in counts if type(getattr(self, count)) is not int]
        if isinstance(self.replica_lag_time_max, bool):
            wrong.append("replica_lag_time_max")
        if wrong:
            name = wrong[0]
            raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}: use a number")
        if self.stripe_entries > STRIPE_ENTRIES_MAX:
            raise ValueError(
                f"stripe_entries must be at most {STRIPE_ENTRIES_MAX}, got {self.stripe_entries}"
            )
        if not 1 <= self.min_in_sync <= max(1, self.ensemble):
            raise ValueError(f"min_in_sync must be 1 to {self.ensemble}, got {self.min_in_sync}")
        if not 0 < self.replica_lag_time_max < REPLICA_LAG_TIME_LIMIT_S:
            raise ValueError(
                f"replica_lag_time_max must be above 0 and below {REPLICA_LAG_TIME_LIMIT_S:g} s, "
                f"got {self.replica_lag_time_max}"
            )
        _ = self.spec  # raises for sizes that form no quorum

    @classmethod
    def all(cls, count: int) -> "Quorum":
        """Return a quorum of `count` replicas, all of which acknowledge."""
        return cls(count, count, count)

    @classmethod
    def majority(cls, count: int) -> "Quorum":
        """Return a quorum of `count` replicas, more than half of which acknowledge."""
        return cls(count, count, count // 2 + 1)

    @classmethod
    def in_sync(
        cls,
        replicas: int,
        min_in_sync: int,
        *,
        replica_lag_time_max: float = REPLICA_LAG_TIME_MAX_S,
    ) -> "Quorum":
        """Return Kafka's rule: all replicas in sync acknowledge, at least `min_in_sync` of them."""
        return cls(
            replicas,
            replicas,
            replicas,
            mode=QuorumMode.IN_SYNC,
            min_in_sync=min_in_sync,
            replica_lag_time_max=replica_lag_time_max,
        )

    @property
    def spec(self) -> QuorumSpec:
        """The stored form."""
        return QuorumSpec(
            self.ensemble,
            self.write,
            self.ack,
            self.stripe_entries,
            self.mode,
            self.min_in_sync,
            round(self.replica_lag_time_max * 1000),
        )
