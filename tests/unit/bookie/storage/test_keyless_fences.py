"""Fences without a key: only of ledgers without a known key, durable, and for every key (9.14)."""

import asyncio
import dataclasses

from bookie.storage.answers import AccessResult, LedgerSnapshot
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import (
    KEY,
    OTHER_KEY,
    SMALL,
    Bench,
    add,
    entries_of,
    read,
    simulate,
)

L = LedgerId(7)
NOTHING = LedgerSnapshot(Status.OK, EntryId(-1), EntryId(-1), fenced=True)


async def key_of(storage: BookieStorage) -> bytes | None:
    return (await storage.reads.access_of(L)).master_key


async def expect_fenced(storage: BookieStorage) -> None:
    """Check that each key is answered as of a fenced ledger without entries, and none is bound."""
    for key in (KEY, OTHER_KEY):
        assert await add(storage, make_run(7, 0, 2), key=key) is Status.FENCED
        assert (await storage.write_lac(L, EntryId(0), key)).status is Status.FENCED
        assert await storage.fence(L, key) == NOTHING
        assert (await read(storage, 7, 0, 9, key=key)).status is Status.NO_SUCH_ENTRY
    assert await storage.reads.access_of(L) == AccessResult(Status.OK, None)
    assert await storage.fence(L, None) == NOTHING


def test_it_refuses_adds_with_every_key_and_binds_none() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert await storage.fence(L, None) == NOTHING
        await expect_fenced(storage)
        await storage.close()

    simulate(scenario)


def test_it_survives_restarts_checkpoints_and_cleaning() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert await storage.fence(L, None) == NOTHING
        storage = await bench.reopen(storage)
        await expect_fenced(storage)
        for first in range(0, 200, 5):
            assert await add(storage, make_run(1, first, 5)) is Status.OK
        await storage.checkpoint()
        assert await storage.delete_ledger(LedgerId(1)) is Status.OK
        await storage.checkpoint()
        await storage.clean()
        storage = await bench.reopen(storage)
        await expect_fenced(storage)
        await storage.close()

    simulate(scenario)


def test_it_is_durable_before_its_answer() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert await storage.fence(L, None) == NOTHING
        bench.platter.crash(bench.rng)
        await expect_fenced(await bench.open())

    simulate(scenario)


def test_it_waits_for_its_sync() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        bench.faults.paused = released = asyncio.Event()
        fencing = asyncio.create_task(storage.fence(L, None))
        await asyncio.sleep(1)
        assert not fencing.done()
        assert await add(storage, make_run(7, 0, 2)) is Status.FENCED
        bench.faults.paused = None
        released.set()
        assert await fencing == NOTHING
        await storage.close()

    simulate(scenario)


def test_a_cold_ledger_stays_fenced() -> None:
    async def main() -> None:
        storage = await Bench(1, dataclasses.replace(SMALL, hot_ledgers_max=2)).open()
        assert await storage.fence(L, None) == NOTHING
        for ledger_id in range(20, 32):
            assert await add(storage, make_run(ledger_id, 0, 3)) is Status.OK
        await storage.checkpoint()
        assert storage._ledgers.is_cold(7)
        await expect_fenced(storage)
        await storage.close()

    run_simulation(main, 1)


def test_it_is_refused_where_a_key_is_known_and_changes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 2)) is Status.OK
        for _ in range(2):
            refused = await storage.fence(L, None)
            assert (refused.status, refused.fenced) == (Status.UNAUTHORIZED, False)
            assert await key_of(storage) == KEY
            storage = await bench.reopen(storage)
        assert await add(storage, make_run(7, 2, 2)) is Status.OK, "it is not fenced"
        assert await add(storage, make_run(7, 4, 1), key=OTHER_KEY) is Status.UNAUTHORIZED
        await storage.close()

    simulate(scenario)


def test_a_recovery_with_a_key_writes_entries_back_and_binds_its_key() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert await storage.fence(L, None) == NOTHING
        assert await add(storage, make_run(7, 0, 2), recovery=True) is Status.OK
        assert await key_of(storage) == KEY
        assert (await storage.fence(L, None)).status is Status.UNAUTHORIZED
        assert (await storage.fence(L, OTHER_KEY)).status is Status.UNAUTHORIZED
        storage = await bench.reopen(storage)
        assert len(entries_of(await read(storage, 7, 0, 9))) == 2
        assert await add(storage, make_run(7, 2, 2)) is Status.FENCED
        await storage.close()

    simulate(scenario)


def test_fences_with_and_without_a_key_at_the_same_time_are_both_answered() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        bench.faults.paused = released = asyncio.Event()
        without = asyncio.create_task(storage.fence(L, None))
        await asyncio.sleep(1)
        with_key = asyncio.create_task(storage.fence(L, KEY))
        await asyncio.sleep(1)
        assert (without.done(), with_key.done()) == (False, False)
        bench.faults.paused = None
        released.set()
        assert (await without, await with_key) == (NOTHING, NOTHING)
        assert await key_of(storage) == KEY
        await storage.close()

    simulate(scenario)


def test_it_stays_refused_for_a_deleted_ledger() -> None:
    async def scenario(bench: Bench) -> None:
        storage = await bench.open()
        assert await storage.fence(L, None) == NOTHING
        assert await storage.delete_ledger(L) is Status.OK
        assert (await storage.fence(L, None)).status is Status.DELETED
        await storage.close()

    simulate(scenario)
