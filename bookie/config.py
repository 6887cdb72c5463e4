"""Names the limits of a bookie's storage, each with its unit.

Leaves reading configuration files to `quire.cli`.
"""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Limits of one bookie's storage; the defaults suit a disk of its own and 300 MB of memory."""

    segment_bytes_max: int = 256 * MIB
    segment_records_max: int = 1_000_000
    group_bytes_max: int = 16 * MIB
    queue_bytes_max: int = 64 * MIB
    """Accepted and not yet durable; beyond it sockets are not read."""
    checkpoint_log_bytes: int = 256 * MIB
    checkpoint_records: int = 100_000
    checkpoint_ledgers: int = 25_000
    """A checkpoint is due once so many ledgers changed; each takes about a kilobyte until then."""
    transaction_runs_max: int = 2_000
    index_map_bytes: int = 64 * MIB
    """The index's map at first; it doubles when it is nearly full."""
    hot_ledgers_max: int = 20_000
    """Ledger states without changes that are kept in memory; the others are in the index."""
    tombstones_max: int = 100_000
    """Deleted ledger ids that are remembered one by one (rule 10.3)."""
    run_bytes_max: int = 1 * MIB
    recent_bytes_max: int = 32 * MIB
    """Recent entries kept for tailing readers."""
    cached_bytes_max: int = 0
    """The end of each log file that is left in the system's page cache (decision 0007)."""
    read_bytes_max: int = 8 * MIB
    """One answer to a read, at most about this (at least one batch)."""
    disk_high_mark: float = 0.95
    """Share of the disk in use at which the bookie becomes read-only."""
    disk_low_mark: float = 0.92
    """Share of the disk in use below which it becomes writable again."""
    reserve_bytes_min: int = 256 * MIB
    """Room for fences, tombstones and index pages on a full disk; that for one rewrite is added."""
    reserve_share: float = 0.01
    disk_check_interval_s: float = 5.0
    clean_interval_s: float = 60.0
    clean_live_share_max: float = 0.5
    """Segments with less live bytes than this share are rewritten."""
    clean_mean_run_bytes_min: int = 64 * KIB
    """Segments whose mean run is smaller are rewritten, sorted by ledger."""
    clean_bytes_per_s_min: int = 16 * MIB
    """Cleaning writes at this rate when little is due."""
    clean_bytes_per_s_max: int = 128 * MIB
    """Cleaning writes at this rate when much is due, or the disk is nearly full."""

    @property
    def rewrite_bytes(self) -> int:
        """Room for the rewrite of one full segment."""
        return self.segment_bytes_max + self.segment_bytes_max // 8

    @property
    def floor_bytes(self) -> int:
        """Room that recovery adds leave free on a full disk: for fences, tombstones, index pages
        and one rewrite.
        """
        return self.reserve_bytes_min + self.rewrite_bytes

    def reserve_bytes(self, total_bytes: int) -> int:
        """Return the size of the reserve on a disk of `total_bytes`."""
        return max(self.floor_bytes, int(total_bytes * self.reserve_share))
