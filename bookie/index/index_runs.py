"""Keeps runs of one ledger sorted in memory, never overlapping; pure.

Leaves where runs come from to `bookie.index.index`, and their stored form to
`bookie.index.index_pages`.

Invariants: a list is ascending and without overlap; the latest insert wins where it overlaps. A
run's bytes are whole adds records of its ledger, one behind the other in one segment; the first and
the last of them may reach beyond the run.
Source: storage design, "Index".
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

Run = tuple[int, int, int, int]
"""(last entry id, first entry id, LSN of the first record, bytes of all its records)."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Runs that hold part of what was asked for, cut to it, ascending."""

    runs: list[Run]
    known_to: int
    """Up to this entry id, what no run covers is not held; beyond it nothing is said."""
    is_unproven: bool
    """What comes behind `known_to` is unknown because the index cannot prove its absence, not only
    not looked up.
    """


def append_run(runs: list[Run], run: Run, run_bytes_max: int) -> None:
    """Insert a run that lies beyond the highest id, merged with the last one where they are
    adjacent in the log too.
    """
    if runs:
        last, first, location, size = runs[-1]
        assert run[1] > last
        if run[1] == last + 1 and run[2] == location + size and size + run[3] <= run_bytes_max:
            runs[-1] = (run[0], first, location, size + run[3])
            return
    runs.append(run)


def splice_run(runs: list[Run], run: Run) -> None:
    """Insert a run anywhere; what it overlaps is cut back to what it leaves."""
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
    """Return what lies in first..last, cut to it."""
    place = bisect_left(runs, (first,))
    found: list[Run] = []
    while place < len(runs) and runs[place][1] <= last:
        run = runs[place]
        found.append((min(run[0], last), max(run[1], first), run[2], run[3]))
        place += 1
    return found


def reach(runs: Sequence[Run], first: int, last: int, limit: int) -> int:
    """Return `last`, or less of it: up to there, at most `limit` of the runs touch first..last."""
    place = bisect_left(runs, (first,)) + limit
    return min(last, runs[place - 1][0]) if place <= len(runs) else last


def find_gaps(runs: list[Run], first: int, last: int) -> list[tuple[int, int]]:
    """Return the ranges (first, last) of first..last that no run covers; runs must be cut to it."""
    gaps: list[tuple[int, int]] = []
    for run in runs:
        if run[1] > first:
            gaps.append((first, run[1] - 1))
        first = run[0] + 1
    if first <= last:
        gaps.append((first, last))
    return gaps


def overlay(upper: list[Run], lower: list[Run], first: int, last: int) -> list[Run]:
    """Return what both hold of first..last, the upper ones winning; both must be cut to it."""
    if not lower:
        return upper
    if not upper:
        return lower
    merged = list(upper)
    for gap_first, gap_last in find_gaps(upper, first, last):
        merged += find_runs(lower, gap_first, gap_last)
    merged.sort()
    return merged
