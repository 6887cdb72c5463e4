"""Benchmark of many open ledgers: appends spread over all of them.

10,000 ledgers on three bookies, E = WQ = 3, AQ = 2. Appends run in batches of one (each ledger has
one append under way, so nothing can be grouped) and in bursts of a few per ledger. Leaves one busy
ledger to `benchmarks.ledgers.append`. Reports entries/s, bytes written per payload byte, a bookie's
memory.
"""

import argparse
import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.measures import MEGABYTE, amplification, interleaved, latency_figures
from benchmarks.runner import Bench, run
from ledger_client import LedgerError, LedgerWriter, Quorum

REPLICAS: Final = 3
OPENING_AT_ONCE: Final = 100
WORKERS: Final = 1_000
"""Number of concurrent appends, each to another ledger."""
ENTRY_BYTES: Final = 1024


async def _open_all(cluster: Running, count: int) -> list[LedgerWriter]:
    ledgers: list[LedgerWriter] = []
    while len(ledgers) < count:
        missing = min(OPENING_AT_ONCE, count - len(ledgers))
        ledgers += await asyncio.gather(*(_open(cluster) for _ in range(missing)))
    return ledgers


async def _open(cluster: Running) -> LedgerWriter:
    return await cluster.client.create_ledger(Quorum(REPLICAS, REPLICAS, 2))


async def _close_all(ledgers: Sequence[LedgerWriter]) -> None:
    for start in range(0, len(ledgers), OPENING_AT_ONCE):
        group = ledgers[start : start + OPENING_AT_ONCE]
        outcomes = (ledger.aclose() for ledger in group)
        await asyncio.gather(
            *outcomes, return_exceptions=True
        )  # failed appends are counted already


async def _append_round(
    ledgers: Sequence[LedgerWriter], rounds: int, burst: int
) -> tuple[float, list[float], list[str]]:
    """Append `burst` entries to every ledger, `rounds` times; return seconds, latencies, and
    failures.
    """
    payloads = [bytes(ENTRY_BYTES)] * burst
    latencies: list[float] = []
    failures: list[str] = []

    async def work(own: Sequence[LedgerWriter]) -> None:
        for _ in range(rounds):
            for ledger in own:
                before = perf_counter()
                try:
                    if burst == 1:
                        await ledger.append(payloads[0])
                    else:
                        await ledger.append_many(payloads)
                except LedgerError as error:
                    failures.append(f"{type(error).__name__}: {error}")
                else:
                    latencies.append(perf_counter() - before)

    worker_count = min(WORKERS, len(ledgers))
    start = perf_counter()
    await asyncio.gather(*(work(ledgers[n::worker_count]) for n in range(worker_count)))
    return perf_counter() - start, latencies, failures


async def _measure_case(
    bench: Bench, cluster: Running, ledgers: Sequence[LedgerWriter], burst: int
) -> None:
    rounds = bench.size(max(1, 5 // burst), 1)
    metered = cluster.metered()
    elapsed, latencies, failures = await _append_round(ledgers, rounds, burst)
    await asyncio.sleep(0 if bench.is_smoke else 1)  # include the third replica's writes
    client, bookies = metered.finish()
    count = len(latencies) * burst
    memory = cluster.largest_bookie()
    bench.report.sample(
        _case(burst),
        {
            "entries_per_s": count / elapsed,
            "failed_count": len(failures),
            "first_failure": failures[0] if failures else None,
            "written_per_payload_byte": amplification(
                bookies.written_bytes, REPLICAS * count * ENTRY_BYTES
            ),
            "client_cpu_s": client.cpu_s,
            "bookies_cpu_s": bookies.cpu_s,
            "bookie_anonymous_MB": memory.anonymous_bytes / MEGABYTE,
            "bookie_mapped_MB": memory.mapped_bytes / MEGABYTE,
            "client_cpu_us_per_append": _micros(client.cpu_s, len(latencies)),
            **latency_figures(latencies),
        },
    )


def _micros(seconds: float | None, count: int) -> float | None:
    return None if seconds is None or not count else seconds / count * 1e6


def _case(burst: int) -> str:
    return f"bursts of {burst}" if burst > 1 else "batches of one"


async def _measure(bench: Bench) -> None:
    count = bench.size(int(bench.options.ledgers), 100)
    bursts = (1, 20)
    with bench.subdirectory() as directory:
        async with running(directory, REPLICAS) as cluster:
            start = perf_counter()
            ledgers = await _open_all(cluster, count)
            elapsed = perf_counter() - start
            bench.report.sample("open", {"ledgers_per_s": count / elapsed, "seconds": elapsed})
            for _, burst in interleaved(bursts, bench.repetitions):
                async with bench.measured(_case(burst)):
                    await _measure_case(bench, cluster, ledgers, burst)
            start = perf_counter()
            await _close_all(ledgers)
            elapsed = perf_counter() - start
            bench.report.sample("close", {"ledgers_per_s": count / elapsed, "seconds": elapsed})
    report = bench.report
    report.figure("open", "ledgers_per_s", "entries_per_s")
    for burst in bursts:
        report.figure(_case(burst), "entries_per_s", "entries_per_s")
        report.figure(_case(burst), "failed_count", "entries")
        report.figure(_case(burst), "client_cpu_us_per_append", "us")
        report.figure(_case(burst), "written_per_payload_byte", "ratio")
        report.figure(_case(burst), "bookie_anonymous_MB", "MB")
        report.figure(_case(burst), "bookie_mapped_MB", "MB")
        report.figure(_case(burst), "p99_ms", "ms")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledgers", type=int, default=10_000)


if __name__ == "__main__":
    run("many_ledgers", _measure, _options, repeat=3)
