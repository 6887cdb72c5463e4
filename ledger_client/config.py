"""Limits and delays of the client, with their defaults.

Leaves their use to the modules that name them. Every value is limited and has its unit in its name.
"""

from dataclasses import dataclass

from bookie.wire.batch import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from ledger_client.protocol.acks import BATCH_COST_BYTES
from ledger_client.protocol.append_options import UNANSWERED_BYTES_MAX
from metadata.ledgers.ledger_ids import BLOCK_IDS
from metadata.store.interface import OPERATION_TIMEOUT_S, SESSION_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Configuration of one client. Immutable."""

    # Appending
    entry_bytes_max: int = ENTRY_BYTES_MAX
    batch_bytes_max: int = 1024 * 1024
    batch_entries_max: int = BATCH_ENTRIES_MAX
    window_bytes_max: int = 64 * 1024 * 1024
    """Maximum number of unconfirmed bytes of one writer; at the limit `append` waits. No batch is
    larger, except one entry.
    """
    window_entries_max: int = 200_000
    unanswered_bytes_max: int = UNANSWERED_BYTES_MAX
    """Maximum number of bytes, confirmed or not, that one bookie has not answered; above it the
    bookie is treated as failed (rule 4.6). Everything that one writer's window admits must fit:
    otherwise the resend after an ensemble change would fail the new bookies. All writers of a
    client share it.
    """
    append_deadline_s: float = 30.0
    add_timeout_s: float = 5.0
    """Maximum time for one bookie to store one batch; in a recovery or a copy, since its last
    answer to such a batch.
    """
    lac_delay_s: float = 0.05
    """Time for which a writer is idle before it sends its LAC (rule 8.4)."""

    # Ensembles
    delay_ensemble_change: bool = False
    run_degraded: bool = False
    """Without a spare, continue while entries still reach their ack quorum (rule 5.5)."""
    fixed_membership: bool = False
    """Never change an ensemble: entries wait for its members, as in a replica set of fixed
    membership. Only for comparison (`quire bench compare`), not for use.
    """
    spare_after_s: float = 60.0
    """In-sync mode: time to wait for a member that left before a spare takes its place and the
    complete ledger is copied to the spare. At most 10 s while appends are refused because too few
    members are in sync.
    """
    replica_lag_messages_max: int | None = None
    """In-sync mode: a member also leaves once it lacks this many pushed entries. Kafka abandoned
    this rule (KIP-16) because a burst makes good members leave. Only for comparison.
    """
    copy_bytes_per_s: float | None = 32.0 * 1024 * 1024
    """In-sync mode: maximum rate at which one client copies to members that catch up, for all its
    ledgers together; None for no limit.
    """
    copies_at_once: int = 16
    """In-sync mode: maximum number of ledgers of one client that copy a fragment at the same time,
    with up to 10 MiB of memory each. The ledgers take turns, after each fragment.
    """
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
    slice_max_s: float = 0.005
    """Maximum time that one iteration of the event loop spends on calls that concern many ledgers,
    such as the news that a bookie departed. One call more than that may be made.
    """
    metadata_changes_at_once: int = 64
    """Maximum number of ledgers of one client that change their metadata at the same time: members
    that leave, join or are replaced, checks of fences, and closes.
    """
    metadata_reads_per_s: int = 200
    """In-sync mode: maximum number of ledgers of one client whose metadata is read per second after
    a change (rule 11.7).
    """
    metadata_reads_at_once: int = 32
    ledger_ids_at_once: int = BLOCK_IDS
    """Number of ledger ids that a client allocates at a time. Those that it does not use are lost,
    so a client that creates few ledgers takes few.
    """
    call_timeout_s: float = 30.0
    close_timeout_s: float = 10.0
    connect_timeout_s: float = 2.0
    reconnect_delay_max_s: float = 1.0
    metadata_timeout_s: float = OPERATION_TIMEOUT_S
    session_timeout_s: float = SESSION_TIMEOUT_S

    def __post_init__(self) -> None:
        wanted = self.window_bytes_max + BATCH_COST_BYTES * self.window_entries_max
        if self.unanswered_bytes_max < wanted:
            raise ValueError(
                f"unanswered_bytes_max ({self.unanswered_bytes_max}) must be at least {wanted}: "
                f"window_bytes_max plus {BATCH_COST_BYTES} for each of window_entries_max, because "
                "each entry may be a separate batch. Raise it, or lower the window"
            )
        wanted = self.entry_bytes_max + BATCH_COST_BYTES
        if self.unanswered_bytes_max < wanted:
            raise ValueError(
                f"unanswered_bytes_max ({self.unanswered_bytes_max}) must be at least {wanted}: "
                f"entry_bytes_max plus {BATCH_COST_BYTES}, because one entry is admitted whatever "
                "the window. Raise it, or lower entry_bytes_max"
            )
        if self.copy_bytes_per_s is not None and self.copy_bytes_per_s <= 0:
            raise ValueError("copy_bytes_per_s must be positive, or None for no limit")
        if self.slice_max_s <= 0 or self.metadata_changes_at_once < 1:
            raise ValueError("slice_max_s must be positive, metadata_changes_at_once at least 1")
        if self.metadata_reads_per_s < 1 or self.metadata_reads_at_once < 1:
            raise ValueError("metadata_reads_per_s and metadata_reads_at_once must be at least 1")
        if not 1 <= self.ledger_ids_at_once <= BLOCK_IDS:
            raise ValueError(f"ledger_ids_at_once must be from 1 to {BLOCK_IDS}")
        if self.copies_at_once < 1:
            raise ValueError("copies_at_once must be at least 1")
        if self.replica_lag_messages_max is not None and self.replica_lag_messages_max < 1:
            raise ValueError("replica_lag_messages_max must be at least 1, or None for no limit")
