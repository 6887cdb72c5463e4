"""Servers and clients of this release and of the previous one work together, and a cluster is
upgraded server by server while a writer goes on.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from ledger_client import LedgerClient, LedgerWriter, Quorum
from metadata.store.embedded import EmbeddedZooKeeper
from tests.integration.upgrade.previous_release import ROOT, Server, command, previous_tree

THREE = Quorum(ensemble=3, write=3, ack=2)
LINES = b"".join(b"line %d\n" % each for each in range(50))

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@contextmanager
def servers(directory: Path, metadata: str, tree: Path) -> Iterator[list[Server]]:
    """Run three bookies and a broker of a release."""
    found = [
        Server(
            (
                *("bookie", "run", "--data-dir", str(directory / name), "--metadata", metadata),
                *("--format-if-empty", name, "--reserve-bytes-min", "1048576"),
                *("--reserve-share", "0", "--disk-high-mark", "1.0", "--disk-low-mark", "0.99"),
                *("--segment-bytes-max", "16777216"),
            ),
            metadata,
            directory / f"{name}.log",
        )
        for name in ("one", "two", "three")
    ]
    listeners = ("--listeners", "PLAINTEXT://127.0.0.1:0")
    broker = ("broker", "run", "--broker-id", "1", "--metadata", metadata, *listeners)
    found.append(Server(broker, metadata, directory / "broker.log"))
    try:
        for each in found:
            each.start(tree)
        yield found
    finally:
        for each in reversed(found):
            each.stop()


@asynccontextmanager
async def zookeeper(directory: Path) -> AsyncIterator[str]:
    async with EmbeddedZooKeeper(directory) as running:
        yield f"zk://127.0.0.1:{running.port}/quire"


async def append_more(writer: LedgerWriter, count: int) -> None:
    await writer.append_many(b"%d" % each for each in range(count))


async def check(client: LedgerClient, old: Path, metadata: str, ledgers: list[int]) -> None:
    """Read ledgers with both releases."""
    for ledger_id in ledgers:
        async with client.open_ledger(ledger_id) as reader:
            found = [entry.data async for batch in reader.read() for entry in batch]
        assert b"".join(each + b"\n" for each in found) == LINES
        read = await asyncio.to_thread(command, old, metadata, "ledger", "read", str(ledger_id))
        assert read == LINES


async def append(tree: Path, metadata: str) -> int:
    """Write a ledger with the command of a release."""
    words = ("ledger", "append", "-o", "json")
    told = await asyncio.to_thread(command, tree, metadata, *words, stdin=LINES)
    return int(json.loads(told)["ledger_id"])


async def produce(tree: Path, metadata: str) -> None:
    words = ("topic", "produce", "orders", "--create")
    await asyncio.to_thread(command, tree, metadata, *words, stdin=LINES)


async def test_a_cluster_is_upgraded_server_by_server(tmp_path: Path) -> None:
    old = previous_tree(tmp_path / "previous")
    async with zookeeper(tmp_path / "zookeeper") as metadata:
        with servers(tmp_path, metadata, old) as running:
            async with LedgerClient(metadata) as client:
                ledgers = [await append(old, metadata), await append(ROOT, metadata)]
                await produce(old, metadata)
                await check(client, old, metadata, ledgers)
                async with client.create_ledger(THREE) as writer:
                    total = 0
                    for number, server in enumerate(running, 1):
                        await append_more(writer, 10 * number)
                        total += 10 * number
                        await asyncio.to_thread(server.stop)
                        await asyncio.to_thread(server.start, ROOT)
                        ledgers += [await append(old, metadata), await append(ROOT, metadata)]
                        await produce(ROOT if number % 2 else old, metadata)
                        await check(client, old, metadata, ledgers)
                    await append_more(writer, 5)
                async with client.open_ledger(writer.id) as reader:
                    assert reader.last_confirmed == total + 4
                told = json.loads(command(ROOT, metadata, "cluster", "version", "-o", "json"))
                assert told["state"].startswith("All 4 servers run ")
                words = ("topic", "consume", "orders", "--partition", "0")
                read = await asyncio.to_thread(command, ROOT, metadata, *words)
                assert read == 5 * LINES
