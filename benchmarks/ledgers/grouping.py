"""Benchmark of syncs: cost of a sync per write and per group of writes, on a file and in a ledger.

Leaves the fastest ways to append to `benchmarks.ledgers.append`. No target: it checks the claim
that a sync for each write costs two to three orders of magnitude unless writes are grouped.
"""

import asyncio
import os
from collections import deque
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.measures import interleaved
from benchmarks.runner import Bench, run
from ledger_client import Quorum

RECORD: Final = bytes(range(256)) * 4
FILE_GROUPS: Final = (1, 10, 100, 1_000)
WINDOWS: Final = (1, 10, 100, 1_000, 8_000)
NO_SYNC: Final = "file, 1 KiB writes, never synced"
FILE_RECORDS_MAX: Final = 200_000
SYNCS: Final = 2_000


def write_in_groups(path: Path, count: int, group: int) -> float:
    """Write `count` records into a preallocated file, one by one, with a sync after each `group` of
    them (0: never); return the records per second.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, bytes(len(RECORD) * count))
        os.fsync(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        start = perf_counter()
        for number in range(1, count + 1):
            os.write(descriptor, RECORD)
            if group and number % group == 0:
                os.fdatasync(descriptor)
        return count / (perf_counter() - start)
    finally:
        os.close(descriptor)


async def append_with_window(cluster: Running, count: int, window: int) -> float:
    """Append `count` entries with `window` under way; return the entries per second."""
    async with cluster.client.create_ledger(Quorum.majority(3)) as ledger:
        under_way: deque[asyncio.Future[int]] = deque()
        start = perf_counter()
        for _ in range(count):
            if len(under_way) >= window:
                await under_way.popleft()
            under_way.append(ledger.append_nowait(RECORD))
        await asyncio.gather(*under_way)
        return count / (perf_counter() - start)


def _file_case(group: int) -> str:
    return f"file, 1 KiB writes, a sync for each {group:,}" if group else NO_SYNC


def _ledger_case(window: int) -> str:
    return f"ledger, E=WQ=3 AQ=2, 1 KiB, {window:,} under way"


async def _measure(bench: Bench) -> None:
    groups = (0, *FILE_GROUPS)
    for _, group in interleaved(groups, bench.repetitions):
        usual = FILE_RECORDS_MAX if not group else min(FILE_RECORDS_MAX, SYNCS * group)
        with bench.subdirectory() as directory:
            async with bench.measured(_file_case(group)):
                count = bench.size(usual, 50)
                rate = await asyncio.to_thread(write_in_groups, directory / "file", count, group)
                bench.report.sample(_file_case(group), {"per_s": rate})
    with bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            for _, window in interleaved(WINDOWS, bench.repetitions):
                async with bench.measured(_ledger_case(window)):
                    count = bench.size(min(100_000, 4_000 * window), 50)
                    rate = await append_with_window(cluster, count, window)
                    bench.report.sample(_ledger_case(window), {"per_s": rate})
    for case in [*map(_file_case, groups), *map(_ledger_case, WINDOWS)]:
        bench.report.figure(case, "per_s", "entries_per_s")
    _compare(bench, _file_case(1), [_file_case(group) for group in (*FILE_GROUPS[1:], 0)])
    _compare(bench, _ledger_case(1), [_ledger_case(window) for window in WINDOWS[1:]])


def _compare(bench: Bench, single: str, grouped: list[str]) -> None:
    """Report the speed of each case relative to one sync per write, run by run."""
    for case in grouped:
        pairs = zip(
            bench.report.values(case, "per_s"), bench.report.values(single, "per_s"), strict=True
        )
        times = [many / one for many, one in pairs]
        bench.report.figure(f"{case}: times {single!r}", "ratio", "ratio", values=times)


if __name__ == "__main__":
    run("grouping", _measure)
