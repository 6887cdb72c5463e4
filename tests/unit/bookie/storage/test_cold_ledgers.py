"""Few ledger states stay in memory, and the other ledgers behave the same."""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from bookie.errors import DiskFailedError
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.opening import KnownDisk
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.simulation.disk import CrashableDisk
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, OTHER_KEY, SMALL, Bench, add, entries_of, read
from tests.until import until

HOT_MAX = 2
LEDGERS = 12


def bench() -> Bench:
    return Bench(1, dataclasses.replace(SMALL, hot_ledgers_max=HOT_MAX))


async def storage_of_cold_ledgers(made: Bench) -> BookieStorage:
    """Return a storage with 12 ledgers of 3 entries, most of them cold."""
    storage = await made.open()
    for ledger_id in range(LEDGERS):
        assert await add(storage, make_run(ledger_id, 0, 3, lac=1)) is Status.OK
    await storage.checkpoint()
    assert len(storage._ledgers.states) <= HOT_MAX
    return storage


def cold_ledger(storage: BookieStorage) -> int:
    return next(number for number in range(LEDGERS) if storage._ledgers.is_cold(number))


def hold_answers_of_the_index(storage: BookieStorage) -> asyncio.Event:
    """Make look-ups of states wait for the event."""
    arrived, look_up = asyncio.Event(), storage._index.stored_states

    async def stored_states(ledger_ids: Sequence[int]) -> list[bytes | None]:
        found = await look_up(ledger_ids)
        await arrived.wait()
        return found

    storage._index.stored_states = stored_states  # type: ignore[method-assign]
    return arrived


def test_few_states_stay_in_memory_and_all_are_counted_and_listed() -> None:
    async def main() -> None:
        storage = await storage_of_cold_ledgers(made := bench())
        for _ in range(2):
            assert storage.ledger_count == LEDGERS
            assert await storage.list_ledgers(-1, 100) == (list(range(LEDGERS)), None)
            assert await storage.list_ledgers(2, 4) == ([3, 4, 5, 6], 6)
            assert await storage.find_held([LedgerId(99), LedgerId(3)]) == [3]
            for ledger_id in range(LEDGERS):
                assert len(entries_of(await read(storage, ledger_id, 0, 2))) == 3
                assert len(storage._ledgers.states) <= HOT_MAX + 1
            storage = await made.reopen(storage)
            assert not storage._ledgers.states, "a start decodes no state"
        await storage.close()

    run_simulation(main, 1)


def test_a_cold_ledger_that_is_not_in_memory_was_seen() -> None:
    async def main() -> None:
        storage = await storage_of_cold_ledgers(bench())
        fenced = LedgerId(cold_ledger(storage))
        assert (await storage.fence(fenced, KEY)).status is Status.OK
        deleted = LedgerId(cold_ledger(storage))
        assert await storage.delete_ledger(deleted) is Status.OK
        await storage.clean()
        for _ in range(4):  # used states are kept once
            for other in range(LEDGERS):
                await read(storage, other, 0, 0)
            await storage.checkpoint()
        assert storage._ledgers.is_cold(fenced)
        assert await add(storage, make_run(fenced, 3, 1)) is Status.FENCED
        storage._ledgers._recent_tombstones.clear()
        assert storage._ledgers.is_cold(deleted)
        assert await add(storage, make_run(deleted, 3, 1), recovery=True) is Status.DELETED
        cold = LedgerId(cold_ledger(storage))
        assert await add(storage, make_run(cold, 3, 1), key=OTHER_KEY) is Status.UNAUTHORIZED
        assert await add(storage, make_run(cold, 0, 3)) is Status.OK
        snapshot = await storage.reads.read_lac(LedgerId(cold_ledger(storage)), KEY)
        assert (snapshot.status, snapshot.lac, snapshot.highest_entry_id) == (Status.OK, 1, 2)
        assert storage.ledger_count == LEDGERS - 1
        await storage.close()

    run_simulation(main, 1)


