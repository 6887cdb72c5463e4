"""Lists the client's limits and delays, with their defaults.

Leaves their use to the modules that name them. Every value is bounded and carries its unit in its
name.
"""

from dataclasses import dataclass

from bookie.wire.batch import BATCH_ENTRIES_MAX
from ledger_client.protocol.acks import BATCH_COST_BYTES


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How one client behaves. Immutable; pass another one to another client."""

    # Appending
    entry_bytes_max: int = 8 * 1024 * 1024
    batch_bytes_max: int = 1024 * 1024
    batch_entries_max: int = BATCH_ENTRIES_MAX
    window_bytes_max: int = 64 * 1024 * 1024
    """Bytes of one writer's entries that are not confirmed; at the bound `append` waits."""
    window_entries_max: int = 200_000
    unanswered_bytes_max: int = 256 * 1024 * 1024
    """Bytes that one bookie has not answered, confirmed or not, before it is treated as failed
    (rule 4.6). All that one writer's window admits must fit: else what it sends again after an
    ensemble change would fail the bookies that are to take it. All writers of a client share it."""
    append_deadline_s: float = 30.0
    add_timeout_s: float = 5.0
    """How long one bookie may take to store one batch."""
    lac_delay_s: float = 0.05
    """How long a writer is idle before it sends its LAC (rule 8.4)."""

    # Ensembles
    delay_ensemble_change: bool = False
    run_degraded: bool = False
    """Without a spare, go on while entries still reach their ack quorum (rule 5.5)."""
    fixed_membership: bool = False
    """Never change an ensemble: entries wait for its members, as in a replica set of fixed
    membership. It exists for comparison (`quire bench compare`), not for use."""
    spare_after_s: float = 60.0
    """In-sync mode: how long a member that left is waited for before a spare takes its place, to
    which all of the ledger is copied. At most 10 s while appends are refused for want of it."""
    replica_lag_messages_max: int | None = None
    """In-sync mode: a member also leaves once it lacks so many of the entries that were pushed.
    Kafka abandoned this rule (KIP-16): a burst makes good members leave. For comparison."""
    copy_bytes_per_s: float | None = 32.0 * 1024 * 1024
    """In-sync mode: what one writer copies at most to members that catch up; None for no bound."""
    suspect_after_min_s: float = 0.2
    suspect_after_max_s: float = 2.0
    suspect_after_multiple: float = 8.0
    suspicions_per_minute_max: int = 6
    quarantine_s: float = 60.0

    # Reading
    read_timeout_s: float = 5.0
    read_bytes_max: int = 4 * 1024 * 1024
    read_ahead_count: int = 3
    speculative_delay_min_s: float = 0.02
    speculative_delay_max_s: float = 1.0
    long_poll_s: float = 10.0

    # Calls, connections, metadata
    call_timeout_s: float = 30.0
    close_timeout_s: float = 10.0
    connect_timeout_s: float = 2.0
    reconnect_delay_max_s: float = 1.0
    metadata_timeout_s: float = 10.0
    session_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        wanted = self.window_bytes_max + BATCH_COST_BYTES * self.window_entries_max
        if self.unanswered_bytes_max < wanted:
            raise ValueError(
                f"unanswered_bytes_max ({self.unanswered_bytes_max}) must be at least {wanted}: "
                f"window_bytes_max, and {BATCH_COST_BYTES} for each of window_entries_max, which "
                "may all be batches of their own. Raise it, or lower the window"
            )
        if self.copy_bytes_per_s is not None and self.copy_bytes_per_s <= 0:
            raise ValueError("copy_bytes_per_s must be positive, or None for no bound")
        if self.replica_lag_messages_max is not None and self.replica_lag_messages_max < 1:
            raise ValueError("replica_lag_messages_max must be at least 1, or None for no bound")
