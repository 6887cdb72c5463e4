"""Names the ways to replicate a ledger, as users say them.

Leaves their meaning to the protocols, and their stored form to `metadata.ledger_metadata`.

Source: api, "Client"; protocol sections 3 and 11.
"""

from dataclasses import dataclass

from metadata.ledger_metadata import STRIPE_ENTRIES_DEFAULT, QuorumMode, QuorumSpec

REPLICA_LAG_TIME_MAX_S = 10.0


@dataclass(frozen=True, slots=True)
class Quorum:
    """Each entry goes to `write` of the `ensemble` bookies, and is acknowledged by `ack` of them.

    Needs ensemble >= write >= ack >= 1; anything else raises ValueError.
    """

    ensemble: int
    write: int
    ack: int
    stripe_entries: int = STRIPE_ENTRIES_DEFAULT
    """Consecutive entries with one write set; of no consequence where ensemble = write."""
    mode: QuorumMode = QuorumMode.QUORUM
    min_in_sync: int = 1
    replica_lag_time_max: float = REPLICA_LAG_TIME_MAX_S
    """Seconds; only of meaning with `in_sync`."""

    def __post_init__(self) -> None:
        spec = self.spec
        if not 1 <= self.min_in_sync <= spec.ensemble_size:
            raise ValueError(
                f"min_in_sync must be 1 to {spec.ensemble_size}, got {self.min_in_sync}"
            )
        if self.replica_lag_time_max <= 0:
            raise ValueError("replica_lag_time_max must be positive")

    @classmethod
    def all(cls, count: int) -> "Quorum":
        """Return: `count` replicas, all of which acknowledge."""
        return cls(count, count, count)

    @classmethod
    def majority(cls, count: int) -> "Quorum":
        """Return: `count` replicas, more than half of which acknowledge."""
        return cls(count, count, count // 2 + 1)

    @classmethod
    def in_sync(
        cls,
        replicas: int,
        min_in_sync: int,
        *,
        replica_lag_time_max: float = REPLICA_LAG_TIME_MAX_S,
    ) -> "Quorum":
        """Return: Kafka's rule; all replicas in sync acknowledge, at least `min_in_sync` of
        them.
        """
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
        """The same as it is stored."""
        return QuorumSpec(
            self.ensemble,
            self.write,
            self.ack,
            self.stripe_entries,
            self.mode,
            self.min_in_sync,
            round(self.replica_lag_time_max * 1000),
        )
