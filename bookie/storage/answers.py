"""Holds the values that a bookie's storage answers with.

Leaves their encoding to `bookie.wire` and their making to `bookie.storage.bookie_storage`.
"""

from dataclasses import dataclass

from bookie.wire.batch import Buffer
from bookie.wire.messages import Status
from metadata.ids import EntryId


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """What a bookie knows of a ledger's progress."""

    status: Status
    lac: EntryId
    highest_entry_id: EntryId
    fenced: bool


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The answer to a read: `status` is that of `next_entry_id`, OK when all was found or only the
    size limit ended it.
    """

    status: Status
    lac: EntryId
    next_entry_id: EntryId
    batches: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class EntryRangesResult:
    """Held ranges (first, last), ascending, merged; `complete` is False when more follow the last
    one.
    """

    status: Status
    ranges: tuple[tuple[int, int], ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class StorageStatistics:
    """A snapshot of counters and gauges; counters run from the opening of the storage."""

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
    damaged_ranges: int
    cleaned_segments: int
    cleaned_bytes: int
    cleaning_written_bytes: int
    """Bytes that cleaning wrote into new segments."""
    cleaning_backlog_bytes: int
    """Garbage in the segments that are due to be rewritten or dropped."""
    disk_total_bytes: int
    disk_free_bytes: int
    index_bytes: int
    index_map_bytes: int
    is_writable: bool
    is_limbo: bool
