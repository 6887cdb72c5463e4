"""Ranges in columns."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from spark_io.ledgers.packed_ranges import PackedRanges
from spark_io.ledgers.splits import EntryRange

NUMBERS = st.integers(-1, 2**63 - 1)
RANGES = st.builds(
    EntryRange,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.floats(0, 1e9),
    st.sampled_from([b"", b"1" * 16, b"2" * 16]),
    st.none() | st.integers(0, 2**63 - 1),
)


@given(st.lists(RANGES, max_size=20))
def test_ranges_come_back_as_they_were_given(ranges: list[EntryRange]) -> None:
    packed = PackedRanges(ranges, keeps_links=True)
    assert len(packed) == len(ranges)
    assert list(packed) == ranges
    assert list(pickle.loads(pickle.dumps(packed))) == ranges


def test_links_are_dropped_unless_they_are_kept() -> None:
    ranges = [EntryRange(7, 0, 9, link=3), EntryRange(8, 0, 9)]
    assert [each.link for each in PackedRanges(ranges)] == [None, None]
    assert list(PackedRanges(ranges, keeps_links=True)) == ranges


def test_a_range_has_few_bytes_in_a_plan() -> None:
    packed = PackedRanges([EntryRange(10_000_000 + n, 0, 19, 90.0) for n in range(1_000)])
    assert len(pickle.dumps(packed)) < 34_000
