"""Memory of changes that wait for a checkpoint, in ledgers and records, and the objects that the
garbage collector must scan.
"""

import asyncio
import dataclasses
import gc

import pytest

from bookie.errors import DiskFullError
from bookie.index.index import Index
from bookie.index.index_pages import INDEX_VERSION, CheckpointMeta
from bookie.storage.recent import RecentEntries
from bookie.storage.upkeep import CHECKPOINTS_AHEAD_MAX
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.simulation.index_store import MemoryStore
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, SMALL, Bench, add, read, simulate

LIMIT = 20
MANY_RECORDS = dataclasses.replace(SMALL, checkpoint_records=LIMIT)
MANY_LEDGERS = dataclasses.replace(SMALL, checkpoint_ledgers=LIMIT, hot_ledgers_max=5)


@pytest.mark.parametrize("config", [MANY_RECORDS, MANY_LEDGERS])
def test_adds_wait_while_much_waits_for_a_checkpoint(config: object) -> None:
    async def main(bench: Bench) -> None:
        assert isinstance(config, type(SMALL))
        bench.config = config
        storage = await bench.open()
        for number in range(CHECKPOINTS_AHEAD_MAX * LIMIT):
            assert storage.has_room
            assert await add(storage, make_run(number, 0, 1)) is Status.OK
        assert not storage.has_room
        waiting = asyncio.create_task(storage.wait_for_room())
        await asyncio.sleep(1)
        assert not waiting.done()
        await storage.checkpoint()
        await waiting
        assert storage.has_room
        await storage.close()

    simulate(main)


@pytest.mark.parametrize("config", [MANY_RECORDS, MANY_LEDGERS])
def test_records_of_a_running_checkpoint_count(config: object) -> None:
    async def main(bench: Bench) -> None:
        assert isinstance(config, type(SMALL))
        bench.config = config
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        may_store = asyncio.Event()

        async def pause() -> None:
            await may_store.wait()

        bench.platter.stores["index"].attach(pause, bool)
        count = 0
        while storage.has_room:
            assert await add(storage, make_run(count, 0, 1)) is Status.OK
            count += 1
        assert count == CHECKPOINTS_AHEAD_MAX * LIMIT
        may_store.set()
        async with asyncio.timeout(60):
            while count < 20 * LIMIT:
                await storage.wait_for_room()
                assert await add(storage, make_run(count, 0, 1)) is Status.OK
                count += 1
        for number in range(count):
            assert (await read(storage, number, 0, 0)).status is Status.OK
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await storage.close()

    simulate(main)


def test_a_checkpoint_is_due_once_many_ledgers_changed() -> None:
    async def main(bench: Bench) -> None:
        bench.config = MANY_LEDGERS
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        for number in range(LIMIT):
            assert storage.statistics().checkpoints == 0
            assert await add(storage, make_run(number, 0, 1)) is Status.OK
        await asyncio.sleep(10)
        assert storage.statistics().checkpoints == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await storage.close()

    simulate(main)


def test_a_wait_for_room_makes_a_checkpoint_due_without_any_group() -> None:
    """An explicit LAC is reported, and changes a state, before it is stored."""

    async def main(bench: Bench) -> None:
        bench.config = MANY_LEDGERS
        storage = await bench.open()
        bench.faults.paused = asyncio.Event()
        for number in range(CHECKPOINTS_AHEAD_MAX * LIMIT):
            storage.report_lac(LedgerId(number), EntryId(5), KEY, lambda _: None)
        assert not storage.has_room
        running = asyncio.create_task(storage.background())
        async with asyncio.timeout(60):
            await storage.wait_for_room()
        bench.faults.paused.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await storage.close()

    simulate(main)


def test_nothing_waits_for_a_checkpoint_that_has_no_room() -> None:
    async def main(bench: Bench) -> None:
        bench.config = MANY_LEDGERS
        storage = await bench.open()
        for number in range(CHECKPOINTS_AHEAD_MAX * LIMIT):
            assert await add(storage, make_run(number, 0, 1)) is Status.OK
        waiting = asyncio.create_task(storage.wait_for_room())
        is_full = True

        async def pause() -> None:
            if is_full:
                raise DiskFullError("index")

        bench.platter.stores["index"].attach(pause, bool)
        with pytest.raises(DiskFullError):
            await storage.checkpoint()
        await waiting
        assert not storage.is_writable
        assert (await storage.fence(LedgerId(1), KEY)).status is Status.OK
        is_full = False
        await storage.checkpoint()
        assert storage.has_room
        await storage.close()

    simulate(main)


def _tracked_of(count: int, make: object) -> int:
    """Return how many more objects the collector scans after `count` calls."""
    assert callable(make)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(count):
        make(number)
    for _ in range(3):  # a tuple is not scanned if its items are not
        gc.collect()
    return len(gc.get_objects()) - before


@pytest.mark.long
def test_ledgers_of_one_batch_are_not_tracked_by_the_garbage_collector() -> None:
    recent = RecentEntries(1 << 30)
    index = Index(MemoryStore(), SMALL, CheckpointMeta(INDEX_VERSION, 0, 0, 0, 0))
    assert _tracked_of(1_000, lambda number: recent.put(make_run(number, 0, 1))) < 100
    assert _tracked_of(1_000, lambda number: index.insert(number, 0, 0, 300 * number, 300)) < 100
    assert index.run_count == 1_000
