"""Benchmark of a million ledgers on one bookie: memory, start, and steps of the event loop.

The storage runs in a separate process, on a real disk, without sockets and clients. One process
adds one entry to each ledger; another opens the directory, reads from cold ledgers, checkpoints,
and deletes. Reports anonymous memory, seconds, and the longest step of the event loop by its
thread's CPU time. Leaves appends by clients to `benchmarks.ledgers.many_ledgers`.

Target: at most 150 MB with 1,000,000 ledgers, and no step over 50 ms.
"""

import argparse
import asyncio
import gc
import sys
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import perf_counter, thread_time
from typing import Any, Final

from benchmarks.measures import MEGABYTE
from benchmarks.runner import Bench, run
from bookie.config import StorageConfig
from bookie.files.disk_real import RealDisk
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.batch import BatchView, build_batch
from bookie.wire.messages import Status
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from quire.server.process import COLLECT_AFTER_OBJECTS

LEDGERS: Final = 1_000_000
WAVE: Final = 1_000
"""Number of concurrent adds."""
ENTRY: Final = bytes(100)
KEY: Final = bytes(32)
READS: Final = 10_000
CONFIG: Final = StorageConfig(disk_high_mark=1.0, disk_low_mark=0.999999, reserve_bytes_min=2**20)


class _Steps:
    """Longest step of the event loop since the last call of `take_ms`, in seconds of thread CPU
    time.
    """

    def __init__(self) -> None:
        self._longest_s = 0.0
        original = events.Handle._run  # noqa: SLF001 - no public function sees single steps

        def run_timed(handle: events.Handle) -> None:
            before = thread_time()
            original(handle)
            self._longest_s = max(self._longest_s, thread_time() - before)

        events.Handle._run = run_timed  # type: ignore[method-assign,assignment]  # noqa: SLF001

    def take_ms(self) -> float:
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1e3


def _anonymous_mb() -> float:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    return 0.0


async def _opened(directory: Path) -> BookieStorage:
    return await BookieStorage.open(RealDisk(directory), CONFIG, rng=Random(1))


async def _add_wave(storage: BookieStorage, first: int, count: int, entry_id: int) -> None:
    left, ended = count, asyncio.get_running_loop().create_future()

    def note(status: Status) -> None:
        nonlocal left
        assert status is Status.OK, status
        left -= 1
        if not left:
            ended.set_result(None)

    for ledger_id in range(first, first + count):
        batch = build_batch(LedgerId(ledger_id), EntryId(entry_id), NO_ENTRY, 0, [ENTRY], 0)
        storage.add(BatchView(batch), recovery=False, master_key=KEY, done=note)
    await ended


async def _fill(directory: Path, count: int) -> dict[str, float]:
    steps, storage = _Steps(), await _opened(directory)
    background = asyncio.create_task(storage.background())
    peak_mb, start = 0.0, perf_counter()
    for first in range(0, count, WAVE):
        await storage.wait_for_room()
        await _add_wave(storage, first, min(WAVE, count - first), 0)
        if first % (5 * WAVE) == 0:
            peak_mb = max(peak_mb, _anonymous_mb())
    adding_s = perf_counter() - start
    adding_ms = steps.take_ms()
    await storage.checkpoint()
    figures = {
        "adds_per_s": count / adding_s,
        "peak_anonymous_MB": max(peak_mb, _anonymous_mb()),
        "anonymous_MB": _anonymous_mb(),
        "longest_step_while_adding_ms": adding_ms,
        "longest_step_of_last_checkpoint_ms": steps.take_ms(),
    }
    background.cancel()
    await asyncio.gather(background, return_exceptions=True)
    await storage.close()
    return figures


async def _use(directory: Path, count: int) -> dict[str, float]:
    steps, start = _Steps(), perf_counter()
    storage = await _opened(directory)
    figures = {"start_s": perf_counter() - start, "start_longest_step_ms": steps.take_ms()}
    gc.collect()
    figures["anonymous_MB"] = _anonymous_mb()
    steps.take_ms()
    rng, start = Random(2), perf_counter()
    ids = [LedgerId(rng.randrange(count)) for _ in range(READS)]
    for first in range(0, len(ids), 100):
        reads = (storage.reads.read_lac(ledger_id, KEY) for ledger_id in ids[first : first + 100])
        assert all(read.status is Status.OK for read in await asyncio.gather(*reads))
    figures["cold_lac_reads_per_s"] = len(ids) / (perf_counter() - start)
    figures["longest_step_while_reading_ms"] = steps.take_ms()
    await _add_wave(storage, 0, min(WAVE, count), 1)
    steps.take_ms()
    await storage.checkpoint()
    figures["longest_step_of_checkpoint_ms"] = steps.take_ms()
    deleted = LedgerId(count // 2)
    await _find_held(storage, [deleted])
    assert await storage.delete_ledger(deleted) is Status.OK
    figures["longest_step_of_deletion_ms"] = steps.take_ms()
    figures["anonymous_MB_after_use"] = _anonymous_mb()
    await storage.close()
    return figures


async def _find_held(storage: BookieStorage, ledger_ids: list[LedgerId]) -> None:
    """Look up which ledgers the bookie holds, as the collector does."""
    assert await storage.find_held(ledger_ids) == ledger_ids


def _phase(
    work: Callable[[Path, int], Coroutine[Any, Any, dict[str, float]]], directory: Path, count: int
) -> dict[str, float]:
    sys.setswitchinterval(0.00005)  # as a bookie's process does
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    gc.freeze()
    return asyncio.run(work(directory, count))


async def _measure(bench: Bench) -> None:
    count = bench.size(int(bench.options.ledgers), 2_000)
    for _ in range(bench.repetitions):
        with bench.subdirectory() as directory:
            for name, work in (("fill", _fill), ("start and use", _use)):
                async with bench.measured(f"{name}: {count} ledgers"):
                    figures = await _in_a_process(work, directory, count)
                bench.report.sample(name, dict(figures))


async def _in_a_process(
    work: Callable[[Path, int], Coroutine[Any, Any, dict[str, float]]], directory: Path, count: int
) -> dict[str, float]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        called: Awaitable[dict[str, float]] = asyncio.get_running_loop().run_in_executor(
            pool, _phase, work, directory, count
        )
        return await called


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledgers", type=int, default=LEDGERS, help="number of ledgers")


if __name__ == "__main__":
    run("many_states", _measure, _options, repeat=1)
