"""Tests of kept batches: they are returned in order, once, and below the reader's limit."""

from hypothesis import given
from hypothesis import strategies as st

from broker_layer.log.read_ahead import BatchSelection, KeptBatches, ReadBatch
from metadata.ids import EntryId, LedgerId

SIZES = st.lists(st.integers(1, 40), max_size=12)


def read_batches(*sizes: int, offset: int = 0) -> list[ReadBatch]:
    """Return batches of two records and the given sizes, received in one buffer."""
    buffer, start, found = memoryview(bytearray(sum(sizes))), 0, []
    for number, size in enumerate(sizes):
        data = buffer[start : start + size]
        last = offset + 2 * number + 1
        found.append(ReadBatch(last, LedgerId(3), EntryId(number), data))
        start += size
    return found


def given_by(
    kept: KeptBatches, limit: int, bytes_max: int, *, at_least_one: bool = True
) -> list[int]:
    selection = BatchSelection(limit, bytes_max, at_least_one)
    kept.move_into(selection)
    assert selection.size == sum(map(len, selection.batches))
    return [len(batch) for batch in selection.batches]


def test_fitting_batches_are_returned_and_others_kept() -> None:
    kept = KeptBatches(0)
    kept.put(0, read_batches(10, 10, 10))
    assert given_by(kept, 100, 25) == [10, 10]
    assert (kept.next_offset, kept.read_offset, len(kept)) == (4, 6, 1)
    assert given_by(kept, 100, 25) == [10]
    assert given_by(kept, 100, 25) == []


def test_nothing_at_or_above_limit_is_returned() -> None:
    kept = KeptBatches(0)
    kept.put(0, read_batches(1, 1, 1))
    assert given_by(kept, 1, 100) == []
    assert given_by(kept, 3, 100) == [1]
    assert given_by(kept, 5, 100) == [1]
    assert given_by(kept, 6, 100) == [1]


def test_at_least_one_returns_large_first_batch() -> None:
    kept = KeptBatches(0)
    kept.put(0, read_batches(50, 50))
    assert given_by(kept, 100, 10, at_least_one=False) == []
    assert given_by(kept, 100, 10) == [50]
    assert given_by(kept, 100, 50, at_least_one=False) == [50]


def test_buffer_counts_until_last_batch_is_returned() -> None:
    kept = KeptBatches(0)
    kept.put(0, [*read_batches(10, 20), *read_batches(5, offset=4)])
    assert kept.size == 35
    given_by(kept, 100, 10)
    assert kept.size == 35
    given_by(kept, 100, 20)
    assert kept.size == 5
    given_by(kept, 100, 5)
    assert kept.size == 0


def test_cleared_batches_are_read_again() -> None:
    kept = KeptBatches(0)
    kept.put(0, read_batches(10, 10))
    given_by(kept, 100, 10)
    kept.clear()
    assert (kept.next_offset, kept.read_offset, kept.size, len(kept)) == (2, 2, 0, 0)


def test_batches_of_other_offset_are_not_kept() -> None:
    kept = KeptBatches(0)
    kept.put(0, read_batches(10))
    kept.clear()
    kept.put(2, read_batches(10, offset=2))
    assert (kept.next_offset, kept.read_offset, kept.size, len(kept)) == (0, 0, 0, 0)


def test_room_is_estimated_from_average_size() -> None:
    kept = KeptBatches(0)
    kept.put(0, read_batches(50, 50))
    for bytes_max, has_room in ((149, False), (150, True)):
        selection = BatchSelection(100, bytes_max, at_least_one=True, size=100, batches=[b"", b""])
        assert selection.has_room is has_room
    selection = BatchSelection(2, 1, at_least_one=True)
    assert selection.has_room
    kept.move_into(selection)
    assert not selection.has_room, "what comes next is beyond the limit"


@given(SIZES, SIZES, st.lists(st.tuples(st.integers(0, 60), st.integers(1, 80)), max_size=20))
def test_batches_are_returned_once_in_order_within_limits(
    first: list[int], second: list[int], asked: list[tuple[int, int]]
) -> None:
    pieces = [read_batches(*first), read_batches(*second, offset=2 * len(first))]
    kept = KeptBatches(0)
    for piece in pieces:
        kept.put(kept.read_offset, piece)
    wanted = [*pieces[0], *pieces[1]]
    for limit, bytes_max in asked:
        selection = BatchSelection(limit, bytes_max, at_least_one=True)
        kept.move_into(selection)
        count = len(selection.batches)
        assert [id(batch) for batch in selection.batches] == [id(b.data) for b in wanted[:count]]
        assert all(batch.last_offset < limit for batch in wanted[:count])
        assert selection.size <= bytes_max or count == 1
        wanted = wanted[count:]
        if wanted:
            is_too_large = selection.size + len(wanted[0].data) > bytes_max
            assert wanted[0].last_offset >= limit or (is_too_large and count)
        held = {id(batch.data.obj): len(batch.data.obj) for batch in wanted}  # type: ignore[arg-type]
        assert kept.size == sum(held.values())
