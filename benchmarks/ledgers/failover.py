"""Benchmark of failover: longest append while a bookie dies or stops responding.

An open loop of 2,000 x 1 KiB/s, five bookies, E = WQ = 3, AQ = 2 and AQ = 3; a member of the
ensemble is killed (kill -9) or paused (SIGSTOP) in the middle. Leaves the loop to
`benchmarks.ledgers.open_loop`.

Target: the longest append <= 150 ms for kill -9 in both, <= 500 ms for SIGSTOP at AQ = 3.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.ledgers.open_loop import append_at
from benchmarks.measures import arrivals, interleaved, latency_figures
from benchmarks.runner import Bench, run
from ledger_client import LedgerWriter, Quorum

ENTRY_BYTES: Final = 1024
APPENDS_PER_S: Final = 2_000
BOOKIE_COUNT: Final = 5
KILL_MS_WANTED: Final = 150.0
PAUSE_MS_WANTED: Final = 500.0
WARM_UP_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """One way to lose a bookie."""

    blow: str
    ack_quorum: int

    @property
    def name(self) -> str:
        """Name of the case in reports."""
        return f"{self.blow}, E=3 WQ=3 AQ={self.ack_quorum}"

    @property
    def wanted_ms(self) -> float | None:
        """Target for the longest append; there is none for a pause at AQ = 2."""
        if self.blow == KILL:
            return KILL_MS_WANTED
        return PAUSE_MS_WANTED if self.ack_quorum == 3 else None


KILL: Final = "kill -9"
PAUSE: Final = "SIGSTOP"
CASES: Final = tuple(Case(blow, acks) for blow in (KILL, PAUSE) for acks in (2, 3))


async def _measure_case(bench: Bench, case: Case, seconds: float) -> None:
    hit_at = seconds / 3
    with bench.subdirectory() as directory:
        async with running(directory, BOOKIE_COUNT) as cluster:
            client = cluster.client
            async with client.create_ledger(Quorum(3, 3, case.ack_quorum)) as ledger:
                warm_up = arrivals(APPENDS_PER_S, WARM_UP_S)
                await append_at(ledger, bytes(ENTRY_BYTES), warm_up)
                striking = asyncio.create_task(_strike(cluster, ledger, case.blow, hit_at))
                times = arrivals(APPENDS_PER_S, seconds)
                done = await append_at(ledger, bytes(ENTRY_BYTES), times)
                victim = await striking
                fragment_count = len(ledger.info.fragments)
            if case.blow == PAUSE:
                cluster.bookies[victim].resume()
    calm = latency_figures(done.took_before(hit_at - 0.1))
    hit = latency_figures(done.took_after(hit_at - 0.1))
    bench.report.sample(
        case.name,
        {
            "longest_ms": hit.get("max_ms"),
            "p99_ms": hit.get("p99_ms"),
            "longest_before_ms": calm.get("max_ms"),
            "p50_before_ms": calm.get("p50_ms"),
            "failed_count": len(done.failures),
            "first_failure": done.failures[0] if done.failures else None,
            "generator_late_ms_max": done.late_ms_max,
            "fragments": fragment_count,
        },
    )


async def _strike(cluster: Running, ledger: LedgerWriter, blow: str, after_s: float) -> int:
    await asyncio.sleep(after_s)
    member = str(ledger.info.fragments[-1].ensemble[0])
    victim = next(n for n, bookie in enumerate(cluster.bookies) if bookie.id == member)
    if blow == KILL:
        cluster.bookies[victim].kill()
    else:
        cluster.bookies[victim].pause()
    return victim


async def _measure(bench: Bench) -> None:
    for _, case in interleaved(CASES, bench.repetitions):
        async with bench.measured(case.name):
            await _measure_case(bench, case, bench.size(9, 3))
    for case in CASES:
        bench.report.figure(case.name, "longest_ms", "ms", at_most=case.wanted_ms)
        bench.report.figure(case.name, "longest_before_ms", "ms")


if __name__ == "__main__":
    run("failover", _measure)
