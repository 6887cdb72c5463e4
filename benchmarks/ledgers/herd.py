"""Benchmark of many open in-sync ledgers of one client while a bookie leaves and returns.

10,000 ledgers with three members each, on three bookies and a real ZooKeeper. Phases: all are
opened; the client rests; one bookie stops, and every ledger continues without it; one entry is
appended to each; the bookie starts again, and every ledger copies to it what it lacks. With
`--min-in-sync 3` no member may leave: appends are refused while the bookie is away.

Reports for each phase the seconds, the longest lag of a timer in the client's event loop, the
longest callback in processor time (with `--loop asyncio`), the longest garbage collection, which
both include, and the requests to ZooKeeper by kind: mean and peak per second. Garbage is not
collected from the stop of the bookie on, except with `--collect`: a full collection scans all
ledgers, in whichever callback it falls. Leaves appends without faults to
`benchmarks.ledgers.many_ledgers`.

Target: no lag above 100 ms from the stop of the bookie on.
"""

import argparse
import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic, thread_time
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Transaction

from benchmarks.bookies.loop_lag import Watch
from benchmarks.cluster import Running, running
from benchmarks.runner import Bench, run
from ledger_client import LedgerError, LedgerWriter, Quorum
from quire.errors import LocalClusterError

REPLICAS: Final = 3
AT_ONCE: Final = 100
ENTRY_BYTES: Final = 1024
LAG_MS_WANTED: Final = 100.0
LOOK_S: Final = 0.1
PHASE_S_MAX: Final = 600.0
PHASES: Final = ("open", "rest", "leave", "append", "away", "return")


class Requests:
    """Requests of this process to ZooKeeper since the last `take`."""

    def __init__(self) -> None:
        self._sent: list[tuple[float, str, int]] = []

    def install(self) -> None:
        """Count every request that is passed to kazoo."""
        send = KazooClient._call  # noqa: SLF001 - no other place sees all of them

        def counted(client: Any, request: Any, answer: Any) -> Any:
            is_multi = isinstance(request, Transaction)
            size = len(request.operations) if is_multi else 1
            self._sent.append((monotonic(), type(request).__name__, size))
            return send(client, request, answer)

        KazooClient._call = counted  # noqa: SLF001

    def take(self, seconds: float) -> dict[str, object]:
        """Return the figures of a phase, and reset them. An operation of a multi counts like a
        request of its own.
        """
        sent, self._sent = self._sent, []
        kinds: Counter[str] = Counter()
        by_second: Counter[int] = Counter()
        for at, kind, size in sent:
            kinds[kind] += size
            by_second[int(at)] += size
        return {
            "metadata_operations": kinds.total(),
            "metadata_operations_per_s_mean": round(kinds.total() / max(seconds, LOOK_S), 1),
            "metadata_operations_per_s_peak": max(by_second.values(), default=0),
            "metadata_by_kind": dict(kinds.most_common()),
        }


