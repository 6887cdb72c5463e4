"""Sets of numbers stored as ranges, and their differences.

Leaves the meaning of the numbers to `judge`.

Invariants: pure. The ranges of a set increase and do not touch each other. The cost depends on the
number of ranges, not of numbers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Numbers:
    """A set of numbers."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> int:
        """Add start..end-1; return how many of them were in the set already."""
        starts, ends = self._starts, self._ends
        if not ends or start > ends[-1]:
            starts.append(start)
            ends.append(end)
            return 0
        if start == ends[-1]:
            ends[-1] = end
            return 0
        already = self.count(start, end)
        low, high = bisect_left(ends, start), bisect_right(starts, end)
        if low < high:
            start, end = min(start, starts[low]), max(end, ends[high - 1])
        starts[low:high], ends[low:high] = [start], [end]
        return already

    def count(self, start: int, end: int) -> int:
        """Return how many of start..end-1 are in the set."""
        starts, ends = self._starts, self._ends
        at, total = bisect_right(ends, start), 0
        while at < len(starts) and starts[at] < end:
            total += min(end, ends[at]) - max(start, starts[at])
            at += 1
        return total

    def ranges(self) -> Iterable[tuple[int, int]]:
        """Return the ranges, each as start and end."""
        return zip(self._starts, self._ends, strict=True)

    def first_absent(self, start: int, end: int) -> int | None:
        """Return the first of start..end-1 that is not in the set."""
        at = bisect_right(self._ends, start)
        if at == len(self._starts) or self._starts[at] > start:
            return start
        return self._ends[at] if self._ends[at] < end else None


@dataclass(frozen=True, slots=True)
class Missing(Generic[Key]):
    """How many numbers one set has and the other lacks, and the least of them, with its key."""

    count: int
    first: tuple[int, Key] | None


def missing(one: Mapping[Key, Numbers], other: Mapping[Key, Numbers]) -> Missing[Key]:
    """Find the numbers of `one` that `other` lacks under the same key."""
    total, first, nothing = 0, None, Numbers()
    for key, numbers in one.items():
        held = other.get(key, nothing)
        for start, end in numbers.ranges():
            lacking = end - start - held.count(start, end)
            if not lacking:
                continue
            total += lacking
            absent = held.first_absent(start, end)
            assert absent is not None, "some are not there"
            if first is None or absent < first[0]:
                first = (absent, key)
    return Missing(total, first)
