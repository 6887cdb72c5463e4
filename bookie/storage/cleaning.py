"""Plans which segments to drop or rewrite, how fast, and within which room; pure.

Leaves reading, writing and the index to `bookie.storage.cleaner`, and when to clean to
`bookie.storage.upkeep`.

Invariants: only segments wholly below the mark are touched; a damaged one is never dropped; what is
planned to be rewritten fits into the room.
Source: storage design, "Cleaning"; docs/operating.md, "A full disk".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bookie.config import StorageConfig
from bookie.log.records import FOOTER_RUN_BYTES
from bookie.log.segments import Segment

GAIN_SHARE_MIN: Final = 1 / 64
"""On a full disk a segment is rewritten when that frees at least this share of its size."""
FULL_RATE_BACKLOG_SEGMENTS: Final = 8
"""Cleaning runs at its maximum rate once the backlog reaches the size of this many segments."""
FULL_RATE_DISK_SHARE: Final = 0.1
"""Cleaning speeds up while the share of the disk in use is within this much of the high mark."""
SEGMENT_OVERHEAD_BYTES: Final = 256
"""Head and footer of a rewritten segment, without the footer's entries."""


@dataclass(frozen=True, slots=True)
class CleaningRoom:
    """What one pass of cleaning may use."""

    free_bytes: int
    """A rewrite may add this many bytes to the disk."""
    is_full: bool
    """The bookie is read-only because its disk is full: any garbage is worth a rewrite."""
    bytes_per_s: float
    """The pace of the rewrite."""
    index_bytes: int | None = None
    """Free bytes for the index where it has a file system of its own."""


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """Segment numbers in the order in which they are cleaned."""

    dead: tuple[int, ...]
    rewrite: tuple[int, ...]
    backlog_bytes: int
    """Garbage in all segments that are due, whether or not this pass frees it."""


def plan_cleaning(
    segments: Iterable[Segment], mark_segment: int, config: StorageConfig, room: CleaningRoom
) -> CleaningPlan:
    """Choose what one pass does: every dead segment, and as many rewrites as make one segment and
    fit into the room. The emptiest segments come first; on a full disk, those with the fewest live
    bytes.
    """
    dead: list[int] = []
    due: list[tuple[float, int, Segment]] = []
    backlog_bytes = 0
    for segment in segments:
        if segment.number >= mark_segment or segment.is_damaged or segment.is_kept:
            continue
        if segment.live_bytes <= 0:
            dead.append(segment.number)
            backlog_bytes += segment.size
        elif _is_due(segment, config, is_full=room.is_full):
            live_share = segment.live_bytes / max(1, segment.size)
            order = float(segment.live_bytes) if room.is_full else live_share
            due.append((order, segment.number, segment))
            backlog_bytes += max(0, garbage_bytes(segment))
    rewrite: list[int] = []
    live_bytes = needed_bytes = 0
    for _, number, segment in sorted(due):
        live_bytes += segment.live_bytes
        needed_bytes += rewrite_bytes(segment)
        if rewrite and live_bytes > config.segment_bytes_max:
            break
        if needed_bytes > room.free_bytes:
            break
        rewrite.append(number)
    return CleaningPlan(tuple(dead), tuple(rewrite), backlog_bytes)


def _is_due(segment: Segment, config: StorageConfig, *, is_full: bool) -> bool:
    if segment.live_bytes / max(1, segment.size) <= config.clean_live_share_max:
        return True
    if is_full:
        return garbage_bytes(segment) >= max(1, segment.size * GAIN_SHARE_MIN)
    return (
        not segment.is_cleaned
        and segment.mean_run_bytes is not None
        and segment.mean_run_bytes < config.clean_mean_run_bytes_min
    )


def garbage_bytes(segment: Segment) -> int:
    """Return the bytes that rewriting a segment frees, about."""
    return segment.size - segment.live_bytes - _footer_bytes(segment) - SEGMENT_OVERHEAD_BYTES


def rewrite_bytes(segment: Segment) -> int:
    """Return the bytes that a rewrite of a segment's live bytes adds to the disk, about."""
    return segment.live_bytes + _footer_bytes(segment) + SEGMENT_OVERHEAD_BYTES


def _footer_bytes(segment: Segment) -> int:
    """Return the bytes of the footer's entries for what is live."""
    share = segment.live_bytes / max(1, segment.size)
    return int((segment.record_count or 0) * FOOTER_RUN_BYTES * min(1.0, share))


def pace_of(
    backlog_bytes: int, used_share: float, config: StorageConfig, *, is_full: bool
) -> float:
    """Return the bytes per second that cleaning may write: more for a larger backlog and for a
    fuller disk.
    """
    slowest, fastest = config.clean_bytes_per_s_min, config.clean_bytes_per_s_max
    by_backlog = backlog_bytes / (FULL_RATE_BACKLOG_SEGMENTS * config.segment_bytes_max)
    distance = config.disk_high_mark - used_share
    by_disk = 1.0 if is_full else 1.0 - distance / FULL_RATE_DISK_SHARE
    return slowest + (fastest - slowest) * min(1.0, max(by_backlog, by_disk, 0.0))
