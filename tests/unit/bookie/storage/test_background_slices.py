"""Background work over all segments or all states leaves room for other work in between, and is not
repeated at each start.
"""

import asyncio

import pytest

from bookie.index import stored_states
from bookie.log import replay
from bookie.log.replay import ListedRuns
from bookie.log.segments import Segment, Segments
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import Bench, add, entries_of, read, simulate


def test_a_search_for_lost_runs_lets_cleaning_run_between_segments() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(200):
            for ledger_id in (7, 8):
                assert await add(storage, make_run(ledger_id, first, 1)) is Status.OK
        await storage.checkpoint()
        await storage.delete_ledger(LedgerId(8))
        store = bench.platter.stores["index"]
        mine = [key for key in store.keys if key.startswith(b"r" + bytes(7) + b"\7")]
        store.assign(mine[len(mine) // 2], None)
        for entry_id in range(200):
            await read(storage, 7, entry_id, entry_id)
        assert storage._reader.unproven
        segment_count, cleaning = storage.statistics().segments, storage._upkeep._cleaning
        assert segment_count > 10
        searching = asyncio.create_task(storage._upkeep._rebuilder.search(cleaning))
        turns = freed = 0
        while not storage._upkeep._rebuilder.search_count:
            freed += await storage.clean()
            turns += 1
        assert turns > segment_count / 2
        assert freed
        expected = {number: payload_of(7, number) for number in range(200)}
        assert entries_of(await read(storage, 7, 0, 199)) == expected
        await storage.checkpoint()
        assert entries_of(await read(storage, 7, 0, 199)) == expected
        searching.cancel()
        await storage.close()

    simulate(main)


def test_a_start_does_not_read_the_footers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read_footers: list[int] = []
    list_records, count_records = replay.list_records, replay.count_records

    async def count_and_list(
        segments: Segments, segment: Segment, *, skips_damage: bool = False
    ) -> ListedRuns | None:
        read_footers.append(segment.number)
        return await list_records(segments, segment, skips_damage=skips_damage)

    async def note_and_count(segments: Segments, segment: Segment) -> int:
        read_footers.append(segment.number)
        return await count_records(segments, segment)

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(200):
            assert await add(storage, make_run(7, first, 1, size=100)) is Status.OK
        await storage.checkpoint()
        assert await storage.clean() == 0
        segments = storage._upkeep._parts.segments.by_number
        assert len(segments) > 5
        await storage.checkpoint()
        monkeypatch.setattr(replay, "list_records", count_and_list)
        monkeypatch.setattr(replay, "count_records", note_and_count)
        storage = await bench.reopen(storage)
        assert await storage.clean() == 0
        assert len(read_footers) <= 2, "only of segments that were above the mark"
        await storage.close()

    simulate(main)


def test_ledgers_with_runs_left_are_listed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_states, "PAGE_STATES", 10)

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for ledger_id in range(1, 101):
            assert await add(storage, make_run(ledger_id, 0, 1)) is Status.OK
        await storage.checkpoint()
        for ledger_id in range(1, 101, 2):
            assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
        await storage.checkpoint()
        after: int | None = -1
        found: list[int] = []
        while after is not None:
            page, after = await storage._index.list_runs_left(after, 100)
            assert len(page) <= 10
            found += page
        assert found == list(range(1, 101, 2))
        storage._ledgers.runs_left.clear()
        storage._ledgers.has_more_runs_left = True
        await storage.clean()
        for ledger_id in range(1, 101):
            assert await storage._index.has_runs(ledger_id) is (ledger_id % 2 == 0)
        assert not storage._ledgers.has_more_runs_left
        await storage.close()

    simulate(main)
