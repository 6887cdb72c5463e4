"""Limits of a bookie's storage, each with its unit.

Leaves reading configuration files to `quire.cli`.
"""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Limits of one bookie's storage. The defaults suit a dedicated disk and 300 MB of memory."""

    segment_bytes_max: int = 256 * MIB
    segment_records_max: int = 1_000_000
    group_bytes_max: int = 16 * MIB
    queue_bytes_max: int = 64 * MIB
    """Maximum number of accepted bytes that are not durable yet; above it, sockets are not read."""
    checkpoint_log_bytes: int = 256 * MIB
    checkpoint_records: int = 100_000
    checkpoint_ledgers: int = 25_000
    """A checkpoint is due when this many ledgers have changed. Each takes about a kilobyte until
    then.
    """
    transaction_runs_max: int = 2_000
    index_map_bytes: int = 64 * MIB
    """Initial size of the index's map. It doubles when it is full."""
    hot_ledgers_max: int = 20_000
    """Maximum number of unchanged ledger states in memory; the others are in the index."""
    tombstones_max: int = 100_000
    """Maximum number of deleted ledger ids stored individually (rule 10.3)."""
    run_bytes_max: int = 1 * MIB
    recent_bytes_max: int = 32 * MIB
    """Maximum size of the recent entries kept in memory for tailing readers."""
    cached_bytes_max: int = 0
    """Size of the end of each log file that stays in the system's page cache (decision 0007)."""
    disk_high_mark: float = 0.95
    """Share of the disk in use at which the bookie becomes read-only."""
    disk_low_mark: float = 0.92
    """Share of the disk in use below which it becomes writable again."""
    reserve_bytes_min: int = 256 * MIB
    """Space for fences, tombstones and index pages on a full disk. The space for one rewrite is
    added.
    """
    reserve_share: float = 0.01
    disk_check_interval_s: float = 5.0
    clean_interval_s: float = 60.0
    clean_live_share_max: float = 0.5
    """Segments with a smaller share of live bytes are rewritten."""
    clean_mean_run_bytes_min: int = 64 * KIB
    """Segments with a smaller mean run are rewritten, sorted by ledger."""
    clean_bytes_per_s_min: int = 16 * MIB
    """Rate of cleaning when little is due."""
    clean_bytes_per_s_max: int = 128 * MIB
    """Rate of cleaning when much is due or the disk is nearly full."""

    @property
    def rewrite_bytes(self) -> int:
        """Space for the rewrite of one full segment."""
        return self.segment_bytes_max + self.segment_bytes_max // 8

    @property
    def floor_bytes(self) -> int:
        """Space that recovery adds leave free on a full disk, for fences, tombstones, index pages
        and one rewrite.
        """
        return self.reserve_bytes_min + self.rewrite_bytes

    def reserve_bytes(self, total_bytes: int) -> int:
        """Return the size of the reserve on a disk of `total_bytes`."""
        return max(self.floor_bytes, int(total_bytes * self.reserve_share))
