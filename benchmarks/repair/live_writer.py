"""Benchmark of a live writer before and during a repair at the default throttle, in one run.

An open loop of 2,000 x 1 KiB/s (`--per-s`) on five bookies, WQ = 3 and AQ = 2, whose latencies
count from the due time. First a calm phase, then one of the same length (`--seconds`) in which a
worker copies what a killed bookie held. The writer's ledger is not on that bookie. Leaves the loop
to `benchmarks.ledgers.open_loop`, and the cluster to `benchmarks.repair.losing`.

Target: p99 at most doubled.
"""

import argparse
import asyncio
from typing import Final

from benchmarks.ledgers.open_loop import append_at
from benchmarks.ledgers.workload import Load
from benchmarks.measures import arrivals, latency_figures
from benchmarks.repair.losing import (
    ENTRY_BYTES,
    REPLICAS,
    LosingCluster,
    losing_cluster,
)
from benchmarks.runner import Bench, run
from ledger_client import LedgerWriter
from metadata.repair.settings import DEFAULTS

CASE: Final = "live writer"
GROWTH_WANTED: Final = 2.0
WARM_UP_S: Final = 2.0
LEDGER_ENTRIES: Final = 32 * 1024
MARGIN: Final = 1.3
"""Bytes to copy, compared with what the throttle admits in a phase."""


async def _measure_once(bench: Bench) -> None:
    seconds = bench.size(int(bench.options.seconds), 3)
    rate = int(bench.options.bytes_per_s)
    entries = bench.size(LEDGER_ENTRIES, 512)
    load = Load(ENTRY_BYTES, entries)
    ledger_count = bench.size(1 + int(MARGIN * seconds * rate) // load.payload_bytes, 2)
    with bench.subdirectory() as directory:
        async with losing_cluster(directory) as cluster:
            await cluster.fill(load, ledger_count)
            for _ in range(2):
                await cluster.running.cluster.add_bookie()
            async with cluster.worker(directory / "repair.log"), bench.measured(CASE):
                await cluster.set_limits(bytes_per_s=rate)
                values = await _measure_writer(bench, cluster, seconds)
    bench.report.sample(CASE, values)


async def _measure_writer(
    bench: Bench, cluster: LosingCluster, seconds: float
) -> dict[str, object]:
    per_s = float(bench.options.per_s)
    payload = bytes(ENTRY_BYTES)
    async with await _ledger_elsewhere(cluster) as ledger:
        await append_at(ledger, payload, arrivals(per_s, WARM_UP_S))
        calm = await append_at(ledger, payload, arrivals(per_s, seconds))
        lost = await cluster.lose_first()
        during = await append_at(ledger, payload, arrivals(per_s, seconds))
        copied = await cluster.repaired_share(lost)
    before, after = latency_figures(calm.took), latency_figures(during.took)
    return {
        **{f"{name}_before": value for name, value in before.items()},
        **{f"{name}_during": value for name, value in after.items()},
        "p99_growth": after["p99_ms"] / before["p99_ms"],
        "repaired_share": copied,
        "failed_count": len(calm.failures) + len(during.failures),
        "generator_late_ms_max": max(calm.late_ms_max, during.late_ms_max),
    }


async def _ledger_elsewhere(cluster: LosingCluster) -> LedgerWriter:
    """Create a ledger that is not on the bookie that will be lost."""
    lost = cluster.running.bookies[0].id
    while True:
        ledger = await cluster.running.client.create_ledger(REPLICAS)
        if lost not in map(str, ledger.info.fragments[0].ensemble):
            return ledger
        await ledger.aclose()
        await asyncio.sleep(0)


async def _measure(bench: Bench) -> None:
    for _ in range(bench.repetitions):
        await _measure_once(bench)
    bench.report.figure(CASE, "p99_ms_before", "ms")
    bench.report.figure(CASE, "p99_ms_during", "ms")
    bench.report.figure(CASE, "p99_growth", "ratio", at_most=GROWTH_WANTED)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=10, help="length of each phase")
    parser.add_argument("--per-s", type=int, default=2_000, help="appends per second")
    parser.add_argument(
        "--bytes-per-s", type=int, default=DEFAULTS.bytes_per_s, help="throttle of the cluster"
    )


if __name__ == "__main__":
    run("live_writer", _measure, _options, repeat=3)
