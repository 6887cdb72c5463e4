"""Ledgers that are removed together cost one sync of the log and few updates of the index."""

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial

import pytest

from bookie.files.index_store import StoreTransaction
from bookie.index import stored_runs
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import SMALL, Bench, add, simulate

LEDGERS = [LedgerId(each) for each in range(1, 101)]


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
