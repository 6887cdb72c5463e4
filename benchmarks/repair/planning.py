"""Benchmark of the auditor: the time to plan the departure of one of ten bookies, and its memory.

`departure`: 100,000 closed ledgers (`--ledgers`) in a metadata store in memory, or in a real
ZooKeeper (`--zookeeper`), and ten registered bookies. An auditor of this process has read all
ledgers; one bookie loses its registration. The time is that from the record that stores it as lost
to the last published job: of at most 1,000, while the others are counted. `index`: the auditor's
index of 1,000,000 ledgers (`--index-ledgers`) on ten bookies (`--index-bookies`), and the memory of
a process with it, which `benchmarks.repair.index_load` is.

Targets: <= 10 s; <= 200 MB.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random, SystemRandom
from time import perf_counter, time
from typing import Final

from benchmarks.repair.index_load import bookie_ids, resident_mb, sample_ledgers
from benchmarks.runner import Bench, run
from ledger_client.config import ClientConfig
from metadata.ids import BookieId
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.cluster import create_cluster, ensure_cluster, open_cluster_store
from metadata.registry.cookies import CookieRecord, CookieStore
from metadata.registry.registrar import BookieRegistrar
from metadata.registry.registration import BookieRegistration
from metadata.repair.job_store import JOBS_MAX, JobStore
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.settings_store import RepairSettingsStore
from metadata.repair.status_store import StatusStore
from metadata.store.interface import MetadataStore
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from quire.local_cluster import LocalCluster
from quire.repair.repair_process import RepairProcess, RepairRoles

BOOKIES: Final = 10
PLANNED_S_WANTED: Final = 10.0
MEMORY_MB_WANTED: Final = 200.0
LOST_AFTER_S: Final = 1
LOOK_S: Final = 0.02
PHASE_S_MAX: Final = 1_200.0
CREATED_AT_ONCE: Final = 200
DEPARTURE: Final = "departure"
INDEX: Final = "index"


@asynccontextmanager
async def _stores(bench: Bench) -> AsyncIterator[tuple[MetadataStore, MetadataStore]]:
    """Yield two sessions with one metadata service: of the auditor, and of everything else."""
    rng = Random(1)
    async with AsyncExitStack() as ends:
        if not bench.options.zookeeper:
            server = MemoryMetadataServer()
            stores = MemoryMetadataStore(server), MemoryMetadataStore(server)
            await ensure_cluster(stores[0], rng)
            for store in stores:
                ends.push_async_callback(store.aclose)
            yield stores
            return
        directory = ends.enter_context(bench.subdirectory())
        cluster = await ends.enter_async_context(LocalCluster(0, directory))
        uri = cluster.metadata_uri
        await create_cluster(uri, rng)
        first, second = [await open_cluster_store(uri, rng=rng) for _ in range(2)]
        ends.push_async_callback(first.aclose)
        ends.push_async_callback(second.aclose)
        yield first, second


async def _register(store: MetadataStore, bookies: list[BookieId]) -> list[BookieRegistrar]:
    """Register bookies that do not exist, and store their cookies."""
    registrars: list[BookieRegistrar] = []
    for bookie_id in bookies:
        await CookieStore(store).create(CookieRecord(bookie_id, bytes(16), 0, 1, bytes(32)))
        registration = BookieRegistration(bookie_id, "127.0.0.1", 1)
        registrars.append(BookieRegistrar(store, registration, Random(str(bookie_id))))
        await registrars[-1].start()
    return registrars


async def _create(store: MetadataStore, count: int, bookies: list[BookieId]) -> None:
    ledgers = LedgerStore(store, Random(2), _wall_clock_ms)
    left = sample_ledgers(count, bookies, Random(1))

    async def worker() -> None:
        for ledger in left:
            await ledgers.create(ledger)

    await asyncio.gather(*(worker() for _ in range(CREATED_AT_ONCE)))


async def _until(is_true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PHASE_S_MAX):
        while True:
            if await is_true():
                return
            await asyncio.sleep(LOOK_S)


async def _measure_departure(bench: Bench) -> None:
    count, bookies = bench.size(int(bench.options.ledgers), 3_000), bookie_ids(BOOKIES)
    async with _stores(bench) as (own, other):
        registrars = await _register(other, bookies)
        start = perf_counter()
        await _create(other, count, bookies)
        create_s = perf_counter() - start
        await RepairSettingsStore(other, Random(3)).change(lost_after_s=LOST_AFTER_S)
        auditor = RepairProcess(
            own,
            process_id="repair-planning",
            rng=Random(4),
            secret_rng=SystemRandom(),
            wall_clock_ms=_wall_clock_ms,
            config=ClientConfig(),
            roles=RepairRoles(audits=True, copies=False),
        )
        status, jobs = StatusStore(other, Random(5)), JobStore(other, Random(6))
        lifecycles = LifecycleStore(other, Random(7))
        wanted = min(JOBS_MAX, count // BOOKIES)

        async def is_audited() -> bool:
            latest = await status.get()
            return latest is not None and latest.audited_ms is not None

        async def is_lost() -> bool:
            return (await lifecycles.get(bookies[0])).state is Lifecycle.LOST

        async def is_planned() -> bool:
            return len(await jobs.published()) >= wanted

        start = perf_counter()
        await auditor.start()
        try:
            await _until(is_audited)
            pass_s = perf_counter() - start
            await registrars[0].aclose()
            await _until(is_lost)
            start = perf_counter()
            await _until(is_planned)
            planned_s = perf_counter() - start
        finally:
            await auditor.aclose()
        for registrar in registrars[1:]:
            await registrar.aclose()
    values = {"planned_s": planned_s, "pass_s": pass_s, "create_s": create_s}
    store = "ZooKeeper" if bench.options.zookeeper else "memory"
    bench.report.sample(DEPARTURE, {**values, "rss_MB": resident_mb(), "store": store})


async def _measure_index(bench: Bench) -> None:
    count = bench.size(int(bench.options.index_ledgers), 5_000)
    module = "benchmarks.repair.index_load"
    command = [sys.executable, "-m", module, str(count), str(bench.options.index_bookies)]
    done = await asyncio.to_thread(
        subprocess.run, command, stdout=subprocess.PIPE, cwd=Path.cwd(), check=True
    )
    bench.report.sample(INDEX, json.loads(done.stdout))


def _wall_clock_ms() -> int:
    return int(time() * 1000)


async def _measure(bench: Bench) -> None:
    only: str = bench.options.only
    for _ in range(bench.repetitions):
        if only in ("all", DEPARTURE):
            async with bench.measured(DEPARTURE):
                await _measure_departure(bench)
        if only in ("all", INDEX):
            async with bench.measured(INDEX):
                await _measure_index(bench)
    if only in ("all", DEPARTURE):
        bench.report.figure(DEPARTURE, "planned_s", "s", at_most=PLANNED_S_WANTED)
        bench.report.figure(DEPARTURE, "pass_s", "s")
    if only in ("all", INDEX):
        bench.report.figure(INDEX, "rss_peak_MB", "MB", at_most=MEMORY_MB_WANTED)
        bench.report.figure(INDEX, "plan_s", "s")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=("all", DEPARTURE, INDEX), default="all")
    parser.add_argument("--zookeeper", action="store_true", help="a real ZooKeeper")
    parser.add_argument("--ledgers", type=int, default=100_000)
    parser.add_argument("--index-ledgers", type=int, default=1_000_000)
    parser.add_argument("--index-bookies", type=int, default=10)


if __name__ == "__main__":
    run("planning", _measure, _options, repeat=3)
