"""Benchmark of what a cluster needs: memory and descriptors of each role, bytes of ZooKeeper for a
ledger, bytes of a disk for a payload byte.

One ZooKeeper, three bookies and a broker. They are looked at when they are idle, after many small
ledgers, after large ones, and with many clients. Leaves loads of a million ledgers on one bookie to
`benchmarks.bookies.many_states`, and restarts to `benchmarks.bookies.restart`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.measures import MEGABYTE
from benchmarks.processes import descriptors_of, usage_of
from benchmarks.runner import Bench, run
from ledger_client import LedgerClient, Quorum
from quire.local_cluster import LocalCluster

BOOKIES: Final = 3
QUORUM: Final = Quorum(BOOKIES, BOOKIES, 2)
AT_ONCE: Final = 50
"""Number of ledgers that are created at a time."""
BATCH: Final = 1_000
ENTRY_BYTES: Final = 1024


async def _measure(bench: Bench) -> None:
    small, large = bench.size(5_000, 100), bench.size(512 * MEGABYTE, MEGABYTE)
    clients = bench.size(100, 3)
    for _ in range(bench.repetitions):
        with bench.subdirectory() as directory:
            async with LocalCluster(BOOKIES, directory, broker=1) as cluster:
                await _measure_cluster(bench, cluster, small, large, clients)
    for role in ("zookeeper", "bookie", "broker"):
        for case in (f"{role}, idle", f"{role}, after {large // MEGABYTE} MB"):
            bench.report.figure(case, "memory_mb", "MB")
    for name in ("zookeeper_disk_bytes", "zookeeper_memory_bytes", "bookie_disk_bytes"):
        bench.report.figure(f"each of {small} small ledgers", name, "bytes")
    bench.report.figure(f"{large // MEGABYTE} MB of entries", "disk_per_payload_byte", "ratio")
    for name, unit in (("descriptors", "ratio"), ("memory_bytes", "bytes")):
        bench.report.figure(f"each of {clients} clients at a bookie", name, unit)


async def _measure_cluster(
    bench: Bench, cluster: LocalCluster, small: int, large: int, clients: int
) -> None:
    _note_memory(bench, cluster, "idle")
    async with LedgerClient(cluster.metadata_uri) as client:
        async with bench.measured("small ledgers"):
            await _note_small(bench, cluster, client, small)
        async with bench.measured("entries"):
            await _note_large(bench, cluster, client, large)
    _note_memory(bench, cluster, f"after {large // MEGABYTE} MB")
    async with bench.measured("clients"):
        await _note_clients(bench, cluster, clients)


def _note_memory(bench: Bench, cluster: LocalCluster, when: str) -> None:
    roles = {
        "zookeeper": [cluster.zookeeper.pid],
        "bookie": [bookie.pid for bookie in cluster.bookies],
        "broker": [broker.pid for broker in cluster.brokers],
    }
    for role, pids in roles.items():
        for pid in pids:
            anonymous = _memory(pid)
            row = {"memory_mb": anonymous / MEGABYTE, "descriptors": descriptors_of(pid)}
            bench.report.sample(f"{role}, {when}", row)


async def _note_small(
    bench: Bench, cluster: LocalCluster, client: LedgerClient, count: int
) -> None:
    zookeeper, bookie = cluster.data_dir / "zookeeper", cluster.bookies[0]
    before = _written(zookeeper), _memory(cluster.zookeeper.pid), _used(bookie.data_dir)
    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(_write_one(client) for _ in range(min(AT_ONCE, count - start))))
    after = _written(zookeeper), _memory(cluster.zookeeper.pid), _used(bookie.data_dir)
    names = ("zookeeper_disk_bytes", "zookeeper_memory_bytes", "bookie_disk_bytes")
    growth = [(late - early) / count for early, late in zip(before, after, strict=True)]
    bench.report.sample(f"each of {count} small ledgers", dict(zip(names, growth, strict=True)))


async def _write_one(client: LedgerClient) -> None:
    ledger = await client.create_ledger(QUORUM)
    await ledger.append(bytes(100))
    await ledger.aclose()


async def _note_large(bench: Bench, cluster: LocalCluster, client: LedgerClient, size: int) -> None:
    directories = [bookie.data_dir for bookie in cluster.bookies]
    before = sum(map(_used, directories))
    ledger = await client.create_ledger(QUORUM)
    batch = [bytes(ENTRY_BYTES)] * BATCH
    for _ in range(-(-size // (BATCH * ENTRY_BYTES))):
        await ledger.append_many(batch)
    await ledger.aclose()
    payload = (ledger.last_confirmed + 1) * ENTRY_BYTES
    ratio = (sum(map(_used, directories)) - before) / payload
    bench.report.sample(f"{size // MEGABYTE} MB of entries", {"disk_per_payload_byte": ratio})


async def _note_clients(bench: Bench, cluster: LocalCluster, count: int) -> None:
    pid = cluster.bookies[0].pid
    before = descriptors_of(pid), _memory(pid)
    async with AsyncExitStack() as stack:
        for _ in range(count):
            client = await stack.enter_async_context(LedgerClient(cluster.metadata_uri))
            await _write_one(client)
        row = {
            "descriptors": (descriptors_of(pid) - before[0]) / count,
            "memory_bytes": (_memory(pid) - before[1]) / count,
        }
    bench.report.sample(f"each of {count} clients at a bookie", row)


def _memory(pid: int) -> int:
    return usage_of(pid).anonymous_bytes or 0


def _files(directory: Path) -> Sequence[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _used(directory: Path) -> int:
    """Return the bytes that a directory's files occupy on the disk."""
    return sum(file.stat().st_blocks * 512 for file in _files(directory))


def _written(directory: Path) -> int:
    """Return the bytes of a directory's files; ZooKeeper preallocates its logs with zeros."""
    return sum(len(file.read_bytes().rstrip(b"\0")) for file in _files(directory))


if __name__ == "__main__":
    run("sizing", _measure, repeat=3)
