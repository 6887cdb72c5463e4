"""A ledger that moved away loses its entries here, stays fenced, and can be repaired back."""

import asyncio
import dataclasses
import random

import pytest

from bookie.index.replica_state import ReplicaState
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.overlapping import Gaps
from bookie.wire.batch import BatchView
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import KEY, SMALL, Bench, add, entries_of, read, simulate

L = LedgerId(7)


async def released(bench: Bench) -> BookieStorage:
    """Return a storage that released ledger 7: some of it stored by a checkpoint, some in
    memory.
    """
    storage = await bench.open()
    await add(storage, make_run(7, 0, 20, lac=5))
    await add(storage, make_run(8, 0, 20))
    await storage.checkpoint()
    await add(storage, make_run(7, 20, 5, lac=15))
    assert await storage.release_ledgers([L]) == {L: Status.OK}
    assert await storage.is_released(L)
    return storage


def test_late_adds_are_fenced_negatives_are_unknown_and_a_repair_is_accepted() -> None:
    async def main(bench: Bench) -> None:
        storage = await released(bench)
        for _ in range(3):
            assert await add(storage, make_run(7, 25, 1)) is Status.FENCED
            assert (await read(storage, 7, 0, 0)).status is Status.UNKNOWN
            snapshot = await storage.fence(L, KEY)
            assert (snapshot.status, snapshot.lac, snapshot.highest_entry_id) == (Status.OK, 15, -1)
            assert await storage.list_ledgers(-1, 10) == ([7, 8], None)
            storage = await bench.reopen(storage)
        assert await add(storage, make_run(7, 3, 7, lac=9), recovery=True) is Status.OK
        assert not await storage.is_released(L)
        for _ in range(2):
            entries = entries_of(await read(storage, 7, 3, 9))
            assert entries == {number: payload_of(7, number) for number in range(3, 10)}
            assert (await read(storage, 7, 2, 2)).status is Status.UNKNOWN
            assert (await read(storage, 7, 10, 10)).status is Status.UNKNOWN
            assert await add(storage, make_run(7, 25, 1)) is Status.FENCED
            storage = await bench.reopen(storage)
        assert await storage.release_ledgers([L]) == {L: Status.OK}
        assert await storage.delete_ledger(L) is Status.OK
        assert await add(storage, make_run(7, 3, 1), recovery=True) is Status.DELETED
        await storage.close()

    simulate(main)


def test_the_bytes_of_a_released_ledger_are_freed() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 200, 10):
            await add(storage, make_run(7, first, 10))
        before = storage.statistics().segment_bytes
        await storage.checkpoint()
        assert await storage.release_ledgers([L]) == {L: Status.OK}
        assert await add(storage, make_run(7, 50, 1), recovery=True) is Status.OK
        for first in range(0, 200, 10):
            await add(storage, make_run(8, first, 1))
        await storage.checkpoint()
        await storage.clean()
        assert storage.statistics().segment_bytes < before / 2
        assert len(entries_of(await read(storage, 7, 50, 50))) == 1
        await storage.close()

    simulate(main)


def test_an_unknown_ledger_is_not_released() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await storage.release_ledgers([L]) == {L: Status.NO_SUCH_LEDGER}
        assert not await storage.is_released(L)
        await storage.close()

    simulate(main)


def test_a_repetition_that_a_release_overtakes_is_stored_again() -> None:
    """The comparison has read the stored entries, and then the release drops them."""

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 300, 3):
            assert await add(storage, make_run(7, first, 3)) is Status.OK
            assert await add(storage, make_run(8, first, 3)) is Status.OK
        await storage.checkpoint()
        compare, releases = storage._overlapping._compare, list[Status]()

        async def compare_and_release(state: ReplicaState, batch: BatchView) -> Gaps | None:
            gaps = await compare(state, batch)
            if not releases:
                releases.extend((await storage.release_ledgers([L])).values())
            return gaps

        storage._overlapping._compare = compare_and_release  # type: ignore[method-assign]
        assert await add(storage, make_run(7, 0, 12), recovery=True) is Status.OK
        assert releases == [Status.OK]
        held = {entry_id: payload_of(7, entry_id) for entry_id in range(12)}
        assert entries_of(await read(storage, 7, 0, 11)) == held
        storage = await bench.reopen(storage)
        assert entries_of(await read(storage, 7, 0, 11)) == held
        await storage.close()

    simulate(main)


async def release_and_crash(seed: int) -> None:
    """Write, release and repair in turn, with crashes at any time; repaired entries stay."""
    loop, rng = simulation_loop(), random.Random(f"released {seed}")
    bench = Bench(seed, dataclasses.replace(SMALL, checkpoint_records=5, hot_ledgers_max=1))
    kept: dict[int, None] = {}
    seen = {"released": False}

    async def work() -> None:
        storage = await bench.open()
        background = asyncio.create_task(storage.background())
        first = 0
        while not background.done():
            if not seen["released"]:
                await add(storage, make_run(7, first, 3))
            entry_id = rng.randrange(40)
            await add(storage, make_run(8, first, 3))
            if await add(storage, make_run(7, entry_id, 1), recovery=True) is Status.OK:
                kept[entry_id] = None
            if rng.random() < 0.1:
                kept.clear()  # released entries may be there until they are removed
                if await storage.release_ledgers([L]) == {L: Status.OK}:
                    seen["released"] = True
            first += 3

    for _ in range(4):
        node, task = loop.spawn(work())
        await asyncio.sleep(rng.random() * 2)
        if task.done():
            task.result()
        loop.kill(node)
        bench.platter.crash(rng)
    storage = await bench.open()
    for entry_id in kept:
        assert entries_of(await read(storage, 7, entry_id, entry_id)) == {
            entry_id: payload_of(7, entry_id)
        }
    if seen["released"]:
        assert await add(storage, make_run(7, 1000, 1)) is Status.FENCED
        assert (await read(storage, 7, 999, 999)).status is Status.UNKNOWN
    assert (await storage.reads.entry_ranges(LedgerId(8), EntryId(0), 10)).status is Status.OK
    await storage.close()


@pytest.mark.parametrize("seed", range(12))
def test_repaired_entries_survive_crashes(seed: int) -> None:
    run_simulation(lambda: release_and_crash(seed), seed)
