"""Ranges agree with plain sets of numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from metadata.ledgers.entry_ranges import (
    Range,
    common,
    describe_ranges,
    entry_count,
    merged,
    within,
    without,
)

RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair)))
)


def numbers(ranges: list[Range]) -> set[int]:
    return {n for first, last in ranges for n in range(first, last + 1)}


@given(RANGES)
def test_merged_keeps_the_numbers_and_joins_neighbours(ranges: list[Range]) -> None:
    joined = merged(ranges)
    assert numbers(joined) == numbers(ranges)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(joined))


@given(RANGES, RANGES)
def test_without_is_the_difference(ranges: list[Range], removed: list[Range]) -> None:
    kept = merged(ranges)
    left = without(kept, removed)
    assert numbers(left) == numbers(kept) - numbers(removed)
    assert entry_count(left) == len(numbers(left))
    assert all(first <= last for first, last in left)


@given(RANGES, RANGES)
def test_common_is_the_intersection(ranges: list[Range], others: list[Range]) -> None:
    both = common(merged(ranges), merged(others))
    assert numbers(both) == numbers(ranges) & numbers(others)


@given(RANGES, st.integers(0, 60), st.integers(0, 60))
def test_within_is_what_a_stretch_has_of_the_ranges(
    ranges: list[Range], first: int, last: int
) -> None:
    found = within(merged(ranges), first, last)
    assert numbers(found) == numbers(ranges) & set(range(first, last + 1))
    assert all(low <= high for low, high in found)


def test_ranges_are_described() -> None:
    assert describe_ranges([(0, 9), (12, 12)]) == "0-9, 12"
    assert describe_ranges([(0, 0), (2, 2), (4, 4)], shown_max=2) == "0, 2, and 1 more"
    six = [(number, number) for number in range(0, 12, 2)]
    assert describe_ranges(six[:5]) == "0, 2, 4, 6, 8"
    assert describe_ranges(six) == "0, 2, 4, 6, 8, and 1 more"