class Collections:
    """Longest garbage collection since the last `take`, in processor time."""

    def __init__(self) -> None:
        self._begun_s = 0.0
        self._longest_s = 0.0
        gc.callbacks.append(self._note)

    def take(self) -> float:
        """Return the longest one in milliseconds, and reset it."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return round(longest_s * 1000, 1)

    def _note(self, phase: str, _facts: object) -> None:
        if phase == "start":
            self._begun_s = thread_time()
        else:
            self._longest_s = max(self._longest_s, thread_time() - self._begun_s)


class Herd:
    """One cluster, its open ledgers, and the phases."""

    def __init__(self, bench: Bench, cluster: Running) -> None:
        self._bench = bench
        self._cluster = cluster
        self._count = bench.size(int(bench.options.ledgers), 60)
        self._min_in_sync = int(bench.options.min_in_sync)
        self._watch = Watch()
        self._requests = Requests()
        self._collections = Collections()
        self._ledgers: list[LedgerWriter] = []
        self._failures: list[str] = []

    async def run(self) -> None:
        """Run all phases."""
        bench, bookie = self._bench, self._cluster.bookies[0]
        self._watch.install()
        self._requests.install()
        probing = asyncio.create_task(self._watch.probe())
        async with self._phase("open"):
            await self._each(range(self._count), self._open)
        async with self._phase("rest"):
            await asyncio.sleep(bench.size(max(10, self._count // 200), 1))
        if not bench.options.collect:
            gc.disable()
        async with self._phase("leave"):
            with suppress(LocalClusterError):  # this loop was held up while the bookie stopped
                await bookie.stop()
            await self._until(lambda seen: bookie.id not in seen.in_sync)
        async with self._phase("append"):
            await self._each(self._ledgers, self._append)
        async with self._phase("away"):
            await asyncio.sleep(bench.size(20, 1))
        async with self._phase("return"):
            await bookie.start()
            await self._until(lambda seen: len(seen.in_sync) == REPLICAS)
        probing.cancel()
        await self._each(self._ledgers, self._close)

    @asynccontextmanager
    async def _phase(self, name: str) -> AsyncIterator[None]:
        self._bench.report.note(name)
        self._watch.take()
        self._requests.take(1.0)
        self._collections.take()
        metered = self._cluster.metered()
        start = monotonic()
        yield
        seconds = monotonic() - start
        client, _bookies = metered.finish()
        values = {
            "seconds": round(seconds, 2),
            "client_cpu_s": client.cpu_s,
            **self._watch.take(),
            "longest_collection_cpu_ms": self._collections.take(),
            **self._requests.take(seconds),
            "failures": dict(Counter(self._failures).most_common(3)),
        }
        self._failures.clear()
        self._bench.report.sample(name, values)

    async def _each(self, items: Sequence[Any], work: Callable[[Any], Awaitable[None]]) -> None:
        """Call `work` with every item, AT_ONCE at a time; keep the errors."""
        left = iter(items)

        async def worker() -> None:
            for item in left:
                try:
                    await work(item)
                except LedgerError as error:
                    self._failures.append(type(error).__name__)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    async def _open(self, _number: int) -> None:
        quorum = Quorum.in_sync(REPLICAS, self._min_in_sync)
        ledger = await self._cluster.client.create_ledger(quorum)
        await ledger.append(bytes(ENTRY_BYTES))
        self._ledgers.append(ledger)

    async def _append(self, ledger: LedgerWriter) -> None:
        await ledger.append(bytes(ENTRY_BYTES))

    async def _close(self, ledger: LedgerWriter) -> None:
        await ledger.aclose()

    async def _until(self, has: Callable[[LedgerWriter], bool]) -> None:
        """Wait until a condition holds for every ledger; check those where it did not hold."""
        end = monotonic() + PHASE_S_MAX
        left = list(self._ledgers)
        while left and monotonic() < end:
            while left and has(left[-1]):
                left.pop()
            await asyncio.sleep(LOOK_S)
        self._failures += ["not in time"] * sum(not has(writer) for writer in left)


async def _measure(bench: Bench) -> None:
    for _ in range(bench.repetitions):
        with bench.subdirectory() as directory:
            async with running(directory, REPLICAS) as cluster:
                await Herd(bench, cluster).run()
    for phase in PHASES:
        is_wanted = phase not in ("open", "rest")
        at_most = LAG_MS_WANTED if is_wanted else None
        bench.report.figure(phase, "seconds", "s")
        bench.report.figure(phase, "lag_worst_ms", "ms", at_most=at_most)
        bench.report.figure(phase, "metadata_operations_per_s_peak", "entries_per_s")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--min-in-sync", type=int, default=2, help="3: appends are refused")
    parser.add_argument("--collect", action="store_true", help="collect garbage in all phases")


if __name__ == "__main__":
    run("herd", _measure, _options, repeat=1)
