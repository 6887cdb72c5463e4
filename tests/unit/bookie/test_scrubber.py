"""Scrub of one storage: pace, reports, restarts, a metadata service that is away (9.12)."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from bookie.scrubber import Scrubber
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.errors import StoreUnavailableError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.repair.scrub import BadRange, ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings_store import RepairSettingsStore
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from quire.server.server_log import ServerLog
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import Bench, add

BOOKIE = BookieId("bookie-a")
LEDGERS, RUN_BYTES = 5, 1_000


@dataclass
class World:
    """One storage with a scrubber, and an outside view of the metadata."""

    bench: Bench
    storage: BookieStorage
    store: MemoryMetadataStore
    rng: random.Random

    @property
    def scrubs(self) -> ScrubStore:
        return ScrubStore(self.store, self.rng)

    async def set(self, **values: int) -> None:
        await RepairSettingsStore(self.store, self.rng).change(**values)

    async def record(self) -> ScrubRecord:
        return await self.scrubs.get(BOOKIE)

    def scrubber(self) -> Scrubber:
        now_s = asyncio.get_running_loop().time
        return Scrubber(
            self.store,
            self.rng,
            BOOKIE,
            self.storage,
            lambda: 10**9 + int(now_s() * 1000),
            ServerLog(now_s),
        )

    async def scrub_for(self, seconds: float) -> None:
        """Run a scrubber for some time, as one process of the bookie."""
        running = asyncio.create_task(self.scrubber().run())
        await asyncio.sleep(seconds)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def play(story: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        storage = await bench.open()
        for ledger_id in range(LEDGERS):
            assert await add(storage, make_run(ledger_id, 0, 1, size=RUN_BYTES)) is Status.OK
        store = MemoryMetadataStore(MemoryMetadataServer())
        await story(World(bench, storage, store, random.Random(1)))
        await storage.close()

    run_simulation(main, 1, until_s=10**6)


def test_a_scrub_checks_everything_at_its_rate() -> None:
    async def story(world: World) -> None:
        await world.set(scrub_bytes_per_s=64 * 1024, scrub_requested_ms=5)
        await world.scrub_for(LEDGERS - 1.5)  # each read counts 64 KiB
        assert (await world.record()).ended_ms == 0
        assert 0 < world.storage.statistics().checked_entries < LEDGERS
        await world.scrub_for(LEDGERS)
        record = await world.record()
        assert (record.served_ms, record.position) == (5, None)
        assert record.ended_ms > record.began_ms

    play(story)


def test_a_restart_continues_from_the_last_report() -> None:
    async def story(world: World) -> None:
        await world.set(scrub_bytes_per_s=64, scrub_requested_ms=5)  # a minute for each read
        await world.scrub_for(150)
        begun = await world.record()
        assert begun.position is not None
        assert begun.position.ledger_id > 0
        before = world.storage.statistics().checked_entries
        await world.scrub_for(3_600)
        assert world.storage.statistics().checked_entries - before <= LEDGERS - 1
        record = await world.record()
        assert (record.began_ms, record.position) == (begun.began_ms, None)

    play(story)


def test_damage_is_reported_while_nothing_is_checked_and_known_after_a_restart() -> None:
    async def story(world: World) -> None:
        await world.set(scrub_bytes_per_s=0)
        running = asyncio.create_task(world.scrubber().run())
        await asyncio.sleep(1)
        world.storage.bad_ranges.note(3, 0, 0)
        await asyncio.sleep(1)
        running.cancel()
        record = await world.record()
        assert [bad_range.ledger_id for bad_range in record.bad] == [3]
        world.storage.bad_ranges.drop(3)
        await world.scrub_for(1)
        assert [bad_range.ledger_id for bad_range in world.storage.bad_ranges.report()] == [3]
        await world.set(scrub_bytes_per_s=10**6, scrub_requested_ms=5)
        await world.scrub_for(5)
        assert (await world.record()).bad == (), "it was read again, and is good"

    play(story)


def test_damage_of_ledgers_that_are_gone_is_dropped() -> None:
    async def story(world: World) -> None:
        bad = (BadRange(LedgerId(99), EntryId(0), EntryId(0)),)
        await world.scrubs.put(BOOKIE, ScrubRecord(bad=bad))
        await world.set(scrub_every_s=0)
        running = asyncio.create_task(world.scrubber().run())
        await asyncio.sleep(5)
        assert (await world.record()).bad == ()
        world.storage.bad_ranges.note(98, 0, 0)  # a read failed while it was deleted
        await world.scrubs.request(BOOKIE, 7)
        await asyncio.sleep(5)
        assert (await world.record()).bad == ()
        running.cancel()

    play(story)


def test_a_request_for_one_bookie_is_followed_at_once() -> None:
    async def story(world: World) -> None:
        await world.set(scrub_every_s=0)
        running = asyncio.create_task(world.scrubber().run())
        await asyncio.sleep(100)
        assert (await world.record()).began_ms == 0
        await world.scrubs.request(BOOKIE, 7)
        await asyncio.sleep(10)
        record = await world.record()
        assert (record.requested_ms, record.served_ms, record.position) == (7, 7, None)
        assert record.ended_ms > 0
        await asyncio.sleep(10**5)
        assert await world.record() == record, "once for each request"
        running.cancel()

    play(story)


def test_a_metadata_service_that_is_away_delays_the_scrub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = [StoreUnavailableError("nowhere", "for a test") for _ in range(3)]
    get = ScrubStore.get

    async def get_later(scrubs: ScrubStore, bookie_id: BookieId) -> ScrubRecord:
        if failures:
            raise failures.pop()
        return await get(scrubs, bookie_id)

    async def story(world: World) -> None:
        await world.set(scrub_bytes_per_s=10**6, scrub_requested_ms=5)
        monkeypatch.setattr(ScrubStore, "get", get_later)
        await world.scrub_for(60)
        assert not failures
        assert (await world.record()).served_ms == 5

    play(story)


def test_scrubs_repeat() -> None:
    async def story(world: World) -> None:
        await world.set(scrub_every_s=5_000)
        await world.scrub_for(3_700)
        first = await world.record()
        assert first.ended_ms > 0, "the first one begins within an hour"
        await world.scrub_for(5_000)
        second = await world.record()
        assert second.began_ms == first.began_ms + 5_000_000
        assert replace(second, began_ms=0, ended_ms=0) == replace(first, began_ms=0, ended_ms=0)

    play(story)
