"""The live bytes that a storage counts in its segments stay correct through crashes."""

import asyncio
import dataclasses
import random

import pytest

from bookie.log import records
from bookie.log.segments import Segment
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import SMALL, Bench, add, entries_of, read, simulate
from tests.unit.bookie.storage.test_storage_crash import LEDGERS, Known, live

HOUR_S = 3600.0
LARGE = dataclasses.replace(SMALL, segment_bytes_max=20_000, checkpoint_log_bytes=10**9)


def below_mark(storage: BookieStorage) -> list[Segment]:
    mark_segment = records.segment_of(storage._index.meta.mark_lsn)
    found = storage._segments.by_number.values()
    return [
        segment for segment in found if segment.number < mark_segment and not segment.is_damaged
    ]


async def live_share(storage: BookieStorage, segment: Segment) -> float:
    """Return the share of a segment that the index names."""
    found = await storage._upkeep._cleaner.live_bytes(segment)
    assert found is not None
    return found / segment.size


async def run_for(storage: BookieStorage, seconds: float) -> None:
    running = asyncio.create_task(storage.background())
    await asyncio.sleep(seconds)
    assert not running.done(), running.exception()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("seed", range(6))
def test_garbage_is_collected_in_the_end_whatever_crashed(seed: int) -> None:
    async def main() -> None:
        loop, rng = simulation_loop(), random.Random(f"live bytes {seed}")
        config = dataclasses.replace(
            SMALL, checkpoint_log_bytes=rng.choice((2_000, 20_000)), clean_interval_s=0.5
        )
        bench = Bench(seed, config)
        model = {ledger_id: Known() for ledger_id in range(LEDGERS)}
        for _ in range(5):
            node, task = loop.spawn(live(bench, model))
            await asyncio.sleep(rng.random() * rng.choice((0.2, 2.0, 4.0)))
            if task.done():
                task.result()
            loop.kill(node)
            bench.platter.crash(rng)
        storage = await bench.open()
        await storage.checkpoint()
        # Without the background's count: the hints are correct from the start.
        while await storage.clean():
            pass
        for segment in below_mark(storage):
            assert await live_share(storage, segment) > 0.45, segment
        await run_for(storage, 120)
        for segment in below_mark(storage):
            assert await live_share(storage, segment) > 0.5, segment
        await storage.close()

    run_simulation(main, seed)


def test_bytes_freed_by_a_deletion_are_known_after_a_crash() -> None:
    async def main(bench: Bench) -> None:
        bench.config = LARGE
        storage = await bench.open()
        for first in range(200):
            for ledger_id in (1, 2, 3):
                assert await add(storage, make_run(ledger_id, first, 1, size=400)) is Status.OK
        await storage.checkpoint()
        for ledger_id in (2, 3):
            await storage.delete_ledger(LedgerId(ledger_id))
        await storage.clean()
        bench.platter.crash(bench.rng)
        storage = await bench.open()
        while await storage.clean():
            pass
        statistics = storage.statistics()
        assert statistics.segment_bytes < 200 * 600 + 3 * LARGE.segment_bytes_max
        for first in range(0, 200, 20):
            assert len(entries_of(await read(storage, 1, first, first + 19))) == 20
        await storage.close()

    simulate(main)


def test_records_that_are_replayed_over_stored_runs_count_once() -> None:
    async def main(bench: Bench) -> None:
        bench.config = LARGE
        storage = await bench.open()
        for first in range(30):
            assert await add(storage, make_run(1, first, 1, size=400)) is Status.OK
        before = storage.statistics().live_bytes
        store = bench.platter.stores["index"]
        store.puts_left = 3  # the runs are stored, the mark is not
        with pytest.raises(Exception, match="no space"):
            await storage.checkpoint()
        store.puts_left = None
        bench.platter.crash(bench.rng)
        storage = await bench.open()
        await storage.checkpoint()
        assert storage.statistics().live_bytes == before
        await storage.close()

    simulate(main)


@pytest.mark.parametrize("error", [-5_000, 5_000])
def test_a_wrong_count_of_an_older_release_is_corrected(error: int) -> None:
    async def main(bench: Bench) -> None:
        bench.config = LARGE
        storage = await bench.open()
        for first in range(60):
            assert await add(storage, make_run(1, first, 1, size=400)) is Status.OK
        await storage.checkpoint()
        before = storage.statistics().live_bytes
        await storage._index.correct_live_bytes(1, error)
        storage = await bench.reopen(storage)
        assert storage.statistics().live_bytes == before + error
        await run_for(storage, HOUR_S)
        assert storage.statistics().live_bytes == before
        storage = await bench.reopen(storage)
        assert storage.statistics().live_bytes == before
        await storage.close()

    simulate(main)
