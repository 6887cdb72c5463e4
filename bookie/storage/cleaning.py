"""Plan of a pass of cleaning: which segments to drop or rewrite, how fast, in which space, with
which reads. Pure.

Leaves reading, writing and the index to `bookie.storage.cleaner`, and the time of cleaning to
`bookie.storage.upkeep`.

Invariants: only segments completely below the mark are cleaned; a damaged segment is not rewritten,
and dropped only when the index names nothing in it; the planned rewrites fit into the available
space; the memory that a group of runs needs is limited, and each run is in exactly one piece of one
segment.
Source: storage design, "Cleaning"; docs/operating.md, "A full disk".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple

from bookie.config import StorageConfig
from bookie.index.index_runs import Run
from bookie.log import records
from bookie.log.records import FOOTER_RUN_BYTES
from bookie.log.segments import Segment

GAIN_SHARE_MIN: Final = 1 / 64
"""On a full disk, a segment is rewritten if that frees at least this share of its size."""
FULL_RATE_BACKLOG_SEGMENTS: Final = 8
"""Size of the backlog, in segments, at which cleaning runs at its maximum rate."""
FULL_RATE_DISK_SHARE: Final = 0.1
"""Cleaning speeds up when the used share of the disk is within this distance of the high mark."""
SEGMENT_OVERHEAD_BYTES: Final = 256
"""Bytes of the head and footer of a rewritten segment, without the footer's items."""
GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum number of bytes of the runs in one group; a larger run is a group of its own."""
PIECE_BYTES_MAX: Final = 1024 * 1024
PIECE_RUNS_MAX: Final = 64
"""The event loop runs other callbacks between two pieces."""
GAP_BYTES_MAX: Final = 4096
"""Bytes between two runs that are read along with them: less work than another read."""


@dataclass(frozen=True, slots=True)
class CleaningRoom:
    """Space and pace of one pass of cleaning."""

    free_bytes: int
    """Bytes that a rewrite may add to the disk."""
    is_full: bool
    """Whether the bookie is read-only because its disk is full: then little garbage is worth a
    rewrite.
    """
    bytes_per_s: float
    """Pace of the rewrite, in bytes per second."""
    index_bytes: int | None = None
    """Free bytes for the index if it has a separate file system; else None."""


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """Segment numbers in the order in which they are cleaned."""

    dead: tuple[int, ...]
    rewrite: tuple[int, ...]
    backlog_bytes: int
    """Garbage in all segments that are due, whether or not this pass frees it."""


class Piece(NamedTuple):
    """Bytes of one segment that are read at once, and the runs in them."""

    location: int
    """Place of the first byte, as in a run."""
    size: int
    runs: list[Run]


def plan_cleaning(
    segments: Iterable[Segment], mark_segment: int, config: StorageConfig, room: CleaningRoom
) -> CleaningPlan:
    """Choose the work of one pass: every dead segment, and rewrites that fill one new segment and
    fit into the space. Segments with the lowest live share come first; on a full disk, those with
    the fewest live bytes.
    """
    dead: list[int] = []
    due: list[tuple[float, int, Segment]] = []
    backlog_bytes = 0
    for segment in segments:
        if segment.number >= mark_segment or segment.is_kept:
            continue
        if segment.live_bytes <= 0:
            dead.append(segment.number)
            backlog_bytes += segment.size
        elif not segment.is_damaged and _is_due(segment, config, is_full=room.is_full):
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
        return garbage_bytes(segment) >= segment.size * GAIN_SHARE_MIN
    return (
        not segment.is_cleaned
        and segment.mean_run_bytes is not None
        and segment.mean_run_bytes < config.clean_mean_run_bytes_min
    )


def garbage_bytes(segment: Segment) -> int:
    """Return approximately how many bytes a rewrite of a segment frees."""
    return segment.size - segment.live_bytes - _footer_bytes(segment) - SEGMENT_OVERHEAD_BYTES


def rewrite_bytes(segment: Segment) -> int:
    """Return approximately how many bytes a rewrite of a segment's live bytes adds to the disk."""
    return segment.live_bytes + _footer_bytes(segment) + SEGMENT_OVERHEAD_BYTES


def _footer_bytes(segment: Segment) -> int:
    """Return the bytes of the footer's items for the live records."""
    share = segment.live_bytes / max(1, segment.size)
    return int((segment.record_count or 0) * FOOTER_RUN_BYTES * min(1.0, share))


def pace_of(
    backlog_bytes: int, used_share: float, config: StorageConfig, *, is_full: bool
) -> float:
    """Return the rate of cleaning, in bytes per second: higher for a larger backlog or a fuller
    disk.
    """
    slowest, fastest = config.clean_bytes_per_s_min, config.clean_bytes_per_s_max
    by_backlog = backlog_bytes / (FULL_RATE_BACKLOG_SEGMENTS * config.segment_bytes_max)
    distance = config.disk_high_mark - used_share
    by_disk = 1.0 if is_full else 1.0 - distance / FULL_RATE_DISK_SHARE
    return slowest + (fastest - slowest) * min(1.0, max(by_backlog, by_disk, 0.0))


def group_runs(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Yield consecutive runs together whose bytes are held in memory at the same time."""
    group: list[Run] = []
    total = 0
    for run in runs:
        if group and total + run[3] > GROUP_BYTES_MAX:
            yield group
            group, total = [], 0
        group.append(run)
        total += run[3]
    if group:
        yield group


def pieces_of(group: Iterable[Run]) -> list[Piece]:
    """Return the reads that cover a group's runs, by place."""
    pieces: list[Piece] = []
    for run in sorted(group, key=itemgetter(2)):
        end = run[2] + run[3]
        last = pieces[-1] if pieces else None
        if (
            last is not None
            and records.segment_of(last.location) == records.segment_of(run[2])
            and run[2] - (last.location + last.size) <= GAP_BYTES_MAX
            and end - last.location <= PIECE_BYTES_MAX
            and len(last.runs) < PIECE_RUNS_MAX
        ):
            last.runs.append(run)
            pieces[-1] = last._replace(size=max(last.size, end - last.location))
        else:
            pieces.append(Piece(run[2], run[3], [run]))
    return pieces
