"""Benchmark of reads: catch-up through a closed ledger, and tailing of an open one.

Catch-up goes through `reader.read` with digests checked: once as whole batches (`buffers()`), once
with a Python loop over every entry. The latency of tailing is the time from when the writer
receives a confirmation to when the reader receives the entry; it is negative if the reader is
first. Leaves appending to `benchmarks.ledgers.append_load`.

Target: catch-up of 1 KiB entries at >= 500 MB/s warm.
"""

import argparse
import asyncio
from contextlib import aclosing
from time import perf_counter
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.ledgers.workload import Load
from benchmarks.measures import arrivals, interleaved, latency_figures, megabytes_per_second
from benchmarks.runner import Bench, run
from ledger_client import LedgerClient, LedgerReader, LedgerWriter, Quorum

CATCH_UP_WANTED_MB_PER_S: Final = 500.0
TAIL_RATES: Final = (1_000, 20)
"""Rates in entries per second: at a high rate the LAC is sent with the next add, at a low rate by
the idle writer."""


async def read_batches(reader: LedgerReader) -> tuple[int, int]:
    """Read everything as batches; return entries and bytes."""
    count = size = 0
    async with aclosing(reader.read()) as batches:
        async for batch in batches:
            payload, _ = batch.buffers()
            size += len(payload)
            count += len(batch)
    return count, size


async def read_entries(reader: LedgerReader) -> tuple[int, int]:
    """Read everything, entry by entry; return entries and bytes."""
    count = size = 0
    async with aclosing(reader.read()) as batches:
        async for batch in batches:
            for entry in batch:
                size += len(entry.data)
                count += 1
    return count, size


async def _catch_up(bench: Bench, cluster: Running, ledger_id: int, case: str) -> None:
    way = read_batches if case == BY_BATCH else read_entries
    async with cluster.client.open_ledger(ledger_id) as reader:
        metered = cluster.metered()
        start = perf_counter()
        count, size = await way(reader)
        elapsed = perf_counter() - start
        own, bookies = metered.finish()
    bench.report.sample(
        case,
        {
            "MB_per_s": megabytes_per_second(size, elapsed),
            "entries_per_s": count / elapsed,
            "seconds": elapsed,
            "reader_cpu_s": own.cpu_s,
            "bookies_cpu_s": bookies.cpu_s,
        },
    )


BY_BATCH: Final = "catch-up 1024 B, as batches"
BY_ENTRY: Final = "catch-up 1024 B, entry by entry"


async def _tail(bench: Bench, cluster: Running, rate: int, seconds: float) -> None:
    count = int(rate * seconds)
    confirmed, seen = [0.0] * count, [0.0] * count
    # A separate client: the writer's state must not help the reader.
    async with (
        LedgerClient(cluster.cluster.metadata_uri) as other,
        cluster.client.create_ledger(Quorum(3, 3, 2)) as ledger,
        other.open_ledger(ledger.id) as reader,
    ):
        tailing = asyncio.create_task(_note_seen(reader, seen))
        await asyncio.sleep(0.2)
        await _append_at(ledger, rate, seconds, confirmed)
        await asyncio.wait_for(tailing, 30)
    latencies = [after - before for before, after in zip(confirmed, seen, strict=True)]
    bench.report.sample(_tail_case(rate), latency_figures(latencies))


def _tail_case(rate: int) -> str:
    return f"tail, {rate} entries/s"


async def _append_at(
    ledger: LedgerWriter, rate: int, seconds: float, confirmed: list[float]
) -> None:
    payload = bytes(1024)
    start = perf_counter()
    handles: list[asyncio.Future[int]] = []

    def note(handle: "asyncio.Future[int]") -> None:
        confirmed[handle.result()] = perf_counter()

    for due in arrivals(rate, seconds):
        await asyncio.sleep(max(0.0, start + due - perf_counter()))
        handle = ledger.append_nowait(payload)
        handle.add_done_callback(note)
        handles.append(handle)
    await asyncio.gather(*handles)


async def _note_seen(reader: LedgerReader, seen: list[float]) -> None:
    async with aclosing(reader.tail(0)) as batches:
        async for batch in batches:
            now = perf_counter()
            for entry_id in range(batch.first_entry_id, batch.last_entry_id + 1):
                seen[entry_id] = now
            if batch.last_entry_id == len(seen) - 1:
                return


async def _measure(bench: Bench) -> None:
    megabytes = bench.size(int(bench.options.megabytes), 8)
    load = Load(1024, megabytes * 1_000_000 // 1024)
    with bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            async with cluster.client.create_ledger(Quorum(3, 3, 3)) as ledger:
                await ledger.append_many(load.payloads())
            async with cluster.client.open_ledger(ledger.id) as reader:
                await read_batches(reader)  # warms the page cache of the bookie that serves
            for _, case in interleaved((BY_BATCH, BY_ENTRY), bench.repetitions):
                async with bench.measured(case):
                    await _catch_up(bench, cluster, ledger.id, case)
            for _, rate in interleaved(TAIL_RATES, bench.repetitions):
                async with bench.measured(_tail_case(rate)):
                    await _tail(bench, cluster, rate, bench.size(5, 1))
    report = bench.report
    report.figure(BY_BATCH, "MB_per_s", "MB_per_s", at_least=CATCH_UP_WANTED_MB_PER_S)
    report.figure(BY_ENTRY, "MB_per_s", "MB_per_s")
    report.figure(BY_ENTRY, "entries_per_s", "entries_per_s")
    for rate in TAIL_RATES:
        report.figure(_tail_case(rate), "p50_ms", "ms")
        report.figure(_tail_case(rate), "p99_ms", "ms")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=int, default=500, help="size of the ledger")


if __name__ == "__main__":
    run("read", _measure, _options)
