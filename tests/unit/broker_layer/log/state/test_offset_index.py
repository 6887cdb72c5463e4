"""Tests of the start of a search in a ledger: never after the record, and not far before it."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker_layer.log.state.offset_index import POINT_BYTES_MIN, IndexPoint, LedgerIndex
from metadata.ids import EntryId, LedgerId

LEDGER = LedgerId(3)
START = EntryId(-1)


def points_of(index: LedgerIndex) -> tuple[IndexPoint, ...]:
    return index.points_after(START)


def test_empty_index_finds_first_entry() -> None:
    index = LedgerIndex(LEDGER)
    assert (index.find(5), index.find_timestamp(5), index.max_timestamp_ms) == (0, 0, -1)


def test_distance_of_points() -> None:
    index = LedgerIndex(LEDGER)
    for entry_id in range(1, 2001):
        index.add(EntryId(entry_id), entry_id * 10, 1024, entry_id)
    found = [point.entry_id for point in points_of(index)]
    assert found == list(range(1, 2001, POINT_BYTES_MIN // 1024))


def test_point_follows_exactly_after_distance() -> None:
    index = LedgerIndex(LEDGER)
    for entry_id, size in enumerate((POINT_BYTES_MIN - 1, 1, 10, 10), 1):
        index.add(EntryId(entry_id), entry_id, size, 5)
    assert [point.entry_id for point in points_of(index)] == [1, 3]


def test_first_batch_after_state_entry_has_point() -> None:
    index = LedgerIndex(LEDGER)
    index.add(EntryId(1), 0, 10, 5)
    index.add(EntryId(2), 1, 10, 5)
    index.pass_state_entry()
    index.add(EntryId(4), 2, 10, 5)
    assert [point.entry_id for point in points_of(index)] == [1, 4]


def test_earlier_points_are_added_once() -> None:
    whole = [IndexPoint(EntryId(i), i * 10, i) for i in range(1, 10)]
    index = LedgerIndex(LEDGER)
    index.add_later(whole[6:], 50)
    index.add_earlier(whole[3:6])
    index.add_earlier([])
    assert index.find(60) == 6
    assert index.find(20) == 0
    index.add_earlier(whole[3:6])
    index.add_earlier(whole[:3])
    assert points_of(index) == tuple(whole)
    assert index.max_timestamp_ms == 50


def test_known_points_are_not_added_again() -> None:
    whole = [IndexPoint(EntryId(i), i * 10, i) for i in range(1, 10)]
    index = LedgerIndex(LEDGER)
    index.add_later(whole[6:], 50)
    for earlier in (whole[3:6], whole[2:3], whole[:2]):
        index.add_earlier(earlier)
    for known in (whole[3:6], whole[2:4], whole[:]):
        index.add_earlier(known)
        assert points_of(index) == tuple(whole)


def test_points_known_in_part_are_not_added() -> None:
    whole = [IndexPoint(EntryId(i), i * 10, i) for i in range(1, 10)]
    index = LedgerIndex(LEDGER)
    index.add_later(whole[4:], 50)
    index.add_earlier(whole[2:6])
    assert points_of(index) == tuple(whole[4:])


def test_search_of_decreasing_times_uses_greatest_so_far() -> None:
    index = LedgerIndex(LEDGER)
    for entry_id, time in enumerate((30, 10, 50, 40), 1):
        index.add(EntryId(entry_id), entry_id, POINT_BYTES_MIN, time)
    assert [index.find_timestamp(time) for time in (5, 30, 31, 50, 51)] == [1, 1, 3, 3, 4]


batches = st.lists(
    st.tuples(
        st.integers(1, 5),  # records
        st.sampled_from([100, 90_000, 300_000]),
        st.integers(-1, 30),  # greatest time
        st.booleans(),  # whether a state entry comes before it
    ),
    max_size=30,
)


@given(batches, st.integers(0, 40), st.integers(0, 160), st.integers(0, 31))
def test_search_equals_search_from_start(
    entries: list[tuple[int, int, int, bool]], known_from: int, offset: int, time: int
) -> None:
    index = LedgerIndex(LEDGER)
    stored: list[tuple[int, int, int, int]] = []  # entry id, first and last offset, greatest time
    entry_id, next_offset = 1, 0
    for count, size, max_time, is_behind_state in entries:
        if is_behind_state:
            index.pass_state_entry()
            entry_id += 1
        index.add(EntryId(entry_id), next_offset, size, max_time)
        stored.append((entry_id, next_offset, next_offset + count - 1, max_time))
        next_offset += count
        entry_id += 1
    rebuilt = LedgerIndex(LEDGER)
    rebuilt.add_later(index.points_after(EntryId(known_from)), index.max_timestamp_ms)
    for searched in (index, rebuilt):
        holders = [entry for entry, first, last, _ in stored if first <= offset <= last]
        assert all(searched.find(offset) <= entry for entry in holders)
        late = [entry for entry, _, _, max_time in stored if max_time >= time]
        assert all(searched.find_timestamp(time) <= entry for entry in late)
        assert searched.max_timestamp_ms == max([-1, *(max_time for *_, max_time in stored)])
    sizes = {entry[0]: size for entry, (_, size, _, _) in zip(stored, entries, strict=True)}
    places = [point.entry_id for point in points_of(index)]
    for before, after in pairwise(places):
        between = [size for entry, size in sizes.items() if before <= entry < after]
        assert sum(between[:-1]) < POINT_BYTES_MIN
