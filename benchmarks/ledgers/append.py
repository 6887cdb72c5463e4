"""Benchmark of appends to one ledger, next to the least equivalent work, in one run.

E = WQ = 3 with AQ = 2 and AQ = 3 on three bookies; E = 5, WQ = 3, AQ = 2 on five; and with readers
that keep the bookies busy. Leaves the baseline to `benchmarks.ledgers.raw`.

Target, through `append_many`: 1 KiB entries at >= 0.6 of raw in MB/s, >= 250,000 entries/s of 100
bytes; one at a time: p50 within 0.3 ms of raw's.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.ledgers import raw
from benchmarks.ledgers.append_load import (
    Appended,
    append_by_many,
    append_by_nowait,
    append_one_by_one,
)
from benchmarks.ledgers.workload import Load
from benchmarks.measures import interleaved, latency_figures
from benchmarks.runner import Bench, run
from ledger_client import Quorum

RAW_SHARE_WANTED: Final = 0.6
SMALL_ENTRIES_PER_S_WANTED: Final = 250_000
LATENCY_ABOVE_RAW_MS_WANTED: Final = 0.3
READER_COUNT: Final = 3

Append = Callable[[Running, Quorum, Load], Awaitable[Appended]]


@dataclass(frozen=True, slots=True)
class Case:
    """One way to append to one kind of ledger."""

    way: str
    quorum: Quorum
    load: Load
    append: Append | None = None
    """Function that appends; None for one entry at a time."""

    @property
    def name(self) -> str:
        """Name of the case in reports."""
        quorum = self.quorum
        shape = f"E={quorum.ensemble} WQ={quorum.write} AQ={quorum.ack}"
        return f"{self.way} {self.load.entry_bytes} B, {shape}"

    @property
    def raw_name(self) -> str:
        """Name of the equivalent case of raw."""
        acks = self.quorum.ack
        if self.append is None:
            return f"raw one outstanding, ack quorum {acks}"
        return f"raw {self.load.entry_bytes} B, ack quorum {acks}"


async def run_case(bench: Bench, cluster: Running, case: Case, suffix: str = "") -> None:
    """Run a case once and report it as a sample."""
    name = case.name + suffix
    async with bench.measured(name):
        if case.append is None:
            seconds = await append_one_by_one(cluster, case.quorum, case.load)
            bench.report.sample(name, latency_figures(seconds))
        else:
            appended = await case.append(cluster, case.quorum, case.load)
            bench.report.sample(name, appended.as_json())


async def run_raw(bench: Bench, case: Case) -> None:
    """Run the equivalent case of raw."""
    acks, load = case.quorum.ack, case.load
    if case.append is None:
        await raw.measure_latency(bench, case.raw_name, load.entry_bytes, acks, load.entry_count)
    else:
        await raw.measure_throughput(bench, case.raw_name, load, acks)


def _cases(bench: Bench) -> list[Case]:
    kib = Load(1024, bench.size(300_000, 3_000))
    small = Load(100, bench.size(1_000_000, 10_000))
    single = Load(1024, bench.size(2_000, 50))
    cases: list[Case] = []
    for quorum in (Quorum(3, 3, 2), Quorum(3, 3, 3)):
        cases += [
            Case("append_many", quorum, kib, append_by_many),
            Case("append_many", quorum, small, append_by_many),
            Case("append_nowait", quorum, kib, append_by_nowait),
            Case("append_nowait", quorum, small, append_by_nowait),
            Case("one outstanding", quorum, single),
        ]
    return cases


def _striped_cases(bench: Bench) -> list[Case]:
    quorum = Quorum(5, 3, 2)
    return [
        Case("append_many", quorum, Load(1024, bench.size(300_000, 3_000)), append_by_many),
        Case("append_many", quorum, Load(100, bench.size(1_000_000, 10_000)), append_by_many),
        Case("one outstanding", quorum, Load(1024, bench.size(2_000, 50))),
    ]


async def _measure(bench: Bench) -> None:
    cases, striped = _cases(bench), _striped_cases(bench)
    busy = [case for case in cases if case.way != "append_nowait" and case.quorum.ack == 2]
    only: str = bench.options.only
    for repetition in range(bench.repetitions):
        if only in ("all", "main"):
            await _measure_beside_raw(bench, cases, repetition)
        if only in ("all", "striped"):
            with bench.subdirectory() as directory:
                async with running(directory, 5) as cluster:
                    for case in striped:
                        await run_case(bench, cluster, case)
        if only in ("all", "busy"):
            with bench.subdirectory() as directory:
                async with running(directory, 3) as cluster:
                    await _measure_with_readers(bench, cluster, busy)
    if only in ("all", "main"):
        for case in cases:
            _report_beside_raw(bench, case)
    if only in ("all", "striped"):
        for case in striped:
            _report(bench, case.name, case)
    if only in ("all", "busy"):
        for case in busy:
            _report(bench, case.name + WITH_READERS, case)


async def _measure_beside_raw(bench: Bench, cases: Sequence[Case], repetition: int) -> None:
    """Run each case and its equivalent of raw in turn; raw is first every other time."""
    raw_done: dict[str, None] = {}
    with bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            for number, (_, case) in enumerate(interleaved(_rotated(cases, repetition), 1)):
                wants_raw = case.raw_name not in raw_done
                raw_done[case.raw_name] = None
                raw_first = (repetition + number) % 2 == 0
                if wants_raw and raw_first:
                    await run_raw(bench, case)
                await run_case(bench, cluster, case)
                if wants_raw and not raw_first:
                    await run_raw(bench, case)


def _rotated(cases: Sequence[Case], repetition: int) -> Sequence[Case]:
    start = repetition % len(cases)
    return [*cases[start:], *cases[:start]]


WITH_READERS: Final = f", {READER_COUNT} readers"


async def _measure_with_readers(bench: Bench, cluster: Running, cases: Sequence[Case]) -> None:
    content = Load(1024, bench.size(200_000, 2_000))
    async with cluster.client.create_ledger(Quorum(3, 3, 3)) as ledger:
        await ledger.append_many(content.payloads())
    async with _readers(bench, cluster, ledger.id):
        for case in cases:
            await run_case(bench, cluster, case, WITH_READERS)


@asynccontextmanager
async def _readers(bench: Bench, cluster: Running, ledger_id: int) -> AsyncIterator[None]:
    """Run reading processes until the end of the block; report their rates."""
    uri = cluster.cluster.metadata_uri
    command = [sys.executable, "-m", "benchmarks.ledgers.reader_load", uri, str(ledger_id)]
    readers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd())
        for _ in range(READER_COUNT)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            await asyncio.to_thread(reader.stdout.readline)
        yield
    finally:
        rate = 0.0
        for reader in readers:
            output, _ = await asyncio.to_thread(reader.communicate, b"")
            rate += float(json.loads(output)["MB_per_s"]) if output.strip() else 0.0
        bench.report.sample("readers meanwhile", {"MB_per_s": rate})


def _report(bench: Bench, name: str, case: Case) -> None:
    if case.append is None:
        bench.report.figure(name, "p50_ms", "ms")
        bench.report.figure(name, "p99_ms", "ms")
    else:
        wants_small = case.way == "append_many" and case.load.entry_bytes == 100
        least = SMALL_ENTRIES_PER_S_WANTED if wants_small else None
        bench.report.figure(name, "MB_per_s", "MB_per_s")
        bench.report.figure(name, "entries_per_s", "entries_per_s", at_least=least)
        bench.report.figure(name, "client_cpu_us_per_entry", "us")
        bench.report.figure(name, "bookies_cpu_us_per_entry", "us")


def _report_beside_raw(bench: Bench, case: Case) -> None:
    report = bench.report
    _report(bench, case.name, case)
    if case.append is None:
        report.figure(case.raw_name, "p50_ms", "ms")
        mine, raws = report.values(case.name, "p50_ms"), report.values(case.raw_name, "p50_ms")
        above = [own - other for own, other in zip(mine, raws, strict=True)]
        most = LATENCY_ABOVE_RAW_MS_WANTED
        report.figure(case.name, "p50_above_raw_ms", "ms", values=above, at_most=most)
        return
    report.figure(case.raw_name, "MB_per_s", "MB_per_s")
    report.figure(case.raw_name, "client_cpu_us_per_entry", "us")
    report.figure(case.raw_name, "servers_cpu_us_per_entry", "us")
    mine, raws = report.values(case.name, "MB_per_s"), report.values(case.raw_name, "MB_per_s")
    shares = [own / other for own, other in zip(mine, raws, strict=True)]
    is_judged = case.way == "append_many" and case.load.entry_bytes == 1024
    least = RAW_SHARE_WANTED if is_judged else None
    report.figure(case.name, "share_of_raw", "ratio", values=shares, at_least=least)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=("all", "main", "striped", "busy"), default="all")


if __name__ == "__main__":
    run("append", _measure, _options)
