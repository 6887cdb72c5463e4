"""Operations on the sorted runs of one ledger in memory. Pure.

Leaves the origin of runs to `bookie.index.index`, and their stored form to
`bookie.index.index_pages`.

Invariants: a list is ascending and without overlap; the latest insert wins where it overlaps. A
run's bytes are complete adds records of its ledger, adjacent in one segment; the first and the last
record may extend beyond the run.
Source: storage design, "Index".
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

Run = tuple[int, int, int, int]
"""(last entry id, first entry id, LSN of the first record, bytes of all its records)."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Result of a look-up: ascending runs, cut to the requested range."""

    runs: list[Run]
    known_to: int
    """Up to this entry id, an entry that no run covers is not stored. Beyond it, nothing is known.
    """
    is_unproven: bool
    """True when the entries after `known_to` are unknown because the index cannot prove their
    absence; False when they were not looked up.
    """


def append_run(runs: list[Run], run: Run, run_bytes_max: int) -> None:
    """Append a run beyond the highest id; merge it with the last run if both are adjacent in the
    log too.
    """
    if runs:
        last, first, location, size = runs[-1]
        assert run[1] > last
        if run[1] == last + 1 and run[2] == location + size and size + run[3] <= run_bytes_max:
            runs[-1] = (run[0], first, location, size + run[3])
            return
    runs.append(run)


def splice_run(runs: list[Run], run: Run) -> None:
    """Insert a run anywhere; runs that it overlaps are cut."""
    last, first = run[0], run[1]
    start = bisect_left(runs, (first,))
    stop = start
    while stop < len(runs) and runs[stop][1] <= last:
        stop += 1
    replacement = [run]
    if start < stop:
        head, tail = runs[start], runs[stop - 1]
        if head[1] < first:
            replacement.insert(0, (first - 1, *head[1:]))
        if tail[0] > last:
            replacement.append((tail[0], last + 1, tail[2], tail[3]))
    runs[start:stop] = replacement


def find_runs(runs: Sequence[Run], first: int, last: int) -> list[Run]:
    """Return the runs that overlap first..last, cut to that range."""
    place = bisect_left(runs, (first,))
    parts: list[Run] = []
    while place < len(runs) and runs[place][1] <= last:
        run = runs[place]
        parts.append((min(run[0], last), max(run[1], first), run[2], run[3]))
        place += 1
    return parts


def reach(runs: Sequence[Run], first: int, last: int, limit: int) -> int:
    """Return `last`, or the highest smaller id up to which at most `limit` runs overlap the
    range.
    """
    place = bisect_left(runs, (first,)) + limit
    return min(last, runs[place - 1][0]) if place <= len(runs) else last


def find_gaps(runs: list[Run], first: int, last: int) -> list[tuple[int, int]]:
    """Return the ranges (first, last) of first..last that no run covers. The runs must be cut to
    that range.
    """
    gaps: list[tuple[int, int]] = []
    for run in runs:
        if run[1] > first:
            gaps.append((first, run[1] - 1))
        first = run[0] + 1
    if first <= last:
        gaps.append((first, last))
    return gaps


def overlay(upper: list[Run], lower: list[Run], first: int, last: int) -> list[Run]:
    """Merge two lists of runs, both cut to first..last. The upper ones win."""
    if not lower:
        return upper
    if not upper:
        return lower
    merged = list(upper)
    for gap_first, gap_last in find_gaps(upper, first, last):
        merged += find_runs(lower, gap_first, gap_last)
    merged.sort()
    return merged
