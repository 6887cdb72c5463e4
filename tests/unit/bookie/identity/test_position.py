"""The end of the log is recorded in the metadata, by one process at a time (2.6, 2.7, 10.5)."""

import asyncio
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from bookie.errors import PositionTakenError
from bookie.identity import position
from bookie.identity.position import PositionCallbacks, PositionClaim, PositionKeeper
from bookie.log.log import Log
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId, Version
from metadata.paths import position_path
from metadata.registry.positions import (
    NO_POSITION,
    POSITION_CODEC,
    PositionRecord,
    PositionStore,
    StoredPosition,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.server.server_log import ServerLog
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import Bench as StorageBench
from tests.support.bookie.storage_fixture import add, simulate
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until

BOOKIE = BookieId("bookie-test")
PATH = position_path(BOOKIE)
STOPPED_MS = 1_700_000_000_000
RECORD = PositionRecord(b"r" * 16, 7, files=("1@2", "3", "4"), lock="boot:1:2")


@dataclass
class Written:
    durable_lsn: int = 100
    written_bytes: int = 0


class Bench:
    """One keeper, and the values that its callbacks receive."""

    def __init__(self, interval_s: float = 0.005) -> None:
        self.faults = ScriptedFaults()
        self.server = MemoryMetadataServer(self.faults)
        self.store = MemoryMetadataStore(self.server)
        self.positions = PositionStore(self.store)
        self.written = Written()
        self.taken: list[PositionTakenError] = []
        self.recorded: list[Version] = []
        self.moved = 0
        self.is_newest = False
        self.keeper = self.make(StoredPosition(None, NO_POSITION), b"a" * 16, interval_s)

    def make(
        self,
        known: StoredPosition,
        run: bytes,
        interval_s: float = 0.005,
        *,
        written: Log | None = None,
    ) -> PositionKeeper:
        loop = asyncio.get_running_loop()
        return PositionKeeper(
            self.store,
            PositionClaim(BOOKIE, run, ("1", "2", "3"), "boot:1:2"),
            known,
            written or self.written,
            interval_s=interval_s,
            rng=random.Random(1),
            log=ServerLog(loop.time),
            callbacks=PositionCallbacks(self.taken.append, self.recorded.append, self._note_moved),
        )

    async def _note_moved(self) -> bool:
        self.moved += 1
        return self.is_newest

    async def stored(self) -> PositionRecord:
        record = (await self.positions.get(BOOKIE)).record
        assert record is not None
        return record

    async def until_recorded(self, lsn: int) -> None:
        await until(lambda: self.keeper._recorded_lsn == lsn and not self.keeper.unrecorded_bytes)
        assert self.keeper.age_s == 0.0
        assert (await self.stored()).end_lsn == lsn


async def running(work: Callable[[Bench], object]) -> None:
    """Run a claimed keeper during `work`."""
    bench = Bench()
    await bench.keeper.claim()
    task = asyncio.create_task(bench.keeper.run())
    try:
        result = work(bench)
        assert asyncio.iscoroutine(result)
        await result
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bench.store.aclose()


def test_a_position_is_read_as_it_was_written() -> None:
    assert POSITION_CODEC.unpack(PATH, POSITION_CODEC.pack("a position", RECORD)) == RECORD


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x91\x01",
        POSITION_CODEC.pack("a position", RECORD).replace(
            b"\xc4\x10" + RECORD.incarnation, b"\xc4\x00"
        ),
    ],
)
def test_other_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        POSITION_CODEC.unpack(PATH, value)


async def test_the_first_claim_makes_the_node() -> None:
    bench = Bench()
    await bench.keeper.claim()
    found = await bench.stored()
    assert (found.incarnation, found.end_lsn, found.is_orderly) == (b"a" * 16, 100, False)


async def test_of_two_starts_the_first_wins() -> None:
    bench = Bench()
    known = await bench.positions.get(BOOKIE)
    second = bench.make(known, b"b" * 16)
    await bench.keeper.claim()
    with pytest.raises(PositionTakenError):
        await second.claim()
    assert len(bench.taken) == 1
    assert (await bench.stored()).incarnation == b"a" * 16


