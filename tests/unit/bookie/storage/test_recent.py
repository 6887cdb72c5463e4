"""The cache of recent batches compared with a naive twin."""

import gc
import random
import weakref

import pytest

from bookie.storage.recent import COPIED_BYTES_MAX, OVERHEAD_BYTES, RecentEntries
from bookie.wire.batch import BatchView
from tests.support.bookie.batches import make_run


@pytest.mark.parametrize("ledger_count", [3, 15])
@pytest.mark.parametrize("seed", range(20))
def test_found_batches_are_contiguous_and_limited(seed: int, ledger_count: int) -> None:
    rng = random.Random(seed)
    bytes_max = 20 * (OVERHEAD_BYTES + COPIED_BYTES_MAX)
    recent = RecentEntries(bytes_max)
    highest = dict.fromkeys(range(ledger_count), -1)
    kept: list[BatchView] = []
    for _ in range(600):
        ledger_id = rng.randrange(ledger_count)
        first = highest[ledger_id] + rng.choice((1, 1, 1, 2))
        size = rng.choice((20, 20, COPIED_BYTES_MAX))  # the last are kept without a copy
        batch = make_run(ledger_id, first, rng.randint(1, 3), size=size)
        highest[ledger_id] = batch.header.last_entry_id
        recent.put(batch)
        kept.append(batch)
        while sum(len(b.data) + OVERHEAD_BYTES for b in kept) > bytes_max:
            del kept[0]
        assert recent.size <= bytes_max
        asked = rng.randrange(ledger_count)
        start = rng.randint(0, max(0, highest[asked]) + 2)
        stop = start + rng.randrange(8)
        expected: list[BatchView] = []
        wanted = start
        for candidate in kept:
            header = candidate.header
            if (
                header.ledger_id == asked
                and header.first_entry_id <= wanted <= header.last_entry_id
            ):
                expected.append(candidate)
                wanted = header.last_entry_id + 1
                if wanted > stop:
                    break
        found = recent.find(asked, start, stop, 1 << 30, 1 << 30)
        assert [batch.data for batch in found] == [batch.data for batch in expected]
        assert [batch.header for batch in found] == [batch.header for batch in expected]


def test_evicted_batches_are_released() -> None:
    size = COPIED_BYTES_MAX

    class Watched(BatchView):
        __slots__ = ("__weakref__",)

    recent = RecentEntries(10 * (OVERHEAD_BYTES + size + 100))
    alive: weakref.WeakSet[Watched] = weakref.WeakSet()

    def put(first: int) -> None:
        batch = Watched(make_run(1, first, 1, size=size).data)
        alive.add(batch)
        recent.put(batch)

    for first in range(200):
        put(first)
    gc.collect()
    assert 5 <= len(alive) <= 11


def test_dropped_ledger_and_earlier_batch_are_not_found() -> None:
    recent = RecentEntries(1 << 20)
    recent.put(make_run(1, 5, 2))
    recent.put(make_run(1, 3, 2))
    assert recent.find(1, 3, 3, 10, 9) == []
    assert len(recent.find(1, 5, 9, 10, 9)) == 1
    recent.drop(1)
    assert recent.find(1, 5, 5, 10, 9) == []


def test_small_batch_does_not_keep_its_receive_buffer() -> None:
    recent = RecentEntries(1 << 20)
    buffer = bytearray(bytes(make_run(1, 0, 2).data))
    stored = bytes(buffer)
    recent.put(BatchView(buffer))
    buffer[:] = bytes(len(buffer))
    assert [bytes(batch.data) for batch in recent.find(1, 0, 1, 10, 9)] == [stored]


def firsts(found: list[BatchView]) -> list[int]:
    return [batch.header.first_entry_id for batch in found]


def cost(batch: BatchView) -> int:
    return len(batch.data) + OVERHEAD_BYTES


def test_a_batch_that_is_not_beyond_the_last_one_is_not_kept() -> None:
    recent = RecentEntries(1 << 20)
    for first, count in ((0, 2), (2, 2), (3, 2), (2, 1), (4, 1)):
        recent.put(make_run(1, first, count))
    assert firsts(recent.find(1, 0, 9, 1 << 20, 9)) == [0, 2, 4]
    assert recent.size == sum(cost(make_run(1, 0, count)) for count in (2, 2, 1))