def test_requests_for_a_cold_ledger_keep_their_order() -> None:
    async def main() -> None:
        storage = await storage_of_cold_ledgers(bench())
        ledger_id = LedgerId(cold_ledger(storage))
        arrived = hold_answers_of_the_index(storage)
        answers: list[tuple[str, Status]] = []

        def note(what: str) -> "asyncio.Future[Status]":
            answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
            answer.add_done_callback(lambda found: answers.append((what, found.result())))
            return answer

        storage.add(
            make_run(ledger_id, 3, 1), recovery=False, master_key=KEY, done=note("first").set_result
        )
        storage.report_lac(ledger_id, EntryId(2), KEY, note("lac").set_result)
        assert storage.queued.accepted_bytes > 0
        fence = asyncio.create_task(storage.fence(ledger_id, KEY))
        await until(lambda: len(storage._cold._waiting[ledger_id]) == 3)
        storage.add(
            make_run(ledger_id, 4, 1), recovery=False, master_key=KEY, done=note("late").set_result
        )
        arrived.set()
        snapshot = await fence
        assert (snapshot.lac, snapshot.highest_entry_id, snapshot.fenced) == (2, 3, True)
        await asyncio.sleep(1)
        assert dict(answers) == {"first": Status.OK, "lac": Status.OK, "late": Status.FENCED}
        assert storage.queued.accepted_bytes == 0
        await storage.close()

    run_simulation(main, 1)


def test_a_state_in_use_is_not_replaced_by_another() -> None:
    async def main() -> None:
        storage = await storage_of_cold_ledgers(bench())
        ledger_id = LedgerId(cold_ledger(storage))
        fencing = asyncio.create_task(storage.fence(ledger_id, KEY))
        await until(lambda: ledger_id in storage._ledgers.states)
        state = storage._ledgers.states[ledger_id]
        state.use_count += 1
        await fencing
        for other in range(LEDGERS):
            await read(storage, other, 0, 0)
        await storage.checkpoint()
        await storage.checkpoint()
        assert storage._ledgers.states[ledger_id] is state
        state.use_count -= 1
        for other in range(LEDGERS):
            await read(storage, other, 0, 0)
        assert storage._ledgers.is_cold(ledger_id)
        await storage.close()

    run_simulation(main, 1)


def test_a_state_that_a_checkpoint_took_stays_in_memory_until_it_is_stored() -> None:
    """Many other states are loaded meanwhile."""

    async def main() -> None:
        storage = await storage_of_cold_ledgers(made := bench())
        fenced = LedgerId(cold_ledger(storage))
        assert (await storage.fence(fenced, KEY)).status is Status.OK
        release, begin = asyncio.Event(), storage._index.store_damaged

        async def store_damaged(numbers: list[int]) -> None:
            await release.wait()
            await begin(numbers)

        storage._index.store_damaged = store_damaged  # type: ignore[method-assign]
        checkpoint = asyncio.create_task(storage.checkpoint())
        for _ in range(3):  # used states are kept once
            for other in range(LEDGERS):
                if other != fenced:
                    await read(storage, other, 0, 0)
        release.set()
        await checkpoint
        storage = await made.reopen(storage)
        assert await add(storage, make_run(fenced, 3, 1)) is Status.FENCED
        await storage.close()

    run_simulation(main, 1)


def test_a_damaged_state_is_unknown_and_stops_the_storage() -> None:
    async def main() -> None:
        storage = await storage_of_cold_ledgers(made := bench())
        ledger_id = cold_ledger(storage)
        background = asyncio.create_task(storage.background())
        key = b"s" + ledger_id.to_bytes(8, "big")
        await storage._index._store.update(lambda t: t.put(key, b"x" + (t.get(key) or b"")[1:]))
        assert await add(storage, make_run(ledger_id, 3, 1)) is Status.UNKNOWN
        with pytest.raises(DiskFailedError, match="damaged"):
            await background
        await storage.close()
        storage = await made.open()
        assert storage.statistics().is_limbo
        await storage.close()

    run_simulation(main, 1)


def test_limbo_reaches_cold_ledgers() -> None:
    async def main() -> None:
        storage = await storage_of_cold_ledgers(made := bench())
        await storage.close()
        disk = CrashableDisk(made.platter, made.rng, made.faults)
        known = KnownDisk("the disk is an old copy")
        storage = await BookieStorage.open(disk, made.config, rng=made.rng, known=known)
        for ledger_id in range(LEDGERS):
            assert await add(storage, make_run(ledger_id, 3, 1)) is Status.FENCED
            assert (await read(storage, ledger_id, 3, 3)).status is Status.UNKNOWN
        storage = await made.reopen(storage)
        assert await add(storage, make_run(5, 3, 1)) is Status.FENCED
        await storage.close()

    run_simulation(main, 1)
