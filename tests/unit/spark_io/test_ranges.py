"""Parts cover the given ranges in order, once; packed ranges come back as they were."""

import pickle
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from spark_io.ranges import RANGES_PER_SPLIT_MAX, EntryRange, PackedRanges, plan_splits

ranges = st.lists(
    st.builds(
        lambda ledger_id, first, count, size: EntryRange(ledger_id, first, first + count - 1, size),
        st.integers(0, 5),
        st.integers(0, 100),
        st.integers(0, 50),
        st.floats(0, 3_000),
    ),
    max_size=8,
)


def entries(parts: Sequence[EntryRange]) -> list[tuple[int, int]]:
    return [(part.ledger_id, n) for part in parts for n in range(part.first, part.last + 1)]


@given(ranges, st.integers(1, 100_000), st.none() | st.integers(1, 60), st.integers(1, 9))
def test_parts_cover_everything_once_and_in_order(
    given_ranges: list[EntryRange], split_bytes: int, split_entries: int | None, least: int
) -> None:
    found = plan_splits(
        given_ranges, split_bytes=split_bytes, split_entries=split_entries, min_partitions=least
    )
    parts = list(found)
    assert [entry for part in parts for entry in entries(part)] == entries(given_ranges)
    assert all(part for part in parts)
    if split_entries is not None:
        assert all(
            sum(entry_range.count for entry_range in part) <= split_entries for part in parts
        )


def test_a_large_ledger_is_cut_into_equal_parts() -> None:
    parts = list(plan_splits([EntryRange(1, 0, 999, 1_000.0)], split_bytes=100_000))
    assert [part[0].count for part in parts] == [100] * 10


def test_the_parts_keep_the_identity_of_their_ledger() -> None:
    whole = EntryRange(1, 0, 999, 1_000.0, b"token")
    parts = list(plan_splits([whole], split_bytes=100_000))
    assert [entry_range.creation_token for part in parts for entry_range in part] == [b"token"] * 10


def test_small_ledgers_share_a_part() -> None:
    small = [EntryRange(n, 0, 9, 10.0) for n in range(2_500)]
    parts = list(plan_splits(small, split_bytes=64 * 1024 * 1024))
    assert [len(part) for part in parts] == [RANGES_PER_SPLIT_MAX, RANGES_PER_SPLIT_MAX, 500]


def test_at_least_the_minimum_number_of_parts_is_made() -> None:
    parts = list(plan_splits([EntryRange(1, 0, 999, 10.0)], split_bytes=10**9, min_partitions=7))
    assert len(parts) >= 7


def test_without_ranges_there_are_no_parts() -> None:
    assert list(plan_splits([], split_bytes=1)) == []
    assert list(plan_splits([EntryRange(1, 5, 4)], split_bytes=1)) == []


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
    assert [packedrange.link for packedrange in PackedRanges(ranges)] == [None, None]
    assert list(PackedRanges(ranges, keeps_links=True)) == ranges


def test_a_range_has_few_bytes_in_a_plan() -> None:
    packed = PackedRanges([EntryRange(10_000_000 + n, 0, 19, 90.0) for n in range(1_000)])
    assert len(pickle.dumps(packed)) < 34_000
