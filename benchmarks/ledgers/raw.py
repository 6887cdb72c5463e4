"""Baseline benchmark of this machine: the least work that is equivalent to an append.

One process sends the same bytes to three others over loopback TCP; each writes and syncs them and
responds. Leaves the comparison with the product to `benchmarks.ledgers.append`.
"""

from benchmarks.ledgers.raw_client import raw_latency, raw_throughput
from benchmarks.ledgers.workload import Load, wire_bytes
from benchmarks.measures import interleaved, latency_figures, megabytes_per_second
from benchmarks.runner import Bench, run

ACK_QUORUMS = (2, 3)


async def measure_throughput(bench: Bench, directory_case: str, load: Load, acks: int) -> None:
    """Run one throughput case once and report it as a sample."""
    async with bench.measured(directory_case):
        with bench.subdirectory() as directory:
            times = await raw_throughput(directory, load.raw_batch_bytes, load.batch_count, acks)
    seconds, all_seconds = float(str(times["acknowledged_s"])), float(str(times["replicated_s"]))
    payload = load.raw_entry_count * load.entry_bytes
    rates: dict[str, object] = {
        "MB_per_s": megabytes_per_second(payload, seconds),
        "replicated_MB_per_s": megabytes_per_second(payload, all_seconds),
        "entries_per_s": load.raw_entry_count / seconds,
        "client_cpu_us_per_entry": _micros(times["client_cpu_s"], load.raw_entry_count),
        "servers_cpu_us_per_entry": _micros(times["servers_cpu_s"], load.raw_entry_count),
    }
    bench.report.sample(directory_case, {**rates, **times})


def _micros(seconds: object, count: int) -> float | None:
    return seconds / count * 1e6 if isinstance(seconds, float) else None


async def measure_latency(bench: Bench, case: str, entry_bytes: int, acks: int, count: int) -> None:
    """Run one latency case once and report it as a sample."""
    async with bench.measured(case):
        with bench.subdirectory() as directory:
            seconds = await raw_latency(directory, wire_bytes(entry_bytes, 1), count, acks)
    bench.report.sample(case, latency_figures(seconds))


async def _measure(bench: Bench) -> None:
    loads = (
        Load(1024, bench.size(300_000, 5_000)),
        Load(100, bench.size(1_000_000, 20_000)),
    )
    throughputs = {
        f"raw {load.entry_bytes} B, ack quorum {acks}": (load, acks)
        for load in loads
        for acks in ACK_QUORUMS
    }
    latencies = {f"raw one outstanding, ack quorum {acks}": acks for acks in ACK_QUORUMS}
    for _, case in interleaved([*throughputs, *latencies], bench.repetitions):
        if case in throughputs:
            await measure_throughput(bench, case, *throughputs[case])
        else:
            await measure_latency(bench, case, 1024, latencies[case], bench.size(2_000, 100))
    for case in throughputs:
        bench.report.figure(case, "MB_per_s", "MB_per_s")
        bench.report.figure(case, "entries_per_s", "entries_per_s")
    for case in latencies:
        bench.report.figure(case, "p50_ms", "ms")
        bench.report.figure(case, "p99_ms", "ms")


if __name__ == "__main__":
    run("raw", _measure)
