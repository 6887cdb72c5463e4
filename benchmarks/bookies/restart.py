"""Benchmark of a restart: time until a bookie full of entries serves again after SIGKILL, and its
memory.

One bookie holds 5 GB in 5 million entries (1,000 bytes each) of a hundred ledgers. It is killed
under a writer and started again; ready means registered and serving. Then it serves appends and
reads from all over its data while its memory is sampled. Leaves recovery of ledgers to the tests.

Target: ready within 3 s; RssAnon under 300 MB while it serves (mapped pages are reported
separately).
"""

import argparse
import asyncio
from contextlib import aclosing
from random import Random
from time import perf_counter
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.ledgers.workload import Load
from benchmarks.measures import MEGABYTE
from benchmarks.processes import usage_of, watched_memory
from benchmarks.runner import Bench, run
from ledger_client import LedgerClient, LedgerError, NotEnoughBookiesError, Quorum

READY_S_WANTED: Final = 3.0
ANONYMOUS_MB_WANTED: Final = 300.0
LEDGER_COUNT: Final = 100
FOUND_S_MAX: Final = 120.0
ENTRY_BYTES: Final = 1_000
READ_ENTRIES: Final = 2_000
CASE: Final = "restart after kill -9"
FILLING: Final = "filling"
SERVING: Final = "serving"
ALONE: Final = Quorum(1, 1, 1)


async def _fill(bench: Bench, cluster: Running, load: Load) -> list[int]:
    """Write the ledgers; return their ids."""
    ids: list[int] = []
    start = perf_counter()
    async with watched_memory(cluster.bookies[0].pid) as peak:
        for _ in range(LEDGER_COUNT):
            async with cluster.client.create_ledger(ALONE) as ledger:
                await ledger.append_many(load.payloads())
            ids.append(ledger.id)
    elapsed = perf_counter() - start
    bench.report.sample(
        FILLING,
        {
            "entries_per_s": load.entry_count * LEDGER_COUNT / elapsed,
            "seconds": elapsed,
            "anonymous_MB": peak.anonymous_bytes / MEGABYTE,
            "mapped_MB": peak.mapped_bytes / MEGABYTE,
        },
    )
    return ids


async def _kill_and_restart(bench: Bench, cluster: Running) -> None:
    """Kill the bookie during appends, start it again, and measure the time."""
    bookie = cluster.bookies[0]
    async with LedgerClient(cluster.cluster.metadata_uri) as client:
        ledger = await client.create_ledger(ALONE)
        writing = asyncio.create_task(ledger.append_many(Load(ENTRY_BYTES, 200_000).payloads()))
        await asyncio.sleep(0.5)
        bookie.kill()
        start = perf_counter()
        await bookie.restart()
        elapsed = perf_counter() - start
        await _append_once(cluster)
        usable = perf_counter() - start
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        try:
            await ledger.abort()
        except LedgerError as error:
            bench.report.note(f"the interrupted writer failed: {type(error).__name__}")
    memory = usage_of(bookie.pid)
    anonymous, mapped = memory.anonymous_bytes, memory.mapped_bytes
    bench.report.sample(
        CASE,
        {
            "ready_s": elapsed,
            "used_by_a_client_s": usable,
            "cpu_s": memory.cpu_s,
            "anonymous_MB": None if anonymous is None else anonymous / MEGABYTE,
            "mapped_MB": None if mapped is None else mapped / MEGABYTE,
        },
    )


async def _append_once(cluster: Running) -> None:
    """Append an entry as soon as the client can reach the bookie again."""
    async with asyncio.timeout(FOUND_S_MAX):
        while True:
            try:
                async with cluster.client.create_ledger(ALONE) as ledger:
                    await ledger.append(bytes(ENTRY_BYTES))
                return
            except NotEnoughBookiesError:
                await asyncio.sleep(0.02)


async def _serve(bench: Bench, cluster: Running, ids: list[int], load: Load) -> None:
    """Append and read at random places, and sample the bookie's memory."""
    rng = Random(bench.repetitions)
    seconds = bench.size(20, 2)
    read_count = 0
    async with watched_memory(cluster.bookies[0].pid) as peak:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            read_count += await _read_somewhere(cluster, rng.choice(ids), load, rng)
            async with cluster.client.create_ledger(ALONE) as ledger:
                await ledger.append_many(Load(ENTRY_BYTES, 1_000).payloads())
    bench.report.sample(
        SERVING,
        {
            "entries_read": read_count,
            "anonymous_MB": peak.anonymous_bytes / MEGABYTE,
            "mapped_MB": peak.mapped_bytes / MEGABYTE,
            "memory_samples": peak.sample_count,
        },
    )


async def _read_somewhere(cluster: Running, ledger_id: int, load: Load, rng: Random) -> int:
    count = 0
    first = rng.randrange(max(1, load.entry_count - READ_ENTRIES))
    last = min(load.entry_count - 1, first + READ_ENTRIES)
    async with (
        cluster.client.open_ledger(ledger_id) as reader,
        aclosing(reader.read(first, last)) as batches,
    ):
        async for batch in batches:
            count += len(batch)
    return count


async def _measure(bench: Bench) -> None:
    total_bytes = bench.size(int(bench.options.gigabytes * 1e9), 20_000_000)
    load = Load(ENTRY_BYTES, max(1, total_bytes // ENTRY_BYTES // LEDGER_COUNT))
    with bench.subdirectory() as directory:
        async with running(directory, 1) as cluster:
            bench.report.note(f"writing {total_bytes / 1e9:g} GB")
            ids = await _fill(bench, cluster, load)
            for _ in range(bench.repetitions):
                async with bench.measured(CASE):
                    await _kill_and_restart(bench, cluster)
                await _serve(bench, cluster, ids, load)
    report = bench.report
    report.figure(CASE, "ready_s", "s", at_most=READY_S_WANTED)
    report.figure(CASE, "used_by_a_client_s", "s")
    report.figure(CASE, "anonymous_MB", "MB")
    report.figure(SERVING, "anonymous_MB", "MB", at_most=ANONYMOUS_MB_WANTED)
    report.figure(SERVING, "mapped_MB", "MB")
    report.figure(FILLING, "anonymous_MB", "MB", at_most=ANONYMOUS_MB_WANTED)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gigabytes", type=float, default=5.0, help="size of the bookie's data")


if __name__ == "__main__":
    run("restart", _measure, _options, repeat=3)
