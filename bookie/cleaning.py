"""Plans which segments to drop or rewrite, and in which order their runs go into a new one; pure.

Leaves reading, writing and the index to `bookie.cleaner`.

Invariants: only segments wholly below the mark are touched; a damaged one is never dropped.
Source: storage design, "Cleaning".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bookie.config import StorageConfig
from bookie.records import FooterRun
from bookie.segments import Segment


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """Segment numbers; both ascend by how much there is to gain."""

    dead: tuple[int, ...]
    rewrite: tuple[int, ...]


def plan_cleaning(
    segments: Iterable[Segment], mark_segment: int, config: StorageConfig, *, is_emergency: bool
) -> CleaningPlan:
    """Choose what one pass does: every dead segment and, but for an emergency, one segment's worth
    of rewriting.
    """
    dead: list[int] = []
    due: list[tuple[float, int, int]] = []
    for segment in segments:
        if segment.number >= mark_segment or segment.is_damaged:
            continue
        if segment.live_bytes <= 0:
            dead.append(segment.number)
            continue
        live_share = segment.live_bytes / max(1, segment.size)
        is_scattered = (
            not segment.is_cleaned
            and segment.mean_run_bytes is not None
            and segment.mean_run_bytes < config.clean_mean_run_bytes_min
        )
        if live_share <= config.clean_live_share_max or is_scattered:
            due.append((live_share, segment.number, segment.live_bytes))
    rewrite: list[int] = []
    room = config.segment_bytes_max
    for _, number, live_bytes in sorted(due):
        if is_emergency or room <= 0:
            break
        rewrite.append(number)
        room -= live_bytes
    return CleaningPlan(tuple(dead), tuple(rewrite))


def mean_run_bytes(runs: Sequence[FooterRun]) -> int:
    """Return the mean size of a segment's runs when records of one ledger that touch are taken
    together.
    """
    count = total = 0
    before: FooterRun | None = None
    for run in runs:
        is_joined = (
            before is not None
            and before.ledger_id == run.ledger_id
            and before.first_entry_id + before.count == run.first_entry_id
            and before.offset + before.size == run.offset
        )
        count += not is_joined
        total += run.size
        before = run
    return total // count if count else 0


def spans(runs: Iterable[FooterRun]) -> list[tuple[int, int, int]]:
    """Return (ledger id, lowest, highest entry id) of what a segment holds, by ledger."""
    found: dict[int, tuple[int, int]] = {}
    for run in runs:
        last = run.first_entry_id + run.count - 1
        low, high = found.get(run.ledger_id, (run.first_entry_id, last))
        found[run.ledger_id] = (min(low, run.first_entry_id), max(high, last))
    return [(ledger_id, low, high) for ledger_id, (low, high) in sorted(found.items())]
