"""Values that a bookie's storage returns.

Leaves their encoding to `bookie.wire`, and their creation to `bookie.storage.bookie_storage`.
"""

from dataclasses import dataclass

from bookie.wire.batch import Buffer
from bookie.wire.messages import Status
from metadata.ids import EntryId


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """Progress of a ledger, as this bookie knows it."""

    status: Status
    lac: EntryId
    highest_entry_id: EntryId
    fenced: bool


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Answer to a read. `status` is the status of `next_entry_id`; OK when all entries were found
    or only the size limit ended the read.
    """

    status: Status
    lac: EntryId
    next_entry_id: EntryId
    batches: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class EntryRangesResult:
    """Stored ranges (first, last), ascending and merged. `complete` is False when more may follow
    the last one.
    """

    status: Status
    ranges: tuple[tuple[int, int], ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check of one stored run. `next_entry_id` is None when no entry follows."""

    next_entry_id: EntryId | None
    read_bytes: int


@dataclass(frozen=True, slots=True)
class AccessResult:
    """Master key under which a ledger is stored, None if it is stored without one or unknown."""

    status: Status
    master_key: bytes | None


@dataclass(frozen=True, slots=True)
class StorageStatistics:
    """Snapshot of counters and gauges. Counters start at 0 when the storage is opened."""

    entries_added: int
    bytes_added: int
    batches_added: int
    entries_read: int
    bytes_read: int
    syncs: int
    log_bytes_written: int
    queue_bytes: int
    ledgers: int
    segments: int
    segment_bytes: int
    live_bytes: int
    runs_in_memory: int
    records_since_checkpoint: int
    checkpoints: int
    checkpoint_mark: int
    log_end: int
    recent_bytes: int
    damaged_segments: int
    damaged_segment_bytes: int
    """Sizes of the segments with damage: they are not rewritten, so their garbage stays."""
    damaged_ranges: int
    damaged_entries: int
    checked_entries: int
    checked_bytes: int
    cleaned_segments: int
    cleaned_bytes: int
    cleaning_written_bytes: int
    """Bytes that cleaning wrote into new segments."""
    cleaning_backlog_bytes: int
    """Bytes of garbage in the segments that are due to be rewritten or dropped."""
    disk_total_bytes: int
    disk_free_bytes: int
    index_bytes: int
    index_map_bytes: int
    is_writable: bool
    is_limbo: bool
