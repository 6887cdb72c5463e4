"""Benchmark of the event loop of a bookie's storage: the longest callback, and the lag of timers,
during the most expensive work.

The storage runs in this process, on a real disk, without sockets. Each case prints one JSON line:
the longest callback in processor time of the loop's thread (garbage collection included) with its
name, and the lag of a timer of 1 ms in wall time (p99.9 and worst), which other processes and
threads increase.

Target: no callback above 50 ms of processor time.
"""

import argparse
import asyncio
import gc
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bookie.config import MIB, StorageConfig
from bookie.files.disk_real import RealDisk
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.batch import BatchView, build_batch
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId

KEY: Final = b"k" * 32
PROBE_S: Final = 0.001
COLD_READS: Final = 2_000
LEDGERS: Final = 100
TINY_BYTES: Final = 30
TINY_RECORDS: Final = 100_000
LARGE_BYTES: Final = 60_000
BURST_RECORDS: Final = 50_000
QUEUED_MAX: Final = 5_000


class Watch:
    """Longest callback, and lag of timers, since the last `take`."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._what = ""
        self._lags: list[float] = []

    def install(self) -> None:
        """Time every callback of asyncio's event loop."""
        run = asyncio.Handle._run  # noqa: SLF001 - no other place sees all of them

        def timed(handle: asyncio.Handle) -> None:
            before = time.thread_time()
            run(handle)
            taken = time.thread_time() - before
            if taken > self._longest_s:
                self._longest_s, self._what = taken, _name_of(handle)

        asyncio.Handle._run = timed  # type: ignore[method-assign,assignment]  # noqa: SLF001

    async def probe(self) -> None:
        """Record the lag of a timer until cancelled."""
        while True:
            due = time.perf_counter() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self._lags.append(max(0.0, time.perf_counter() - due))

    def take(self) -> dict[str, object]:
        """Return the measurements, and reset them."""
        lags, self._lags = sorted(self._lags), []
        longest_s, self._longest_s = self._longest_s, 0.0
        return {
            "longest_callback_cpu_ms": round(longest_s * 1000, 1),
            "in": self._what,
            "lag_p99.9_ms": round(lags[int(len(lags) * 0.999)] * 1000, 1) if lags else None,
            "lag_worst_ms": round(lags[-1] * 1000, 1) if lags else None,
        }


def _name_of(handle: asyncio.Handle) -> str:
    callback: Any = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", owner))
    return str(getattr(callback, "__qualname__", callback))