async def test_the_end_is_recorded_while_it_grows() -> None:
    async def work(bench: Bench) -> None:
        for lsn in (150, 200):
            bench.written.durable_lsn = lsn
            bench.written.written_bytes += 50
            assert bench.keeper.unrecorded_bytes == 50
            await bench.until_recorded(lsn)
        version = bench.keeper.version
        await asyncio.sleep(0.05)
        assert bench.keeper.version == version, "an idle log is not recorded again"

    await running(work)


async def test_unavailable_service_stops_only_the_recording() -> None:
    async def work(bench: Bench) -> None:
        bench.faults.is_away = True
        bench.written.durable_lsn, bench.written.written_bytes = 300, 200
        await asyncio.sleep(0.05)
        assert bench.keeper.age_s > 0.0
        assert bench.keeper.unrecorded_bytes == 200
        bench.faults.is_away = False
        await bench.until_recorded(300)
        assert not bench.taken

    await running(work)


@pytest.mark.parametrize(
    "acts", [["lost"], ["dropped"], ["refused"], ["dropped", "lost"], ["lost", "lost", "dropped"]]
)
async def test_an_unknown_outcome_is_decided_by_reading_back(acts: list[str]) -> None:
    async def work(bench: Bench) -> None:
        bench.faults.acts = list(acts)
        for lsn in (300, 400, 500, 600):
            bench.written.durable_lsn = lsn
            await bench.until_recorded(lsn)
        assert not bench.taken
        assert not bench.moved

    await running(work)


@pytest.mark.parametrize("run", [b"a" * 16, b"b" * 16], ids=["a clone", "another process"])
async def test_conflict_is_answered_in_the_same_iteration(run: bytes) -> None:
    async def work(bench: Bench) -> None:
        stored = await bench.positions.get(BOOKIE)
        assert stored.record is not None
        other = replace(stored.record, incarnation=run, end_lsn=777)
        await bench.positions.put(BOOKIE, other, stored.version)
        bench.written.durable_lsn = 300
        await until(lambda: bool(bench.taken))
        assert await bench.stored() == other

    await running(work)


async def test_an_idle_bookie_notices_after_a_reconnect() -> None:
    async def work(bench: Bench) -> None:
        stored = await bench.positions.get(BOOKIE)
        assert stored.record is not None
        other = MemoryMetadataStore(bench.server)
        bench.store.suspend()
        taken = replace(stored.record, incarnation=b"b" * 16)
        await PositionStore(other).put(BOOKIE, taken, stored.version)
        bench.store.resume()
        await until(lambda: bool(bench.taken))
        await other.aclose()

    await running(work)


async def test_older_node_does_not_stop_the_bookie() -> None:
    async def work(bench: Bench) -> None:
        bench.written.durable_lsn = 300
        await bench.until_recorded(300)
        await bench.store.delete(PATH, bench.keeper.version)
        old = replace(RECORD, incarnation=b"a" * 16, end_lsn=50)
        await bench.positions.put(BOOKIE, old, NO_POSITION)
        bench.written.durable_lsn = 400
        await until(lambda: bench.moved == 1)
        await bench.until_recorded(400)
        assert not bench.taken

    await running(work)


@pytest.mark.parametrize("writes", [1, 9])
async def test_a_process_goes_on_when_what_it_left_returns(writes: int) -> None:
    async def work(bench: Bench) -> None:
        for lsn in (200, 300, 400):
            bench.written.durable_lsn = lsn
            await bench.until_recorded(lsn)
        newest = copy.deepcopy(bench.server.tree)
        await bench.store.delete(PATH, bench.keeper.version)
        for lsn in range(500, 500 + writes):
            bench.written.durable_lsn = lsn
            await bench.until_recorded(lsn)
        assert bench.moved == 1
        bench.server.tree, bench.is_newest = newest, True
        bench.written.durable_lsn = 900
        await bench.until_recorded(900)
        assert bench.moved == 2
        assert not bench.taken
        assert bench.recorded[-1] == bench.keeper.version == 4

    await running(work)


