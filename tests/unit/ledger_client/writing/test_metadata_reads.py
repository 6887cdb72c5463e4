"""Metadata operations of a client whose in-sync ledgers all refuse appends (rule 11.7)."""

import asyncio
from collections import Counter
from functools import partial
from itertools import pairwise
from random import Random
from typing import cast

import pytest

from ledger_client import ClientConfig, LedgerClient, Quorum
from ledger_client.digest import LedgerKeys
from ledger_client.protocol import append_events as e
from ledger_client.writing.pacing import (
    READ_DELAY_MAX_S,
    MetadataReads,
)
from ledger_client.writing.watchdog import WATCH_PERIOD_S, Watchdog
from ledger_client.writing.writer import LedgerWriter
from ledger_client.writing.writer_watch import WriterWatch
from metadata.ids import BookieId, LedgerId
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import NoFaults, StoreCall
from metadata.store.memory_server import MemoryMetadataServer
from quire.server.overriding import override
from tests.simulation.loop import run_simulation
from tests.support.sample_ledgers import ledger_of

COUNT = 10_000
CONFIG = ClientConfig(spare_after_s=1000.0)
PER_S, AT_ONCE = CONFIG.metadata_reads_per_s, CONFIG.metadata_reads_at_once
CHECKED_COUNT = 200
CHECKED_S = 40
WRITER_COUNT = 1_000
"""A client with COUNT writers takes a minute to simulate."""
MEMBERS = (BookieId("bookie-0"), BookieId("bookie-1"))
SECONDS = 3
OTHER_OPERATIONS = 2
"""Per second: the client looks for the addresses of members that are away."""
ALL_READ_S = COUNT / PER_S + 1


class CountingFaults(NoFaults):
    """Counts the operations of the metadata service, and how many run at a time."""

    def __init__(self) -> None:
        self.by_second: Counter[int] = Counter()
        self.running = 0
        self.running_max = 0

    @override
    async def before(self, call: StoreCall) -> None:
        self.by_second[int(asyncio.get_running_loop().time())] += 1
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        await super().before(call)
        self.running -= 1


class Idle:
    """Watchdog that checks nothing: the test does."""

    def activate(self, writer: object, due_s: float) -> None:
        """Do nothing."""


def new_reads() -> MetadataReads:
    return MetadataReads(Random(1), PER_S, AT_ONCE)


async def refused_writers(
    client: LedgerClient, count: int, watchdog: Watchdog
) -> list[LedgerWriter]:
    """Open ledgers without enough members that are up."""
    services = await client._session.services()
    opened = [
        ledger_of((0, MEMBERS), ledger_id=number, quorum=Quorum.in_sync(2, 2).spec)
        for number in range(count)
    ]
    versions = [await services.ledgers.create(ledger_metadata) for ledger_metadata in opened]
    writers = []
    for metadata, version in zip(opened, versions, strict=True):
        writer = LedgerWriter(
            metadata=metadata,
            version=version,
            keys=LedgerKeys.of(metadata, b""),
            services=services.for_writers,
            watchdog=watchdog,
            observe=lambda _: None,
            on_closed=lambda _: None,
        )
        failed = e.BookieFailed(MEMBERS[0], e.FailureKind.SUSPECTED, "silent")
        writer._shell.dispatch(failed)
        assert not writer.is_usable
        writers.append(writer)
    return writers


def test_metadata_reads_of_refused_ledgers_are_few_and_spread() -> None:
    faults = CountingFaults()

    async def main() -> LedgerClient:
        loop = asyncio.get_running_loop()
        store = MemoryMetadataStore(MemoryMetadataServer(faults))
        client = LedgerClient.from_parts(
            store, rng=Random(1), wall_clock_ms=lambda: 0, config=CONFIG
        )
        writers = await refused_writers(client, WRITER_COUNT, cast("Watchdog", Idle()))

        async def look() -> None:
            """Check every writer in each second, all at the same time."""
            for _ in range(SECONDS):
                for writer in writers:
                    writer._watch.check(loop.time())
                await asyncio.sleep(1)

        faults.by_second.clear()
        await look()
        assert max(faults.by_second.values()) <= PER_S + OTHER_OPERATIONS
        assert faults.running_max <= AT_ONCE + OTHER_OPERATIONS
        await asyncio.sleep(WRITER_COUNT / PER_S)
        read_count = faults.by_second.total()
        seconds = SECONDS + WRITER_COUNT / PER_S
        assert WRITER_COUNT <= read_count <= WRITER_COUNT + OTHER_OPERATIONS * seconds

        faults.by_second.clear()
        await look()
        assert faults.by_second.total() <= OTHER_OPERATIONS * SECONDS  # the watches are sufficient
        return client  # to close its writers takes long

    run_simulation(main, 1)


