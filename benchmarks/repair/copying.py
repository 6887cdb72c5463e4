"""Benchmark of re-replication by one worker without a throttle, next to `append_many`, in one run.

1 GiB of entries of 1 KiB in ledgers of 128 MiB (`--mib`, `--ledger-mib`), WQ = 3 and AQ = 2, on
three bookies; a fourth starts, the first is killed, and one process of repair makes all copies on
the fourth. The time is that from the first mark in the metadata to the last swap. Processor times
are those of the processes meanwhile: on a busy machine they say more than the rates. With
`--bookkeeper`, Apache BookKeeper's auto-recovery copies the same bytes in turn. Leaves the cluster
to `benchmarks.repair.losing`, and BookKeeper to `benchmarks.repair.bookkeeper_copying`.

Target: >= 0.3 of the MB/s of `append_many` to the same bookies.
"""

import argparse
from time import perf_counter
from typing import Final

from benchmarks.ledgers.workload import Load
from benchmarks.measures import megabytes_per_second
from benchmarks.peers.maven import JavaPeer, PeerUnavailableError, default_cache, prepare
from benchmarks.repair.bookkeeper_copying import measure_copying
from benchmarks.repair.losing import ENTRY_BYTES, cpu_s, losing_cluster
from benchmarks.runner import Bench, run

SHARE_WANTED: Final = 0.3
CASE: Final = "repair 1 KiB, one worker"
BOOKKEEPER_CASE: Final = "bookkeeper: repair 1 KiB, one worker"
MIB: Final = 1024 * 1024


async def _measure_once(bench: Bench) -> None:
    ledger_bytes = bench.size(int(bench.options.ledger_mib), 1) * MIB
    ledger_count = max(1, bench.size(int(bench.options.mib), 2) * MIB // ledger_bytes)
    load = Load(ENTRY_BYTES, ledger_bytes // ENTRY_BYTES)
    size = load.payload_bytes * ledger_count
    with bench.subdirectory() as directory:
        async with losing_cluster(directory) as cluster:
            metered = cluster.running.metered()
            append_s = await cluster.fill(load, ledger_count)
            append_cpu_s = sum(usage.cpu_s or 0.0 for usage in metered.finish())
            await cluster.set_limits(bytes_per_s=0, bookie_bytes_per_s=0, source_bytes_per_s=0)
            target = await cluster.running.cluster.add_bookie()
            async with cluster.worker(directory / "repair.log") as worker, bench.measured(CASE):
                lost = await cluster.lose_first()
                sources = [bookie.pid for bookie in cluster.running.bookies[1:3]]
                before = cpu_s([worker.pid]), cpu_s([target.pid]), cpu_s(sources)
                start = perf_counter()
                await cluster.wait_repaired(lost)
                seconds = perf_counter() - start
                after = cpu_s([worker.pid]), cpu_s([target.pid]), cpu_s(sources)
    copied, appended = (megabytes_per_second(size, took) for took in (seconds, append_s))
    names = ("worker_cpu_s", "target_cpu_s", "sources_cpu_s")
    used = {name: round(b - a, 2) for name, a, b in zip(names, before, after, strict=True)}
    used["append_many_cpu_s"] = round(append_cpu_s, 2)
    values = {"MB_per_s": copied, "append_many_MB_per_s": appended, "seconds": seconds}
    bench.report.sample(CASE, {**values, "share_of_append": copied / appended, **used})


async def _measure_bookkeeper(bench: Bench, java: JavaPeer) -> None:
    ledger_bytes = bench.size(int(bench.options.ledger_mib), 1) * MIB
    ledger_count = max(1, bench.size(int(bench.options.mib), 2) * MIB // ledger_bytes)
    with bench.subdirectory() as directory:
        async with bench.measured(BOOKKEEPER_CASE):
            values = await measure_copying(
                directory, java, directory / "logs", ledger_count, ledger_bytes // ENTRY_BYTES
            )
    bench.report.sample(BOOKKEEPER_CASE, values)


async def _measure(bench: Bench) -> None:
    java: JavaPeer | None = None
    if bench.options.bookkeeper:
        try:
            java = await prepare("bookkeeper", default_cache())
        except PeerUnavailableError as error:
            bench.report.note(f"peer not available: {error}")
    for _ in range(bench.repetitions):
        await _measure_once(bench)
        if java is not None:
            await _measure_bookkeeper(bench, java)
    if java is not None:
        bench.report.figure(BOOKKEEPER_CASE, "MB_per_s", "MB_per_s")
        bench.report.figure(BOOKKEEPER_CASE, "append_MB_per_s", "MB_per_s")
    bench.report.figure(CASE, "MB_per_s", "MB_per_s")
    bench.report.figure(CASE, "append_many_MB_per_s", "MB_per_s")
    bench.report.figure(CASE, "share_of_append", "ratio", at_least=SHARE_WANTED)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mib", type=int, default=1024, help="bytes to copy, in MiB")
    parser.add_argument(
        "--bookkeeper", action="store_true", help="measure Apache BookKeeper too, fetched by Maven"
    )
    parser.add_argument("--ledger-mib", type=int, default=128, help="bytes of each ledger, in MiB")


if __name__ == "__main__":
    run("copying", _measure, _options, repeat=3)
