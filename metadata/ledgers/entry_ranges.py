"""Arithmetic on ranges of entries. Pure.

Leaves which ranges a bookie must hold to `metadata.ledgers.copies`.

Format: a range is (first, last), inclusive; lists of ranges ascend, and neither touch nor overlap.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

Range = tuple[int, int]


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges that touch or overlap."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def without(ranges: Iterable[Range], removed: Iterable[Range]) -> list[Range]:
    """Return the parts of `ranges` that are not in `removed`, whose order does not matter."""
    left: list[Range] = []
    removals = merged(removed)
    for first, last in ranges:
        at = first
        for index in range(_first_ending_at(removals, first), len(removals)):
            gone_first, gone_last = removals[index]
            if gone_first > last:
                break
            if gone_first > at:
                left.append((at, gone_first - 1))
            at = gone_last + 1
        if at <= last:
            left.append((at, last))
    return left


def within(ranges: Sequence[Range], first: int, last: int) -> list[Range]:
    """Return the parts of ranges that are in first..last."""
    inside: list[Range] = []
    for index in range(_first_ending_at(ranges, first), len(ranges)):
        low, high = max(ranges[index][0], first), min(ranges[index][1], last)
        if low > high:
            break
        inside.append((low, high))
    return inside


def common(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """Return the parts of `ranges` that are in `others` too."""
    return without(ranges, without(ranges, others))


def entry_count(ranges: Iterable[Range]) -> int:
    """Return the number of entries in ranges."""
    return sum(last - first + 1 for first, last in ranges)


def describe_ranges(ranges: Sequence[Range], shown_max: int = 5) -> str:
    """Return ranges as text for people: '0-9, 12'."""
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges[:shown_max]]
    more = [f"and {len(ranges) - shown_max} more"] if len(ranges) > shown_max else []
    return ", ".join(shown + more)


def _first_ending_at(ranges: Sequence[Range], entry_id: int) -> int:
    """Return the index of the first range that ends at an entry or later."""
    return bisect_left(ranges, entry_id, key=lambda range_: range_[1])