def test_refused_writers_are_checked_about_once_a_second_at_times_that_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked_at: list[float] = []
    check = WriterWatch.check

    def noted(watch: WriterWatch, now: float) -> float | None:
        checked_at.append(now)
        return check(watch, now)

    monkeypatch.setattr(WriterWatch, "check", noted)

    async def main() -> LedgerClient:
        store = MemoryMetadataStore(MemoryMetadataServer())
        client = LedgerClient.from_parts(
            store, rng=Random(1), wall_clock_ms=lambda: 0, config=CONFIG
        )
        watchdog = (await client._session.services()).watchdog
        for writer in await refused_writers(client, CHECKED_COUNT, watchdog):
            writer._watch.wake()  # all at the same time
        await asyncio.sleep(CHECKED_S)
        return client

    run_simulation(main, 1)

    assert CHECKED_COUNT * CHECKED_S / 1.5 < len(checked_at) < CHECKED_COUNT * CHECKED_S * 1.5
    late = Counter(int(at / WATCH_PERIOD_S) for at in checked_at if at > CHECKED_S / 2)
    assert max(late.values()) < CHECKED_COUNT / 4


def test_reads_that_are_wanted_at_the_same_time_are_spread() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        reads, started_at_s = new_reads(), list[float]()

        async def read() -> None:
            started_at_s.append(loop.time())

        for _ in range(2):  # two calls of one watch for one change
            for number in range(COUNT):
                reads.want(LedgerId(number), read)
        reads.cancel(LedgerId(0))
        await asyncio.sleep(ALL_READ_S)
        await reads.aclose()
        return started_at_s

    started_at_s = run_simulation(main, 1)

    assert len(started_at_s) == COUNT - 1
    gaps = [after - before for before, after in pairwise(started_at_s)]
    assert min(gaps) > 0.99 / PER_S
    assert started_at_s[0] > 0


def test_a_limited_number_of_slow_reads_is_under_way() -> None:
    read_s = 2 * AT_ONCE / PER_S  # longer than the rate alone takes to start the limit
    running: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reads, under_way = new_reads(), dict[int, float]()

        async def read(number: int) -> None:
            under_way[number] = loop.time()
            running.append(len(under_way))
            await asyncio.sleep(read_s)
            del under_way[number]

        for number in range(3 * AT_ONCE):
            reads.want(LedgerId(number), partial(read, number))
        await asyncio.sleep(4 * read_s + READ_DELAY_MAX_S)
        await reads.aclose()

    run_simulation(main, 1)

    assert len(running) == 3 * AT_ONCE
    assert max(running) == AT_ONCE


def test_few_reads_start_soon_and_at_random_times() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        reads, started_at_s = new_reads(), list[float]()

        async def read() -> None:
            started_at_s.append(loop.time())

        for number in range(10):
            reads.want(LedgerId(number), read)
        await asyncio.sleep(READ_DELAY_MAX_S + 0.1)
        return started_at_s

    started_at_s = run_simulation(main, 1)

    assert len(started_at_s) == 10
    assert started_at_s[0] >= READ_DELAY_MAX_S / 2
    assert started_at_s[-1] - started_at_s[0] > READ_DELAY_MAX_S / 4


def test_no_read_starts_after_the_end() -> None:
    async def main() -> None:
        reads = new_reads()

        async def read() -> None:
            raise AssertionError("it started")

        reads.want(LedgerId(1), read)
        await reads.aclose()
        await asyncio.sleep(2 * READ_DELAY_MAX_S)

    run_simulation(main, 1)


def test_a_read_wanted_again_after_a_cancel_waits_again() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        reads, started_at_s = new_reads(), list[float]()

        async def read() -> None:
            started_at_s.append(loop.time())

        for number in range(10):
            reads.want(LedgerId(number), read)
            reads.cancel(LedgerId(number))
        await asyncio.sleep(READ_DELAY_MAX_S / 2)  # the cancelled reads become due from now on
        for number in range(10):
            reads.want(LedgerId(number), read)
        await asyncio.sleep(2 * READ_DELAY_MAX_S)
        return started_at_s

    started_at_s = run_simulation(main, 1)

    assert len(started_at_s) == 10
    assert started_at_s[0] >= READ_DELAY_MAX_S
