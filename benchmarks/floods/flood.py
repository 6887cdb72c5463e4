"""Benchmark of bad clients: how long a good client of the same server waits, without and with them.

One secure cluster: a bookie with roles, a broker with logins, a gateway. For each kind of flood a
good client of the attacked part is timed in turns: without the bad clients, then with them. They
are a process of their own, at a low priority. Leaves the floods to `benchmarks.floods.flooder`.

Targets: the p99 of the good client under the flood is below 5 times the one before it, and the
memory of the attacked process stays within its bounds.
"""

import argparse
from time import perf_counter
from typing import Final

from benchmarks.floods.flood_job import FloodJob
from benchmarks.floods.flooded_cluster import FloodedCluster, flooded_cluster
from benchmarks.floods.flooder_process import FlooderProcess, flooder_process
from benchmarks.floods.good_clients import GOOD_CLIENTS, Timed, timed
from benchmarks.floods.kinds import MIB, SPECS, FloodKind, FloodSpec
from benchmarks.measures import interleaved, latency_figures
from benchmarks.processes import (
    descriptors_of,
    forget_peak,
    peak_bytes,
    usage_of,
    used_between,
)
from benchmarks.runner import Bench, run

RATIO_WANTED: Final = 5.0
FIGURES: Final = ("p50_ms", "p99_ms", "max_ms")
CALL_S_MAX: Final = 5.0
"""A call that takes longer is ended, and counts as failed with this time."""
SMOKE_CALL_S_MAX: Final = 120.0
WARM_S: Final = 0.3
"""Time in which calls are made before any is timed."""


async def _measure(bench: Bench) -> None:
    kinds = [FloodKind(name) for name in bench.options.only]
    with bench.subdirectory() as directory:
        async with flooder_process() as flooder, flooded_cluster(directory) as flooded:
            for number, kind in interleaved(kinds, bench.repetitions):
                if number and SPECS[kind].is_started_again:
                    await flooded.server(SPECS[kind].role).restart()
                async with bench.measured(kind):
                    sample = await _round(bench, flooded, flooder, kind)
                bench.report.sample(kind, sample)
    for kind in kinds:
        _report(bench, kind)


async def _round(
    bench: Bench, flooded: FloodedCluster, flooder: FlooderProcess, kind: FloodKind
) -> dict[str, object]:
    """Time a good client without and with the bad ones."""
    spec = SPECS[kind]
    pid = flooded.server(spec.role).pid
    good_client, per_s = GOOD_CLIENTS[kind]
    call_s_max = SMOKE_CALL_S_MAX if bench.is_smoke else CALL_S_MAX
    async with good_client(flooded) as call:

        async def phase(seconds: float) -> tuple[Timed, float | None]:
            """Return the calls, and what the attacked process used of one core meanwhile."""
            before, began_s = usage_of(pid), perf_counter()
            latencies = await timed(call, per_s, seconds, call_s_max)
            used_s = used_between(before, usage_of(pid)).cpu_s
            return latencies, None if used_s is None else used_s / (perf_counter() - began_s)

        await phase(WARM_S)
        forget_peak(pid)
        quiet, quiet_share = await phase(bench.options.seconds)
        before = peak_bytes(pid), descriptors_of(pid)
        size = spec.smoke if bench.is_smoke else spec.usual
        is_full = await flooder.begin(FloodJob(kind, size, flooded.current_target()))
        flooded_phase, share = await phase(bench.options.seconds)
        during = peak_bytes(pid), descriptors_of(pid)
        got = await flooder.end()
    return {
        **{f"quiet_{name}": value for name, value in _latencies(quiet).items()},
        **_latencies(flooded_phase),
        "p99_ratio": _latencies(flooded_phase)["p99_ms"] / _latencies(quiet)["p99_ms"],
        "quiet_server_cpu_share": quiet_share,
        "server_cpu_share": share,
        "calls": len(flooded_phase.seconds),
        "quiet_calls": len(quiet.seconds),
        "quiet_failures": quiet.failures,
        "failures": flooded_phase.failures,
        "failure": flooded_phase.failure or quiet.failure,
        "memory_before_MB": before[0] / MIB,
        "memory_peak_MB": during[0] / MIB,
        "memory_growth_MB": (during[0] - before[0]) / MIB,
        "descriptors_before": before[1],
        "descriptors": during[1],
        "is_full": is_full,
        **got,
    }


def _latencies(times: Timed) -> dict[str, float]:
    figures = latency_figures(times.seconds)
    return {name: figures[name] for name in FIGURES}


def _report(bench: Bench, kind: FloodKind) -> None:
    spec: FloodSpec = SPECS[kind]
    for name in ("quiet_p50_ms", "quiet_p99_ms", "p50_ms", "p99_ms"):
        bench.report.figure(kind, name, "ms")
    bench.report.figure(kind, "p99_ratio", "ratio", at_most=RATIO_WANTED)
    growth = max(bench.report.values(kind, "memory_growth_MB"))
    most = spec.growth_bytes_max / MIB
    bench.report.figure(kind, "memory_growth_MB", "MB", values=[growth], at_most=most)
    bench.report.figure(kind, "cpu_share", "ratio")


def _add_options(parser: argparse.ArgumentParser) -> None:
    kinds = [str(kind) for kind in FloodKind]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, metavar="KIND")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each phase")


if __name__ == "__main__":
    run("flood", _measure, _add_options, repeat=3)
