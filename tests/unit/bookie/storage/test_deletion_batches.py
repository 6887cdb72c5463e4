"""Ledgers that are removed together cost one sync of the log and few updates of the index. An end
of the process and a full disk between any two of these steps leave each ledger removed or whole.
"""

import asyncio
import dataclasses
import random
from collections.abc import Callable
from functools import partial

import pytest

from bookie.files.disk import StoreTransaction
from bookie.index import stored_runs
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import SMALL, Bench, add, entries_of, read, simulate

LEDGERS = [LedgerId(number) for number in range(1, 101)]


def count_updates(bench: Bench) -> list[int]:
    """Return a list that gets an item for each update that deletes runs from now on."""
    store, updates = bench.platter.stores["index"], list[int]()
    update = store.update

    async def count_and_update(
        job: Callable[[StoreTransaction], object], *, keeps_room: bool = False
    ) -> object:
        if isinstance(job, partial) and job.func is stored_runs.delete_runs:
            updates.append(1)
        return await update(job, keeps_room=keeps_room)

    store.update = count_and_update  # type: ignore[method-assign,assignment]
    return updates


@pytest.mark.parametrize("transaction_runs_max", [7, 100])
@pytest.mark.parametrize("is_deletion", [True, False])
def test_a_batch_is_removed_in_few_updates(transaction_runs_max: int, is_deletion: bool) -> None:
    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(SMALL, transaction_runs_max=transaction_runs_max)
        storage = await bench.open()
        for ledger_id in LEDGERS:
            assert await add(storage, make_run(ledger_id, 0, 1)) is Status.OK
        for first in range(10):
            assert await add(storage, make_run(1000, first, 1)) is Status.OK
            assert await add(storage, make_run(LEDGERS[50], 1 + first, 1)) is Status.OK
        await storage.checkpoint()
        syncs = storage.statistics().syncs
        updates = count_updates(bench)
        if is_deletion:
            answers = await asyncio.gather(*map(storage.delete_ledger, LEDGERS))
            assert {*answers} == {Status.OK}
        else:
            assert {*(await storage.release_ledgers(LEDGERS)).values()} == {Status.OK}
        assert storage.statistics().syncs - syncs <= 2
        await storage.clean()
        run_count = len(LEDGERS) + 10
        assert len(updates) <= run_count / transaction_runs_max + 2
        for ledger_id in LEDGERS:
            assert not await storage._index.has_runs(ledger_id)
        assert await storage._index.has_runs(1000)
        await storage.close()

    simulate(main)


DELETED = [LedgerId(number) for number in range(1, 11)]
RELEASED = [LedgerId(number) for number in range(11, 21)]
KEPT = [LedgerId(number) for number in range(21, 31)]
STEPS_MAX = 400
"""More callbacks than a batch, its checkpoint and its cleaning take."""


async def fill(bench: Bench) -> BookieStorage:
    """Return a storage with entries of three kinds of ledgers, in memory and in the index."""
    storage = await bench.open()
    for first in (0, 2, 4):
        for ledger_id in (*DELETED, *RELEASED, *KEPT):
            assert await add(storage, make_run(ledger_id, first, 2)) is Status.OK
        if first < 4:
            await storage.checkpoint()
    return storage


async def remove_some(storage: BookieStorage) -> dict[LedgerId, Status]:
    """Remove ledgers as the collector does; return the answers."""
    answers = await asyncio.gather(*map(storage.delete_ledger, DELETED))
    return dict(zip(DELETED, answers, strict=True)) | await storage.release_ledgers(RELEASED)


async def check_removed(storage: BookieStorage, answers: dict[LedgerId, Status]) -> None:
    """Check that what was answered OK is removed, and that nothing else is lost."""
    for ledger_id in KEPT:
        entries = {entry_id: payload_of(ledger_id, entry_id) for entry_id in range(6)}
        assert entries_of(await read(storage, ledger_id, 0, 5)) == entries
    for ledger_id, status in answers.items():
        if status is Status.OK and ledger_id in DELETED:
            assert await add(storage, make_run(ledger_id, 6, 1)) is Status.DELETED
        elif status is Status.OK:
            assert await storage.is_released(ledger_id)


async def remove_and_crash(seed: int) -> None:
    """End the process after any step of a batch, with a checkpoint and cleaning beside it."""
    loop, rng = simulation_loop(), random.Random(f"batches {seed}")
    bench = Bench(seed, dataclasses.replace(SMALL, transaction_runs_max=7))
    answers: dict[LedgerId, Status] = {}
    begun = asyncio.Event()

    async def disturb(storage: BookieStorage) -> None:
        await asyncio.sleep(rng.random() * 0.2)
        await storage.checkpoint()
        await storage.clean()

    async def work() -> None:
        storage = await fill(bench)
        begun.set()
        disturbing = asyncio.create_task(disturb(storage))
        answers.update(await remove_some(storage))
        await storage.checkpoint()
        await storage.clean()
        await disturbing

    node, working = loop.spawn(work())
    await begun.wait()
    ended = asyncio.Event()
    loop.call_after_steps(node, rng.randrange(STEPS_MAX), ended.set)
    working.add_done_callback(lambda _: ended.set())
    await ended.wait()
    loop.kill(node)
    if rng.random() < 0.5:
        bench.platter.crash(rng)
    else:
        bench.platter.kill(rng)
    storage = await bench.open()
    await check_removed(storage, answers)
    answers = await remove_some(storage)
    assert set(answers.values()) == {Status.OK}
    storage = await bench.reopen(storage)
    await check_removed(storage, answers)
    await storage.checkpoint()
    await storage.clean()
    for ledger_id in (*DELETED, *RELEASED):
        assert not await storage._index.has_runs(ledger_id)
    await storage.close()


@pytest.mark.parametrize("seed", range(30))
def test_an_end_of_the_process_leaves_each_ledger_removed_or_whole(seed: int) -> None:
    run_simulation(lambda: remove_and_crash(seed), seed)


@pytest.mark.parametrize("puts_left", [0, 1, 2, 5])
def test_an_index_without_room_makes_the_batch_fail_and_the_next_one_completes_it(
    puts_left: int,
) -> None:
    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(SMALL, transaction_runs_max=7)
        storage = await fill(bench)
        store = bench.platter.stores["index"]
        store.puts_left = puts_left
        answers = await remove_some(storage)
        assert {answers[ledger_id] for ledger_id in DELETED} == {Status.OK}
        assert {answers[ledger_id] for ledger_id in RELEASED} == {Status.READ_ONLY}
        await check_removed(storage, answers)
        bench.platter.kill(bench.rng)
        store.puts_left = None
        storage = await bench.open()
        await check_removed(storage, answers)
        answers = await storage.release_ledgers(RELEASED)
        assert set(answers.values()) == {Status.OK}
        await check_removed(storage, answers)
        await storage.close()

    simulate(main)
