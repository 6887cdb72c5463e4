"""A cluster whose ZooKeeper is lost is restored from a dump (protocol 10.6)."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ledger_client import LedgerClient
from metadata.restore.adjusting import LEDGER_IDS_MARGIN
from metadata.store.embedded import EmbeddedZooKeeper
from quire.errors import ExitCode
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire
from tests.support.ledger_client.cluster import THREE, entries_of
from tests.until import WAIT_S

COUNT = 20
PASSES_S = 4.0
"""Time in which each bookie checks all its ledgers several times."""
BOOKIE = {"collect_interval_s": "1", "position_interval_s": "0.2"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


async def command(address: str, *words: str, status: int = 0, stdin: bytes = b"") -> bytes:
    """Run a command, while the processes of the cluster continue; return what it prints."""
    done = await asyncio.to_thread(run_quire, *words, metadata=address, stdin=stdin)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stderr if status == ExitCode.REFUSED else done.stdout


async def report(address: str, *words: str, status: int = 0) -> Any:
    """Run a command; return its JSON."""
    return json.loads(await command(address, *words, "-o", "json", status=status))


async def unknown_ledgers(address: str) -> Mapping[int, int]:
    """Return the ledgers that bookies hold and the metadata does not know: how many of them."""
    done = await asyncio.to_thread(run_quire, "metadata", "compare", "-o", "json", metadata=address)
    found = json.loads(done.stdout)
    assert found["not_compared"] == []
    assert done.returncode == (ExitCode.FINDINGS if found["findings"] else ExitCode.DONE)
    ledgers = [each["ledger"] for each in found["findings"]]
    return {ledger: ledgers.count(ledger) for ledger in ledgers}


async def write(client: LedgerClient) -> int:
    """Write a ledger and close it; return its id."""
    async with client.create_ledger(THREE) as writer:
        await writer.append_many(b"%d" % number for number in range(COUNT))
    return int(writer.id)


@asynccontextmanager
async def wiped_zookeeper(data_dir: Path) -> AsyncIterator[EmbeddedZooKeeper]:
    """Start a new ZooKeeper at the address of the old one."""
    port = (data_dir / "zookeeper" / "port").read_text()
    shutil.rmtree(data_dir / "zookeeper")
    (data_dir / "zookeeper").mkdir()
    (data_dir / "zookeeper" / "port").write_text(port)
    async with EmbeddedZooKeeper(data_dir / "zookeeper", port=int(port)) as zookeeper:
        yield zookeeper


@dataclass(frozen=True, slots=True)
class Written:
    """What a cluster held when its ZooKeeper was lost."""

    address: str
    closed: int
    """A ledger that was closed before the dump."""
    closed_later: int
    """A ledger that was open at the dump, and grew and was closed afterwards."""
    late: int
    """A ledger that was created after the dump."""


async def written_cluster(data_dir: Path, dump: Path) -> Written:
    """Run a cluster, take a dump in the middle, and stop the cluster."""
    async with (
        LocalCluster(3, data_dir, broker=1, bookie_options=BOOKIE) as cluster,
        LedgerClient(cluster.metadata_uri) as client,
    ):
        address = cluster.metadata_uri
        closed = await write(client)
        await command(address, "topic", "produce", "orders", "--create", stdin=b"one\ntwo\n")
        async with client.create_ledger(THREE) as writer:
            await writer.append_many(b"%d" % number for number in range(COUNT // 2))
            dump.write_bytes(await command(address, "metadata", "dump"))
            await writer.append_many(b"%d" % number for number in range(COUNT // 2, COUNT))
        late = await write(client)
        for _ in range(3):  # starts that the dump does not count
            await cluster.bookies[0].stop()
            await cluster.bookies[0].start()
        state = (await report(address, "cluster", "version"))["state"]
        assert state.startswith("All 4 servers run ")
        return Written(address, closed, int(writer.id), late)


async def restore(address: str, dump: Path) -> None:
    """Restore into the empty service at an address, after attempts that are refused."""
    words = ("metadata", "restore")
    text = await command(address, *words, str(dump), status=ExitCode.REFUSED)
    assert b"add --yes" in text
    incomplete = dump.with_suffix(".incomplete")
    incomplete.write_bytes(dump.read_bytes()[:-100])
    await command(address, *words, str(incomplete), "--yes", status=ExitCode.DAMAGED)
    await report(address, *words, str(dump), "--yes")
    text = await command(address, *words, str(dump), "--yes", status=ExitCode.REFUSED)
    assert b"is not empty" in text


async def check_all_reads(client: LedgerClient, written: Written) -> None:
    """Read everything that the restored metadata knows, and write more."""
    address = written.address
    await command(address, "ledger", "recover", str(written.closed_later))
    for ledger_id in (written.closed, written.closed_later):
        assert len(await entries_of(client, ledger_id, COUNT - 1)) == COUNT
    found = await report(address, "ledger", "show", str(written.closed_later))
    assert (found["state"], found["last_entry_id"]) == ("closed", COUNT - 1)
    read = await command(address, "topic", "consume", "orders")
    assert read.split() == [b"one", b"two"]
    await command(address, "topic", "produce", "orders", stdin=b"three\n")
    read = await command(address, "topic", "consume", "orders")
    assert read.split() == [b"one", b"two", b"three"]


async def test_a_lost_zookeeper_is_restored(tmp_path: Path) -> None:
    data_dir, dump = tmp_path / "data", tmp_path / "metadata.dump"
    written = await written_cluster(data_dir, dump)
    address = written.address
    async with wiped_zookeeper(data_dir):
        await restore(address, dump)
    async with (
        LocalCluster(3, data_dir, broker=1, bookie_options=BOOKIE) as cluster,
        LedgerClient(cluster.metadata_uri) as client,
    ):
        assert cluster.metadata_uri == address
        for row in await report(address, "bookie", "list"):
            assert (row["state"], row["conditions"]) == ("up", ["metadata-old"])
        health = await report(address, "cluster", "health", status=ExitCode.FINDINGS)
        assert any("accept-restore" in warning["advice"] for warning in health["warnings"])
        await check_all_reads(client, written)
        new = await write(client)
        assert new > LEDGER_IDS_MARGIN
        await client.delete_ledger(new)
        await asyncio.sleep(PASSES_S)
        assert await unknown_ledgers(address) == {written.late: 3, new: 3}
        await check_rescue(client, written)
        assert await unknown_ledgers(address) == {new: 3}
        await command(address, "metadata", "accept-restore", status=ExitCode.REFUSED)
        await report(address, "metadata", "accept-restore", "--yes")
        async with asyncio.timeout(WAIT_S):
            while await unknown_ledgers(address):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.5)
        await check_conditions_end(address)
        assert len(await entries_of(client, written.late, COUNT - 1)) == COUNT


async def check_rescue(client: LedgerClient, written: Written) -> None:
    """Read an entry of an unknown ledger from a bookie, and make the ledger again."""
    address, late = written.address, written.late
    bookie_id = (await report(address, "bookie", "list"))[0]["id"]
    entry = await report(address, "bookie", "entry", bookie_id, str(late), "3")
    assert (entry["data"], entry["verdict"]) == ("3", "valid")
    text = await command(address, "bookie", "entry", bookie_id, "123", "0", status=3)
    assert text == b""
    text = await command(address, "ledger", "rescue", status=ExitCode.REFUSED)
    assert b"add --yes" in text or b"rescue --yes" in text
    (row,) = await report(address, "ledger", "rescue", "--yes")
    assert (row["ledger"], row["what"], row["lost"]) == (late, "rescued", None)
    assert (row["entries"], row["copies"], row["last_entry_id"]) == (COUNT, 3, COUNT - 1)
    assert await entries_of(client, late, COUNT - 1) == [b"%d" % number for number in range(COUNT)]
    await command(address, "ledger", "verify", str(late))
    assert await report(address, "ledger", "rescue", "--yes") == []


async def check_conditions_end(address: str) -> None:
    """Wait until no bookie has a condition."""
    async with asyncio.timeout(WAIT_S):
        while any(  # noqa: ASYNC110 - other processes
            row["conditions"] for row in await report(address, "bookie", "list")
        ):
            await asyncio.sleep(0.5)


async def test_zookeepers_own_files_are_put_back(tmp_path: Path) -> None:
    data_dir, kept = tmp_path / "zookeeper", tmp_path / "kept"
    async with EmbeddedZooKeeper(data_dir) as zookeeper:
        address = f"{zookeeper.uri}/quire"
        created = await report(address, "cluster", "init")
    shutil.copytree(data_dir / "version-2", kept)
    shutil.rmtree(data_dir / "version-2")
    async with EmbeddedZooKeeper(data_dir, port=zookeeper.port):
        await command(address, "cluster", "health", status=ExitCode.NOT_FOUND)
    shutil.rmtree(data_dir / "version-2")
    shutil.copytree(kept, data_dir / "version-2")
    async with EmbeddedZooKeeper(data_dir, port=zookeeper.port):
        found = await report(address, "cluster", "init")
    assert (found["created"], found["instance"]) == (False, created["instance"])
