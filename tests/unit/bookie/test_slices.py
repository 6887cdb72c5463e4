"""Large collections: the number of items that one callback of a bookie's loop processes."""

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest

from bookie.config import StorageConfig
from bookie.errors import BookieError, DiskFailedError, DiskFullError
from bookie.files.disk import Buffer
from bookie.log import records, replay
from bookie.log.log import GROUP_RECORDS_MAX, Log, LogItem
from bookie.log.records import ADDS
from bookie.log.segments import Segments
from bookie.storage.cleaner import SLICE_ITEMS, in_order, in_slices, live_bytes_of
from bookie.storage.ledgers import NOTIFIED_AT_ONCE, Ledgers
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_run

SEGMENT = 1 << 32


async def turns_during(work: Callable[[], Coroutine[None, None, object]]) -> int:
    """Return the number of iterations of the event loop during `work`."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await work()
    counting.cancel()
    return turns


async def test_slices_are_bounded_and_complete() -> None:
    for count in (0, 1, SLICE_ITEMS, 3 * SLICE_ITEMS + 1):
        parts = [part async for part in in_slices(range(count))]
        assert [item for part in parts for item in part] == list(range(count))
        assert all(0 < len(part) <= SLICE_ITEMS for part in parts)


@pytest.mark.parametrize("seed", range(5))
async def test_slices_in_order_are_sorted(seed: int) -> None:
    rng = random.Random(seed)
    items = [(rng.randrange(50), rng.randrange(9)) for _ in range(rng.choice((0, 5, 20_000)))]
    parts = [part async for part in in_order(items)]
    assert [item for part in parts for item in part] == sorted(items)
    assert all(len(part) <= SLICE_ITEMS for part in parts)


async def test_loop_runs_while_many_items_are_sorted() -> None:
    async def sort() -> None:
        async for _ in in_order((-number,) for number in range(5 * SLICE_ITEMS)):
            pass

    assert await turns_during(sort) >= 10


async def test_bytes_that_several_runs_share_count_once() -> None:
    runs = [(1, (9, 6, 100, 50)), (2, (3, 0, 100, 50)), (1, (5, 4, 300, 10))]
    assert await live_bytes_of(runs) == 60
    assert await live_bytes_of([]) == 0
    many = [(1, (number, number, SEGMENT + 10 * number, 15)) for number in range(5 * SLICE_ITEMS)]
    random.Random(1).shuffle(many)

    async def count() -> None:
        assert await live_bytes_of(many) == 10 * len(many) + 5

    assert await turns_during(count) >= 10


@pytest.mark.parametrize("is_full", [True, False])
def test_refused_queue_is_answered_in_bounded_groups(is_full: bool) -> None:
    async def test() -> None:
        faults = DiskFaults()
        disk = CrashableDisk(Platter(), random.Random(1), faults)
        groups: list[tuple[int, BookieError | None]] = []
        answered: list[object] = []
        late: list[int] = []

        def on_group(group: list[LogItem], error: BookieError | None) -> None:
            groups.append((len(group), error))
            answered.extend(item.context for item in group)
            if error is not None and is_full and not late:
                late.append(len(groups))
                faults.capacity_bytes = 2**40
                log.append(ADDS, body, "late")

        log = Log(disk, StorageConfig(), Segments(disk), 0, on_group)
        body = bytes(make_run(7, 0, 1).data)
        count = 3 * GROUP_RECORDS_MAX + 5
        for number in range(count):
            log.append(ADDS, body, number)
        if is_full:
            faults.capacity_bytes = 0
        else:
            faults.failing_syncs = 1
        running = asyncio.create_task(log.run())
        waiting = asyncio.create_task(log.barrier())
        if is_full:
            await waiting
            assert answered == list(range(count))
            log.close()
            await running
            assert answered == [*range(count), "late"]
            assert groups.pop() == (1, None)
        else:
            with pytest.raises(DiskFailedError):
                await running
            await waiting
            assert answered == list(range(count))
        assert [size for size, _ in groups] == [GROUP_RECORDS_MAX] * 3 + [5]
        kind = DiskFullError if is_full else DiskFailedError
        assert all(isinstance(error, kind) for _, error in groups)

    run_simulation(test, 1)


async def test_many_watches_of_a_ledger_are_called_a_bounded_number_at_a_time() -> None:
    ledgers, called = Ledgers(hot_max=10), list[int]()
    count = 2 * NOTIFIED_AT_ONCE + 5
    cancels = [
        ledgers.watch(7, lambda number=number: called.append(number))  # type: ignore[misc]
        for number in range(count)
    ]
    ledgers.notify(7)
    assert called == list(range(NOTIFIED_AT_ONCE))
    cancels[count - 1]()
    await asyncio.sleep(0)
    assert len(called) == 2 * NOTIFIED_AT_ONCE
    for _ in range(3):
        await asyncio.sleep(0)
    assert called == list(range(count - 1))


def test_bytes_full_of_imitated_headers_are_searched_in_bounded_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces: list[int] = []
    find_header = records.find_header

    def find(data: Buffer, start: int, base_lsn: int) -> int | None:
        pieces.append(len(data))
        return find_header(data, start, base_lsn)

    monkeypatch.setattr(replay.records, "find_header", find)  # type: ignore[attr-defined]

    async def test() -> None:
        disk = CrashableDisk(Platter(), random.Random(1), DiskFaults())
        file = await disk.create("log/00000001.log")
        imitated = records.ADDS_PREFIX[:3] * 100_000
        body = bytes(make_run(7, 0, 1).data)
        lsn = SEGMENT + len(imitated)
        record = records.encode_header(ADDS, body, lsn, lsn) + body
        await file.commit(0, [imitated, record])
        reader = replay.SegmentReader(file, 1, 0)
        damage = await reader.next()
        assert isinstance(damage, replay.Damage)
        assert damage.next_lsn == lsn
        found = await reader.next()
        assert isinstance(found, list)
        assert found[0].header.lsn == lsn

    run_simulation(test, 1)
    assert len(pieces) > 1
    assert max(pieces) <= replay.SEARCH_BYTES
