"""Benchmark of encryption: `append_many` and catch-up reads with and without it, in one run.

Leaves the fastest ways to append to `benchmarks.ledgers.append`. E = WQ = 3 and AQ = 2 on three
bookies; the two ways take turns, and each pair gives one ratio.

Target: at 1 KiB, `append_many` with encryption at >= 0.5 of the entries per second without it.
"""

import os
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.ledgers.workload import Load
from benchmarks.measures import interleaved
from benchmarks.processes import Usage
from benchmarks.runner import Bench, run
from ledger_client import Encryption, Quorum

QUORUM: Final = Quorum(3, 3, 2)
SHARE_WANTED: Final = 0.5
KEY: Final = os.urandom(32)


@dataclass(frozen=True, slots=True)
class Case:
    """Entries of one size, encrypted or plain."""

    load: Load
    is_encrypted: bool

    @property
    def name(self) -> str:
        """Name of the case in reports."""
        way = "encrypted" if self.is_encrypted else "plain"
        return f"append_many and read {self.load.entry_bytes:,} B, {way}"


async def run_case(cluster: Running, case: Case) -> dict[str, object]:
    """Append one ledger's entries, read them as batches, and return the rates and costs."""
    load = case.load
    keys = Encryption(lambda _: KEY, "benchmark") if case.is_encrypted else None
    async with cluster.client.create_ledger(QUORUM, encryption=keys) as ledger:
        payloads = load.payloads()
        metered = cluster.metered()
        start = perf_counter()
        await ledger.append_many(payloads)
        appended_s = perf_counter() - start
        client, _ = metered.finish()
    async with cluster.client.open_ledger(ledger.id, encryption=keys) as reader:
        count = 0
        start = perf_counter()
        async for batch in reader.read():
            count += len(batch)
        read_s = perf_counter() - start
    assert count == load.entry_count
    return {
        "entries_per_s": count / appended_s,
        "client_cpu_us_per_entry": _micros(client, count),
        "read_entries_per_s": count / read_s,
    }


def _micros(usage: Usage, count: int) -> float | None:
    return None if usage.cpu_s is None else usage.cpu_s / count * 1e6


async def _measure(bench: Bench) -> None:
    loads = [
        Load(100, bench.size(500_000, 3_000)),
        Load(1024, bench.size(200_000, 3_000)),
        Load(65_536, bench.size(8_000, 50)),
    ]
    with bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            for load in loads:
                pair = (Case(load, is_encrypted=False), Case(load, is_encrypted=True))
                for _, case in interleaved(pair, bench.repetitions):
                    async with bench.measured(case.name):
                        bench.report.sample(case.name, await run_case(cluster, case))
                _report(bench, *pair)


def _report(bench: Bench, plain: Case, encrypted: Case) -> None:
    report = bench.report
    for case in (plain, encrypted):
        report.figure(case.name, "entries_per_s", "entries_per_s")
        report.figure(case.name, "client_cpu_us_per_entry", "us")
        report.figure(case.name, "read_entries_per_s", "entries_per_s")
    for name in ("entries_per_s", "read_entries_per_s"):
        with_it, without = report.values(encrypted.name, name), report.values(plain.name, name)
        shares = [mine / other for mine, other in zip(with_it, without, strict=True)]
        is_judged = name == "entries_per_s" and plain.load.entry_bytes == 1024
        least = SHARE_WANTED if is_judged else None
        share = f"share_of_plain_{name}"
        report.figure(encrypted.name, share, "ratio", values=shares, at_least=least)


if __name__ == "__main__":
    run("encryption", _measure)
