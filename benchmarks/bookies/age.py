"""Benchmark of appends on a bookie that is 10 GB old, compared with a new one.

Compares the first gigabyte and the last by entries/s and by processor time per entry, because the
disk itself may become slower after gigabytes of writing. Raw runs before and after show the disk's
speed. One replica by default: a log's age is that of one bookie. Leaves the other costs of
appending to `benchmarks.ledgers.append`.

Target: entries/s at 10 GB within 10 % of the first GB.
"""

import argparse
import shutil
from typing import Final

from benchmarks.cluster import running
from benchmarks.ledgers.append_load import append_by_many
from benchmarks.ledgers.raw_client import raw_throughput
from benchmarks.ledgers.workload import Load
from benchmarks.runner import Bench, run
from ledger_client import Quorum
from quire.bench.figures import spread

SLOWDOWN_MAX: Final = 0.10
ENTRY_BYTES: Final = 1024
STEP_BYTES: Final = 250_000_000
"""Size of one ledger. A gigabyte is four ledgers, each of which gives a figure, so that a gigabyte
has a range."""
STEPS_PER_GIGABYTE: Final = 4
CASE: Final = "append_many 1024 B"


async def _measure(bench: Bench) -> None:
    replicas = int(bench.options.replicas)
    step_bytes = bench.size(STEP_BYTES, 2_000_000)
    step_count = bench.size(int(bench.options.gigabytes * STEPS_PER_GIGABYTE), 8)
    needed = step_bytes * step_count * replicas
    free = shutil.disk_usage(bench.directory).free
    if needed > 0.8 * free:
        bench.report.note(f"needs {needed / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free")
        raise SystemExit(1)
    load = Load(ENTRY_BYTES, step_bytes // ENTRY_BYTES)
    quorum = Quorum.all(replicas)
    await _raw(bench, load, "raw before")
    with bench.subdirectory() as directory:
        async with running(directory, replicas) as cluster:
            for number in range(step_count):
                appended = await append_by_many(cluster, quorum, load)
                sample = {"written_before_MB": number * load.payload_bytes / 1e6}
                bench.report.sample(CASE, {**sample, **appended.as_json()})
    await _raw(bench, load, "raw after")
    _report(bench)


async def _raw(bench: Bench, load: Load, case: str) -> None:
    for _ in range(bench.size(4, 1)):
        async with bench.measured(case):
            with bench.subdirectory() as directory:
                times = await raw_throughput(directory, load.raw_batch_bytes, load.batch_count, 3)
        seconds = float(str(times["acknowledged_s"]))
        bench.report.sample(case, {"entries_per_s": load.raw_entry_count / seconds})


def _report(bench: Bench) -> None:
    report = bench.report
    for name in ("entries_per_s", "bookies_cpu_us_per_entry", "client_cpu_us_per_entry"):
        values = report.values(CASE, name)
        if not values:
            continue
        unit = "entries_per_s" if name == "entries_per_s" else "us"
        first, last = values[:STEPS_PER_GIGABYTE], values[-STEPS_PER_GIGABYTE:]
        report.figure("first GB", name, unit, values=first)
        report.figure("last GB", name, unit, values=last)
        before = spread(first).median
        ratio = (
            [spread(last).median / before] if before > 0 else []
        )  # 0: below the clock's resolution
        least = 1 - SLOWDOWN_MAX if name == "entries_per_s" else None
        report.figure("last GB against the first", name, "ratio", values=ratio, at_least=least)
    report.figure("raw before", "entries_per_s", "entries_per_s")
    report.figure("raw after", "entries_per_s", "entries_per_s")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--replicas", type=int, default=1)


if __name__ == "__main__":
    run("age", _measure, _options, repeat=1)
