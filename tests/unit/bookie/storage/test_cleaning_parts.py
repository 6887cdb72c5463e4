"""Segments with many records are looked up and rewritten in parts, for any entries."""

import asyncio
import dataclasses
import random
from itertools import pairwise

import pytest

from bookie.index.index import Index
from bookie.index.index_runs import Run
from bookie.log import records
from bookie.log.replay import SAMPLED_ONE_IN, ListedRuns
from bookie.storage import cleaner
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.cleaner import find_named
from bookie.storage.cleaning import CleaningRoom
from bookie.storage.ledgers import Ledgers
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import SMALL, Bench, add, entries_of, read, simulate

LARGE = dataclasses.replace(
    SMALL,
    segment_bytes_max=60_000,
    checkpoint_log_bytes=10**9,
    clean_mean_run_bytes_min=10**6,
    run_bytes_max=300,
)
PART = SAMPLED_ONE_IN


def footer_of(places: list[tuple[int, int]]) -> bytes:
    return b"".join(
        records.footer_run(bytes(make_run(ledger_id, entry_id, 1).data), 10 * number, 10)
        for number, (ledger_id, entry_id) in enumerate(places)
    )


@pytest.mark.parametrize("ledger_count", [1, 3, 2_000])
async def test_parts_are_bounded_ascending_and_complete(ledger_count: int) -> None:
    rng = random.Random(ledger_count)
    places = [(rng.randrange(ledger_count), number) for number in range(3_000)]
    rng.shuffle(places)
    listed = ListedRuns(footer_of(places))
    parts = await listed.parts(4 * SAMPLED_ONE_IN)
    assert len(parts) > 5
    assert max(map(len, parts)) < 12 * SAMPLED_ONE_IN
    found = [[run async for runs in part.slices() for run in runs] for part in parts]
    assert sorted(run for part in found for run in part) == sorted(
        [run async for runs in listed.slices() for run in runs]
    )
    keys = [[(run.ledger_id, run.first_entry_id) for run in part] for part in found if part]
    assert all(max(one) < min(other) for one, other in pairwise(keys))
    assert await listed.parts(3_000) == [listed]


@pytest.mark.parametrize("seed", range(8))
def test_a_segment_cleaned_in_parts_loses_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "PART_RECORDS", PART)
    looked_up: list[int] = []

    async def find(
        ledgers: Ledgers, index: Index, number: int, listed: ListedRuns
    ) -> list[tuple[int, Run]] | None:
        looked_up.append(len(listed))
        return await find_named(ledgers, index, number, listed)

    monkeypatch.setattr(cleaner, "find_named", find)

    async def main(bench: Bench) -> None:
        bench.config = LARGE
        rng = random.Random(f"parts {seed}")
        storage = await bench.open()
        ledger_count = rng.choice((1, 3, 40, 400))
        highest = dict.fromkeys(range(ledger_count), -1)
        for _ in range(900):
            ledger_id = rng.randrange(ledger_count)
            first = max(0, highest[ledger_id] + rng.choice((1, 1, 1, 2, -3)))
            batch = make_run(ledger_id, first, rng.randint(1, 3))
            if await add(storage, batch) is Status.OK:
                highest[ledger_id] = max(highest[ledger_id], int(batch.header.last_entry_id))
        deleted = [each for each in highest if ledger_count > 1 and rng.random() < 0.3]
        for ledger_id in deleted:
            assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
        await storage.checkpoint()
        before = {
            each: [
                entries_of(await read(storage, each, entry_id, entry_id))
                for entry_id in range(highest[each] + 1)
            ]
            for each in highest
        }
        old = dict(storage._segments.by_number)
        mark_segment = records.segment_of(storage._index.meta.mark_lsn)
        for _ in range(12):
            checkpointing = asyncio.create_task(storage.checkpoint())
            await storage.clean()
            await checkpointing
        left = storage._segments.by_number
        assert not [
            n for n, s in old.items() if n < mark_segment and n in left and not s.is_cleaned
        ]
        for _ in range(2):
            for ledger_id, entries in before.items():
                for entry_id, expected in enumerate(entries):
                    found = await read(storage, ledger_id, entry_id, entry_id)
                    assert entries_of(found) == expected
                    assert (found.status is Status.DELETED) == (ledger_id in deleted)
            storage = await bench.reopen(storage)
        await storage.close()

    simulate(main, seed)
    assert looked_up
    assert max(looked_up) <= 4 * PART


def test_a_part_that_does_not_fit_keeps_the_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner, "PART_RECORDS", PART)

    async def main(bench: Bench) -> None:
        bench.config = LARGE
        storage = await bench.open()
        for number in range(600):
            assert await add(storage, make_run(number, 0, 1)) is Status.OK
        await storage.checkpoint()
        segment = storage._segments.by_number[1]
        live_bytes = await storage._upkeep._cleaner.live_bytes(segment)
        assert live_bytes is not None
        assert live_bytes > 30_000
        rng, left = random.Random(1), [live_bytes]
        for _ in range(100):
            room = CleaningRoom(rng.choice((0, 8_000, 12_000)), is_full=True, bytes_per_s=1e9)
            await storage._upkeep._cleaner._clean_segments([1], room)
            if 1 not in storage._segments.by_number:
                break
            assert segment.is_kept
            left.append(await storage._upkeep._cleaner.live_bytes(segment) or 0)
        else:
            pytest.fail("the parts that fit were never moved")
        assert left == sorted(left, reverse=True)
        assert len(set(left)) > 2
        for number in range(600):
            assert (await read(storage, number, 0, 0)).status is Status.OK
        await storage.close()

    simulate(main)


async def with_a_rebuilt_run(bench: Bench) -> BookieStorage:
    """Return a storage whose index has a run of segment 1 twice: stored, and in memory until the
    next checkpoint, as a rebuild leaves it.
    """
    bench.config = LARGE
    storage = await bench.open()
    for number in range(600):
        assert await add(storage, make_run(number, 0, 1)) is Status.OK
    await storage.checkpoint()
    runs = await storage._index.stored_runs(100, 0, 0)
    assert runs is not None
    ((last, first, location, size),) = runs
    assert records.segment_of(location) == 1
    storage._index.insert(100, first, last, location, size)
    return storage


def test_a_part_that_the_index_cannot_account_for_keeps_the_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cleaner, "PART_RECORDS", PART)
    room = CleaningRoom(10**9, is_full=False, bytes_per_s=1e9)

    async def main(bench: Bench) -> None:
        storage = await with_a_rebuilt_run(bench)
        for is_kept in (True, False):
            await storage._upkeep._cleaner._clean_segments([1], room)
            assert (1 in storage._segments.by_number) == is_kept
            for number in range(600):
                assert (await read(storage, number, 0, 0)).status is Status.OK
            await storage.checkpoint()
        await storage.close()

    simulate(main)


def test_a_damaged_segment_that_is_not_accounted_for_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing in it is live for what the counters say: each pass would read all of it again."""
    monkeypatch.setattr(cleaner, "PART_RECORDS", PART)
    room = CleaningRoom(10**9, is_full=False, bytes_per_s=1e9)

    async def main(bench: Bench) -> None:
        storage = await with_a_rebuilt_run(bench)
        parts, segment = storage._upkeep._cleaner, storage._segments.by_number[1]
        segment.is_damaged = True
        await parts._clean_segments([segment.number], room)
        segment.live_bytes = 0
        assert segment.number in storage._segments.by_number
        parts.retry_kept()
        assert segment.number not in parts.plan(room).dead
        await storage.close()

    simulate(main)