class Run:
    """One storage in a separate directory, and the cases on it."""

    def __init__(self, watch: Watch, root: Path, share: float) -> None:
        self._watch = watch
        self._root = root
        self._share = share
        self._records = int(1_000_000 * share)

    @asynccontextmanager
    async def _open(self, name: str) -> AsyncIterator[BookieStorage]:
        config = StorageConfig(
            segment_records_max=self._records, reserve_bytes_min=MIB, reserve_share=0.0
        )
        disk = RealDisk(self._root / name)
        storage = await BookieStorage.open(disk, config, rng=random.Random(1))
        background = asyncio.create_task(storage.background())
        try:
            yield storage
        finally:
            background.cancel()
            await asyncio.gather(background, return_exceptions=True)
            await storage.close()

    async def case(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run one case and print its measurements."""
        await asyncio.sleep(0.1)
        self._watch.take()
        start = time.perf_counter()
        await work()
        await asyncio.sleep(0.05)
        seconds = round(time.perf_counter() - start, 2)
        print(json.dumps({"case": name, "seconds": seconds, **self._watch.take()}), flush=True)

    async def run(self) -> None:
        """Run all cases."""
        await self._large_entries()
        await self._tiny_entries()

    async def _large_entries(self) -> None:
        count = int(8_000 * self._share)
        async with self._open("large") as storage:
            await _add_all(storage, _spread(count, LARGE_BYTES, LEDGERS))
            await self.case(
                f"{COLD_READS} cold reads beside appends", lambda: _read_cold(storage, count)
            )

    async def _tiny_entries(self) -> None:
        records, one = self._records, LedgerId(LEDGERS + 1)
        async with self._open("tiny") as storage:
            await self.case(
                f"{records} appends, with checkpoints and a new segment",
                lambda: _add_all(storage, _spread(records + 10, TINY_BYTES, LEDGERS)),
            )
            burst = [_batch(LEDGERS, number, TINY_BYTES) for number in range(BURST_RECORDS)]
            await self.case("a burst of appends", lambda: _burst(storage, burst))
            batches = (_batch(one, number, TINY_BYTES) for number in range(TINY_RECORDS))
            await _add_all(storage, batches)
            await storage.checkpoint()
            await self.case("cleaning looks at a segment", storage.clean)
            await self.case("8 MB of one-entry batches", lambda: _read(storage, one, 0, 8 * MIB))
            last = 1 * MIB // (TINY_BYTES + 100)
            await self.case("an entry late in a run", lambda: _read(storage, one, last, 1))

        async def start() -> None:
            async with self._open("tiny"):
                pass

        await self.case("a start and an orderly end", start)
        await self.case("a full garbage collection", _collect)


async def _collect() -> None:
    gc.collect()


def _batch(ledger_id: int, entry_id: int, size: int) -> BatchView:
    payload = bytes(size)
    data = build_batch(
        LedgerId(ledger_id), EntryId(entry_id), EntryId(entry_id - 1), 0, [payload], ledger_id, None
    )
    return BatchView(data)


def _spread(count: int, size: int, ledgers: int) -> Any:
    return (_batch(number % ledgers, number // ledgers, size) for number in range(count))


async def _add_all(storage: BookieStorage, batches: Any) -> None:
    """Add batches with some thousand outstanding."""
    outstanding = 0
    room = asyncio.Event()

    def done(status: Status) -> None:
        nonlocal outstanding
        assert status is Status.OK, status
        outstanding -= 1
        if outstanding <= QUEUED_MAX // 2:
            room.set()

    for turn, batch in enumerate(batches):
        outstanding += 1
        storage.add(batch, recovery=False, master_key=KEY, done=done)
        if outstanding >= QUEUED_MAX:
            room.clear()
            await room.wait()
        elif turn % 256 == 255:
            await asyncio.sleep(0)
    while outstanding:
        room.clear()
        await room.wait()


async def _burst(storage: BookieStorage, batches: list[BatchView]) -> None:
    """Add as many small batches as the queue accepts, in pieces of the size of one socket read."""
    answered = 0
    finished = asyncio.Event()

    def done(_: Status) -> None:
        nonlocal answered
        answered += 1
        if answered == BURST_RECORDS:
            finished.set()

    for start in range(0, BURST_RECORDS, 512):
        for batch in batches[start : start + 512]:
            storage.add(batch, recovery=False, master_key=KEY, done=done)
        await asyncio.sleep(0)
    await finished.wait()


async def _read(storage: BookieStorage, ledger_id: int, first: int, bytes_max: int) -> None:
    read = await storage.reads.read(
        LedgerId(ledger_id), EntryId(first), EntryId(2**40), bytes_max, KEY, after_fence=False
    )
    assert read.status is Status.OK, read.status


async def _read_cold(storage: BookieStorage, count: int) -> None:
    rng = random.Random(2)
    places = [rng.randrange(count) for _ in range(COLD_READS)]
    reads = [
        asyncio.ensure_future(_read(storage, place % LEDGERS, place // LEDGERS, 1))
        for place in places
    ]
    adding = _add_all(
        storage,
        (_batch(number % LEDGERS, 2**30 + number, 1_000) for number in range(20_000)),
    )
    await asyncio.gather(adding, *reads)


async def _main(share: float, directory: str | None) -> None:
    root = Path(tempfile.mkdtemp(dir=directory))
    watch = Watch()
    watch.install()
    probing = asyncio.create_task(watch.probe())
    try:
        await Run(watch, root, share).run()
    finally:
        probing.cancel()
        shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of a million records")
    parser.add_argument("--dir", help="directory for the data, on the disk to measure")
    options = parser.parse_args()
    sys.setswitchinterval(0.00005)
    gc.set_threshold(20_000)
    gc.freeze()
    asyncio.run(_main(options.share, options.dir))


if __name__ == "__main__":
    main()
