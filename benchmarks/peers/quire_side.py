"""Load on Quire, in the usual configuration: E = WQ = 3, AQ = 2, every store synced.

Leaves the cluster to `benchmarks.cluster` and the ways to append and read to `append_load`,
`open_loop` and `read`, which the project's own benchmarks use.
"""

import asyncio
import os
from collections import deque
from time import perf_counter
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.ledgers.append_load import append_by_many, append_one_by_one
from benchmarks.ledgers.open_loop import OpenLoop, append_at
from benchmarks.ledgers.read import read_batches, read_entries
from benchmarks.ledgers.workload import Load
from benchmarks.measures import arrivals, latency_figures, megabytes_per_second
from benchmarks.peers.workloads import (
    KIB_BYTES,
    KIB_OUTSTANDING,
    OPEN_PER_S,
    PAUSE_PER_S,
    SMALL_BYTES,
    SMALL_OUTSTANDING,
    Subject,
    Trial,
    Workload,
)
from ledger_client import LedgerWriter, Quorum

MAJORITY: Final = Quorum(3, 3, 2)
ALL: Final = Quorum(3, 3, 3)
GROUPS: Final = 16
"""Number of parts in which a window is freed. Entries are confirmed in order and in batches, so a
wait for each entry would measure the waits."""


async def measure_load(trial: Trial) -> None:
    """Append and read on three bookies."""
    counts = trial.sizes.quire
    with trial.bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            await append_within(cluster, Load(KIB_BYTES, counts.warm_up), KIB_OUTSTANDING)
            for workload in trial.appends():
                async with trial.bench.measured(f"{Subject.QUIRE}: {workload}"):
                    await _append(trial, cluster, workload)
            await _read(trial, cluster)
            peak = cluster.largest_bookie()
    resident = peak.anonymous_bytes + peak.mapped_bytes
    trial.note(Workload.MEMORY, Subject.QUIRE, {"resident_MB": resident / 1e6})


async def measure_pause(trial: Trial) -> None:
    """Pause a member of the ensemble while appends are due at a fixed rate."""
    sizes = trial.sizes
    with trial.bench.subdirectory() as directory:
        async with (
            running(directory, 5) as cluster,
            trial.bench.measured(f"{Subject.QUIRE}: {Workload.PAUSE}"),
            cluster.client.create_ledger(ALL) as ledger,
        ):
            payload = os.urandom(KIB_BYTES)
            await append_at(ledger, payload, arrivals(PAUSE_PER_S, sizes.pause_warm_up_s))
            pausing = asyncio.create_task(_pause_member(cluster, ledger, sizes.pause_from_s))
            done = await append_at(ledger, payload, arrivals(PAUSE_PER_S, sizes.pause_s))
            await pausing
            figures = _open_figures(done, sizes.pause_judged_from_s)
            figures["fragments"] = len(ledger.info.fragments)
    trial.note(Workload.PAUSE, Subject.QUIRE, figures)


async def append_within(cluster: Running, load: Load, outstanding: int) -> dict[str, object]:
    """Append entry by entry, with a handle each and at most `outstanding` under way."""
    group_size = max(1, outstanding // GROUPS)
    async with cluster.client.create_ledger(MAJORITY) as ledger:
        payloads = load.payloads()
        groups: deque[asyncio.Future[int]] = deque()
        start = perf_counter()
        handle: asyncio.Future[int] | None = None
        for number, payload in enumerate(payloads, 1):
            handle = ledger.append_nowait(payload)
            if number % group_size == 0:
                groups.append(handle)
                if len(groups) == GROUPS:
                    await groups.popleft()
        if handle is not None:
            await handle
        seconds = perf_counter() - start
    return _rates(load.entry_count, load.payload_bytes, seconds)


async def _append(trial: Trial, cluster: Running, workload: Workload) -> None:
    counts, note = trial.sizes.quire, trial.note
    match workload:
        case Workload.KIB:
            load, outstanding = Load(KIB_BYTES, counts.kib), KIB_OUTSTANDING
        case Workload.SMALL:
            load, outstanding = Load(SMALL_BYTES, counts.small), SMALL_OUTSTANDING
        case Workload.SINGLE:
            load = Load(KIB_BYTES, counts.single)
            seconds = await append_one_by_one(cluster, MAJORITY, load)
            note(workload, Subject.QUIRE, {**latency_figures(seconds)})
            return
        case _:
            note(workload, Subject.QUIRE, await _open_loop(trial, cluster))
            return
    note(workload, Subject.QUIRE, await append_within(cluster, load, outstanding))
    async with trial.bench.measured(f"{Subject.QUIRE_MANY}: {workload}"):
        appended = await append_by_many(cluster, MAJORITY, load)
    note(workload, Subject.QUIRE_MANY, appended.as_json())


async def _open_loop(trial: Trial, cluster: Running) -> dict[str, object]:
    sizes, payload = trial.sizes, os.urandom(KIB_BYTES)
    async with cluster.client.create_ledger(MAJORITY) as ledger:
        await append_at(ledger, payload, arrivals(OPEN_PER_S, sizes.open_warm_up_s))
        done = await append_at(ledger, payload, arrivals(OPEN_PER_S, sizes.open_s))
    return _open_figures(done, 0.0)


async def _read(trial: Trial, cluster: Running) -> None:
    load = Load(KIB_BYTES, trial.sizes.quire.read)
    async with cluster.client.create_ledger(MAJORITY) as ledger:
        await ledger.append_many(load.payloads())
    for subject, way in ((Subject.QUIRE, read_batches), (Subject.QUIRE_ENTRIES, read_entries)):
        async with (
            trial.bench.measured(f"{subject}: {Workload.READ}"),
            cluster.client.open_ledger(ledger.id) as reader,
        ):
            await way(reader)  # a warm-up, as for every system
            start = perf_counter()
            count, size = await way(reader)
            seconds = perf_counter() - start
        trial.note(Workload.READ, subject, _rates(count, size, seconds))


async def _pause_member(cluster: Running, ledger: LedgerWriter, after_s: float) -> None:
    await asyncio.sleep(after_s)
    member = str(ledger.info.fragments[-1].ensemble[0])
    next(bookie for bookie in cluster.bookies if bookie.id == member).pause()


def _open_figures(done: OpenLoop, from_s: float) -> dict[str, object]:
    before = latency_figures(done.took_before(from_s))
    return {
        **latency_figures(done.took_after(from_s)),
        **{f"before_{name}": value for name, value in before.items()},
        "failed_count": len(done.failures),
        "first_failure": done.failures[0] if done.failures else None,
        "generator_late_ms_max": done.late_ms_max,
    }


def _rates(count: int, size: int, seconds: float) -> dict[str, object]:
    return {
        "entry_count": count,
        "seconds": seconds,
        "entries_per_s": count / seconds,
        "MB_per_s": megabytes_per_second(size, seconds),
    }