@pytest.mark.parametrize("writes", [2, 9])
async def test_a_process_that_began_on_an_older_service_ends_when_the_newest_returns(
    writes: int,
) -> None:
    async def work(bench: Bench) -> None:
        newest = copy.deepcopy(bench.server.tree)
        original = PositionStore(MemoryMetadataStore(bench.server))
        for version in range(5):
            await original.put(BOOKIE, RECORD, Version(version))
        newest, bench.server.tree = bench.server.tree, newest
        for lsn in range(500, 500 + writes):
            bench.written.durable_lsn = lsn
            await bench.until_recorded(lsn)
        bench.server.tree, bench.is_newest = newest, True
        bench.written.durable_lsn = 900
        await until(lambda: bool(bench.taken))
        assert await bench.stored() == RECORD

    await running(work)


async def test_missing_node_is_created_again() -> None:
    async def work(bench: Bench) -> None:
        await bench.store.delete(PATH, bench.keeper.version)
        bench.written.durable_lsn = 400
        await until(lambda: bench.moved == 1)
        await bench.until_recorded(400)

    await running(work)


@pytest.mark.parametrize("acts", [[], ["lost"], ["dropped"]])
async def test_an_orderly_stop_is_recorded_last(acts: list[str]) -> None:
    bench = Bench()
    await bench.keeper.claim()
    bench.written.durable_lsn = 900
    bench.faults.acts = acts
    assert await bench.keeper.record_orderly(STOPPED_MS)
    found = await bench.stored()
    assert (found.end_lsn, found.stopped_ms) == (900, STOPPED_MS)


async def test_the_next_start_replaces_an_orderly_stop() -> None:
    bench = Bench()
    await bench.keeper.claim()
    await bench.keeper.record_orderly(STOPPED_MS)
    bench.keeper = bench.make(await bench.positions.get(BOOKIE), b"b" * 16)
    await bench.keeper.claim()
    found = await bench.stored()
    assert (found.incarnation, found.stopped_ms) == (b"b" * 16, None)


async def test_a_silent_metadata_service_does_not_hold_up_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(position, "ORDERLY_S_MAX", 0.05)
    bench = Bench()
    await bench.keeper.claim()
    bench.faults.acts = ["refused"] * 1_000
    assert not await bench.keeper.record_orderly(STOPPED_MS)
    bench.faults.acts = []
    assert not (await bench.stored()).is_orderly


async def test_orderly_stop_does_not_overwrite_another_process() -> None:
    bench = Bench()
    await bench.keeper.claim()
    other = replace(RECORD, incarnation=b"b" * 16)
    await bench.positions.put(BOOKIE, other, Version(0))
    assert not await bench.keeper.record_orderly(STOPPED_MS)
    assert await bench.stored() == other


def test_only_what_is_durable_is_recorded() -> None:
    async def work(made: StorageBench) -> None:
        storage = await made.open()
        bench = Bench()
        bench.keeper = bench.make(StoredPosition(None, NO_POSITION), b"a" * 16, written=storage.log)
        await bench.keeper.claim()
        task = asyncio.create_task(bench.keeper.run())
        answered = asyncio.create_task(add(storage, make_run(1, 0, 3)))
        await asyncio.wait({answered})
        end_lsn = storage.log.durable_lsn
        made.faults.paused = asyncio.Event()
        answered = asyncio.create_task(add(storage, make_run(1, 3, 3)))
        await asyncio.sleep(1.0)
        assert (await bench.stored()).end_lsn == end_lsn, "the sync is still running"
        made.faults.paused.set()
        await answered
        await asyncio.sleep(1.0)
        assert (await bench.stored()).end_lsn == storage.log.durable_lsn > end_lsn
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await storage.close()

    simulate(work)
