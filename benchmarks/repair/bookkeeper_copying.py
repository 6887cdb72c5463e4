"""Apache BookKeeper's auto-recovery, for the benchmark of copying: the same ledgers and the same
loss, with one process of its auditor and worker.

Leaves the processes to `benchmarks.peers.bookkeeper`, and the figures to
`benchmarks.repair.copying`.

Invariants: the time is that from the first ledger that the auditor reports to the last one that the
worker takes off the list; after it, no ledger names the lost bookie. Settings are BookKeeper's own,
except that a bookie which is gone counts as lost at once.

Source: BookKeeper's `ZkLedgerUnderreplicationManager` and `HierarchicalLedgerManager`, 4.17.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from benchmarks.measures import megabytes_per_second
from benchmarks.peers.bookkeeper import MAJORITY, running_bookies
from benchmarks.peers.java_process import PeerFailedError
from benchmarks.peers.maven import JavaPeer
from benchmarks.processes import usage_of
from benchmarks.repair.losing import ENTRY_BYTES, REPAIR_S_MAX

LEDGERS: Final = "/ledgers"
REPORTED: Final = f"{LEDGERS}/underreplication/ledgers"
ELECTION: Final = f"{LEDGERS}/underreplication/auditorelection"
OUTSTANDING: Final = 2_000
LOOK_S: Final = 0.05


async def measure_copying(
    directory: Path, java: JavaPeer, logs: Path, ledger_count: int, ledger_entries: int
) -> dict[str, object]:
    """Fill ledgers on three bookies, start a fourth, kill the first, and wait for the copies."""
    logs.mkdir(parents=True, exist_ok=True)
    async with running_bookies(directory, java, logs, 3) as bookies:
        append_s = 0.0
        for _ in range(ledger_count):
            start = perf_counter()
            await bookies.client.ask("append", MAJORITY, ENTRY_BYTES, ledger_entries, OUTSTANDING)
            append_s += perf_counter() - start
        lost = next(iter(bookies.servers))
        target = bookies.servers[await bookies.add_bookie()]
        with _zookeeper(bookies.zookeeper) as zookeeper:
            async with bookies.auto_recovery() as worker:
                await _until_auditor(zookeeper)
                await bookies.servers[lost].kill()
                await _until(zookeeper, has_reports=True)
                before = _cpu_s(worker.pid), _cpu_s(target.pid)
                start = perf_counter()
                await _until(zookeeper, has_reports=False)
                seconds = perf_counter() - start
                after = _cpu_s(worker.pid), _cpu_s(target.pid)
            if named := await asyncio.to_thread(_count_naming, zookeeper, f":{lost}".encode()):
                raise PeerFailedError(f"{named} ledgers still name the lost bookie")
    size = ledger_count * ledger_entries * ENTRY_BYTES
    copied, appended = (megabytes_per_second(size, took) for took in (seconds, append_s))
    return {
        "MB_per_s": copied,
        "append_MB_per_s": appended,
        "seconds": seconds,
        "share_of_append": copied / appended,
        "worker_cpu_s": round(after[0] - before[0], 2),
        "target_cpu_s": round(after[1] - before[1], 2),
    }


@contextlib.contextmanager
def _zookeeper(address: str) -> Iterator[KazooClient]:
    client = KazooClient(address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


async def _until_auditor(zookeeper: KazooClient) -> None:
    """Wait until an auditor is elected: it compares the bookies with those that it knew."""
    async with asyncio.timeout(REPAIR_S_MAX):
        while True:
            if await asyncio.to_thread(_children, zookeeper, ELECTION):
                return
            await asyncio.sleep(LOOK_S)


async def _until(zookeeper: KazooClient, *, has_reports: bool) -> None:
    async with asyncio.timeout(REPAIR_S_MAX):
        while True:
            if await asyncio.to_thread(_has_reports, zookeeper, REPORTED) is has_reports:
                return
            await asyncio.sleep(LOOK_S)


def _children(zookeeper: KazooClient, path: str) -> list[str]:
    try:
        return list(zookeeper.get_children(path))
    except NoNodeError:
        return []


def _has_reports(zookeeper: KazooClient, path: str) -> bool:
    names = _children(zookeeper, path)
    return any(
        name.startswith("urL") or _has_reports(zookeeper, f"{path}/{name}") for name in names
    )


def _count_naming(zookeeper: KazooClient, bookie: bytes, path: str = LEDGERS) -> int:
    """Return how many ledgers below a path name a bookie."""
    count = 0
    for name in _children(zookeeper, path):
        below = f"{path}/{name}"
        if name.startswith("L") and name[1:].isdigit():
            count += bookie in zookeeper.get(below)[0]
        elif name.isdigit():
            count += _count_naming(zookeeper, bookie, below)
    return count


def _cpu_s(pid: int) -> float:
    return usage_of(pid).cpu_s or 0.0