def test_the_number_and_bytes_of_found_batches_are_limited() -> None:
    recent, size = RecentEntries(1 << 20), len(make_run(1, 0, 1).data)
    for first in range(5):
        recent.put(make_run(1, first, 1))
    assert firsts(recent.find(1, 1, 4, 1 << 20, 2)) == [1, 2]
    for bytes_max, count in ((0, 0), (1, 1), (size, 1), (size + 1, 2), (2 * size, 2)):
        assert len(recent.find(1, 0, 4, bytes_max, 9)) == count
    assert recent.find(1, 5, 9, 1 << 20, 9) == []
    assert recent.find(2, 0, 4, 1 << 20, 9) == []


def test_exactly_the_limit_is_kept() -> None:
    batch = make_run(1, 0, 1)
    recent = RecentEntries(2 * cost(batch))
    assert recent.size == 0
    for first in range(2):
        recent.put(make_run(1, first, 1))
    assert recent.size == 2 * cost(batch)
    assert firsts(recent.find(1, 0, 9, 1 << 20, 9)) == [0, 1]
    recent.put(make_run(1, 2, 1))
    assert recent.size == 2 * cost(batch)
    assert recent.find(1, 0, 9, 1 << 20, 9) == []
    assert firsts(recent.find(1, 1, 9, 1 << 20, 9)) == [1, 2]


def test_only_a_small_batch_is_copied() -> None:
    overhead = len(make_run(1, 0, 1, size=0).data)
    for size, is_copied in ((COPIED_BYTES_MAX, True), (COPIED_BYTES_MAX + 1, False)):
        recent, batch = RecentEntries(1 << 20), make_run(1, 0, 1, size=size - overhead)
        assert len(batch.data) == size
        recent.put(batch)
        (found,) = recent.find(1, 0, 0, 1 << 20, 1)
        assert (found is not batch) is is_copied
        assert found.data == batch.data


def test_a_ledger_of_which_all_was_evicted_begins_again() -> None:
    recent = RecentEntries(2 * cost(make_run(1, 0, 1)))
    for first in range(3):
        recent.put(make_run(1, first, 1))
    for first in range(2):
        recent.put(make_run(2, first, 1))
    assert recent.find(1, 2, 2, 1 << 20, 9) == []
    recent.put(make_run(1, 0, 1))
    assert firsts(recent.find(1, 0, 9, 1 << 20, 9)) == [0], "nothing of it was kept any more"


def test_a_dropped_ledger_counts_until_its_turn_and_another_life_of_it_is_kept() -> None:
    batch = make_run(1, 0, 1)
    recent = RecentEntries(3 * cost(batch))
    recent.put(batch)
    recent.put(make_run(1, 1, 1))
    recent.drop(1)
    recent.drop(1)
    assert recent.find(1, 0, 9, 1 << 20, 9) == []
    assert recent.size == 2 * cost(batch)
    for first in range(3):
        recent.put(make_run(2, first, 1))
    assert recent.size == 3 * cost(batch)
    assert firsts(recent.find(2, 0, 9, 1 << 20, 9)) == [0, 1, 2]


@pytest.mark.parametrize("kept", [1, 10, 63, 64, 65, 127, 128, 129, 200])
def test_a_long_tail_of_one_ledger_stays_exact_while_it_is_evicted(kept: int) -> None:
    recent = RecentEntries(kept * cost(make_run(1, 0, 1)))
    for first in range(500):
        recent.put(make_run(1, first, 1))
        oldest = max(0, first - kept + 1)
        assert firsts(recent.find(1, oldest, oldest, 1 << 20, 9)) == [oldest]
        assert recent.find(1, oldest - 1, oldest, 1 << 20, 9) == []
        assert firsts(recent.find(1, first, first, 1 << 20, 9)) == [first]


def test_what_was_evicted_of_a_ledger_takes_little_memory() -> None:
    recent = RecentEntries(10 * cost(make_run(1, 0, 1)))
    for first in range(1000):
        recent.put(make_run(1, first, 1))
        kept = recent._ledgers[1]
        assert isinstance(kept, tuple) or len(kept.lasts) == len(kept.batches) <= 80
