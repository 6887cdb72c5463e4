"""Cleaning while the index changes, and while it is slow to store the new places of runs."""

import asyncio
import dataclasses

import pytest

from bookie.index.stored_runs import RunMove
from bookie.log import records
from bookie.storage.cleaning import CleaningRoom
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import Bench, add, entries_of, read, simulate

AMPLE = CleaningRoom(10**9, is_full=False, bytes_per_s=10**6)
LONG_S = 60.0


def test_a_run_that_a_checkpoint_cuts_back_while_it_is_cleaned_is_kept() -> None:
    """A recovery's add replaces the end of a stored run; its beginning stays at its place."""

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 4)) is Status.OK
        for first in range(0, 400, 20):
            assert await add(storage, make_run(8, first, 20)) is Status.OK
        await storage.checkpoint()
        index = storage._index
        move = index.move

        async def move_late(moves: list[RunMove]) -> dict[int, None]:
            await storage.checkpoint()
            return await move(moves)

        index.move = move_late  # type: ignore[method-assign]
        index.insert(7, 3, 5, records.lsn_of(9, 48), 300)  # as an overlapping add leaves it
        await storage._upkeep._cleaner._clean_segments([1], AMPLE)
        index.move = move  # type: ignore[method-assign]
        assert entries_of(await read(storage, 7, 0, 2)) == {i: payload_of(7, i) for i in range(3)}

    simulate(main)


def test_a_cleaned_segment_stays_until_the_new_places_are_stored() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 400, 20):
            assert await add(storage, make_run(8, first, 20)) is Status.OK
        await storage.checkpoint()
        index = storage._index
        move = index.move
        names = set(bench.platter.names)
        missing: list[set[str]] = []

        async def move_late(moves: list[RunMove]) -> dict[int, None]:
            await asyncio.sleep(LONG_S)
            missing.append(names - set(bench.platter.names))
            return await move(moves)

        index.move = move_late  # type: ignore[method-assign]
        await storage._upkeep._cleaner._clean_segments([1], AMPLE)
        assert missing
        assert not any(missing)
        assert names - set(bench.platter.names), "the old segment is removed after the moves"

    simulate(main)


@pytest.mark.parametrize("seed", range(12))
def test_a_storage_that_is_closed_while_it_cleans_has_not_failed(seed: int) -> None:
    """The background work ends before the files and the index that it uses are closed."""

    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(bench.config, clean_live_share_max=0.9)
        storage = await bench.open()
        for first in range(0, 100, 5):
            for ledger_id in (7, 8, 9):
                assert await add(storage, make_run(ledger_id, first, 5, size=60)) is Status.OK
        await storage.checkpoint()
        assert await storage.delete_ledger(LedgerId(8)) is Status.OK
        background = asyncio.create_task(storage.background())
        await asyncio.sleep(bench.rng.random())
        await storage.close()
        (end,) = await asyncio.gather(background, return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError)
        storage = await bench.open()
        for ledger_id in (7, 9):
            found = entries_of(await read(storage, ledger_id, 0, 99))
            assert found == {i: payload_of(ledger_id, i, 60) for i in range(100)}
        await storage.close()

    simulate(main, seed)
