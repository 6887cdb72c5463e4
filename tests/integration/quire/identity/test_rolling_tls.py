"""TLS is turned on in a running cluster, step by step, and off again; no append fails."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ledger_client import LedgerClient, LedgerWriter, Quorum
from quire.local.secure_directory import SecureDirectory
from quire.local_cluster import LocalCluster

FOUR = 4
ENTRIES_MIN = 50
QUORUM = Quorum(3, 3, 2)
OFF = {"tls": "off"}


class Appending:
    """Appends of one client until it is stopped."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self._is_stopped = False
        self.entries: list[bytes] = []

    def stop(self) -> None:
        self._is_stopped = True

    async def run(self) -> None:
        while not self._is_stopped or len(self.entries) < ENTRIES_MIN:
            payload = b"%d" % len(self.entries)
            await self._writer.append(payload)
            self.entries.append(payload)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def appending(uri: str) -> AsyncIterator[Appending]:
    """Append to a ledger for the length of the block; close it, and read it back."""
    async with LedgerClient(uri) as client:
        async with client.create_ledger(QUORUM) as writer:
            load = Appending(writer)
            running = asyncio.create_task(load.run())
            yield load
            load.stop()
            await running
        async with client.open_ledger(writer.id) as reader:
            found = [entry.data async for batch in reader.read() for entry in batch]
        assert found == load.entries


async def restart_all(cluster: LocalCluster, options: Mapping[str, str]) -> None:
    """Restart the bookies one by one with other options, as an operator does."""
    for bookie in cluster.bookies:
        bookie.set_options(options)
        await bookie.restart()
        await asyncio.sleep(1.0)


@pytest.mark.long
async def test_no_append_fails_while_tls_is_turned_on_and_off(tmp_path: Path) -> None:
    directory = SecureDirectory(tmp_path / "tls")
    directory.fill()
    required = {"tls": "required", **directory.certificate_options("bookie")}
    optional = {**required, "tls": "optional"}
    async with LocalCluster(FOUR, tmp_path / "data", bookie_options={"repair": "false"}) as cluster:
        plain = cluster.metadata_uri
        secure = f"{plain}?client={directory.client_file('client')}"
        async with appending(plain):
            await restart_all(cluster, optional)
        async with appending(plain), appending(secure):
            await asyncio.sleep(1.0)
        async with appending(secure):
            await restart_all(cluster, required)
        async with appending(secure):
            await restart_all(cluster, optional)
        async with appending(plain):
            await restart_all(cluster, OFF)
