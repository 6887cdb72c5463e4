"""Tests that a bookie starts only on its own directories, and reports old copies.

Source: protocol rules 2.1, 2.2 and 2.4.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bookie.wire.messages import ReadEntries, Status
from ledger_client import LedgerClient, Quorum
from metadata.ids import BookieId, EntryId, LedgerId
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.campaign.direct import CALL_TIMEOUT_S, READ_BYTES, Direct, open_direct
from tests.integration.faults.appending import check_told
from tests.integration.faults.raw_ledger import make_ledger
from tests.integration.quire.command import run_quire

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]
OLD, NEW = [b"old"] * 50, [b"new"] * 50


async def test_a_wiped_bookie_is_refused_and_returns_as_another(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    before = bookie.id
    async with LedgerClient(cluster.metadata_uri) as client:
        async with client.create_ledger(Quorum.all(5)) as ledger:
            await ledger.append_many([b"kept"] * 100)
        await bookie.stop()
        empty(bookie.data_dir)
        said = await refusal(cluster, bookie)
        assert "empty" in said
        assert "do not format the mount point" in said
        await bookie.start()  # a local cluster formats empty directories
        assert bookie.id != before
        async with client.open_ledger(ledger.id) as reader:
            read = [entry.data async for batch in reader.read() for entry in batch]
            assert read == [b"kept"] * 100
            assert before in reader.info.fragments[0].ensemble
    await check_told(cluster.metadata_uri, ledger.id, [b"kept"] * 100, gone=[before])


@pytest.mark.parametrize("name", ["identity", "log", "index"])
async def test_a_wiped_directory_is_refused(cluster: LocalCluster, name: str) -> None:
    bookie = cluster.bookies[1]
    async with put_aside(bookie, name) as aside:
        (bookie.data_dir / name).mkdir()
        said = await refusal(cluster, bookie)
        assert name in said
        assert "cookie" in said
        shutil.rmtree(bookie.data_dir / name)
        aside.rename(bookie.data_dir / name)


@pytest.mark.parametrize("name", ["identity", "log", "index"])
async def test_swapped_directories_are_refused(cluster: LocalCluster, name: str) -> None:
    one, other = cluster.bookies[1:3]
    async with put_aside(one, name) as of_one, put_aside(other, name) as of_other:
        of_one.rename(other.data_dir / name)
        of_other.rename(one.data_dir / name)
        for bookie, owner in ((one, other), (other, one)):
            said = await refusal(cluster, bookie)
            assert owner.id in said, "the message names whose directory it is"
            assert bookie.id in said
        (one.data_dir / name).rename(of_other)
        (other.data_dir / name).rename(of_one)
        of_one.rename(one.data_dir / name)
        of_other.rename(other.data_dir / name)


async def test_two_processes_on_one_directory(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[3]
    said = await refusal(cluster, bookie)
    assert "lock" in said or "in use" in said
    assert str(bookie.data_dir) in said
    assert bookie.is_running
    async with (
        LedgerClient(cluster.metadata_uri) as client,
        client.create_ledger(Quorum.all(5)) as ledger,
    ):
        assert await ledger.append(b"the first one goes on serving") == 0
    await check_told(cluster.metadata_uri, ledger.id, [b"the first one goes on serving"])


async def test_a_bookie_on_an_old_copy_is_in_limbo(cluster: LocalCluster, tmp_path: Path) -> None:
    """Entries that it acknowledged later are UNKNOWN there, never "no such entry".

    A recovery that counted two negatives would end this ledger before entries that two bookies had
    stored.
    """
    bookie, other, third = cluster.bookies[4], *cluster.bookies[1:3]
    uri, copy = cluster.metadata_uri, tmp_path / "copy"
    async with open_direct(uri) as direct:
        ledger = await make_ledger(
            direct, [local_bookie.id for local_bookie in (bookie, other, third)], ack=2
        )
        for member in (bookie, other, third):
            await ledger.store(BookieId(member.id), 0, OLD)
    await bookie.stop()
    shutil.copytree(bookie.data_dir, copy)
    await bookie.start()
    async with open_direct(uri) as direct, LedgerClient(uri) as client:
        for member in (bookie, other):  # its ack quorum
            attached, lac = ledger.attached_to(direct), len(OLD) - 1
            await attached.store(BookieId(member.id), len(OLD), NEW, lac=lac)
        async with client.create_ledger(Quorum.all(5)) as newer:
            await newer.append_many(NEW)
    await bookie.stop()
    empty(bookie.data_dir)
    shutil.copytree(copy, bookie.data_dir, dirs_exist_ok=True)
    await bookie.start()
    assert "an old copy" in bookie.log_tail()
    async with open_direct(uri) as direct, LedgerClient(uri) as client:
        ledger = ledger.attached_to(direct)
        direct.pool.attach(LedgerId(newer.id), ledger.keys.master_key)  # neither has a password
        last = len(OLD + NEW) - 1
        assert await status_of(direct, bookie.id, ledger.id, 0, len(OLD) - 1) is Status.OK
        for entry_id in range(len(OLD), last + 1):
            said = await status_of(direct, bookie.id, ledger.id, entry_id, last)
            assert said is Status.UNKNOWN
        for entry_id in range(len(NEW)):
            said = await status_of(direct, bookie.id, newer.id, entry_id, len(NEW) - 1)
            assert said is Status.UNKNOWN
        await client.recover_ledger(ledger.id)
        assert await payloads_of(client, ledger.id) == OLD + NEW
        assert await payloads_of(client, newer.id) == NEW
    old = bookie.id
    await bookie.stop()
    empty(bookie.data_dir)
    await bookie.start()  # as a new bookie: one in limbo accepts no adds
    await check_told(uri, ledger.id, OLD + NEW, gone=[old])
    await check_told(uri, newer.id, NEW, gone=[old])


@asynccontextmanager
async def put_aside(bookie: LocalBookie, name: str) -> AsyncIterator[Path]:
    """Stop a bookie and rename one of its directories; restore both at the end."""
    await bookie.stop()
    aside = bookie.data_dir.parent / f"{bookie.name}-{name}"
    (bookie.data_dir / name).rename(aside)
    yield aside
    await bookie.start()


def empty(directory: Path) -> None:
    """Remove the contents of a directory."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


async def status_of(
    direct: Direct, bookie_id: str, ledger_id: int, first: int, last: int
) -> Status:
    """Read entries from one bookie; return the status."""
    request = ReadEntries(
        LedgerId(ledger_id), EntryId(first), EntryId(last), READ_BYTES, fence=False
    )
    pool = direct.pool
    answer = await pool.read_entries(BookieId(bookie_id), request, timeout_s=CALL_TIMEOUT_S)
    return answer.status


async def payloads_of(client: LedgerClient, ledger_id: int) -> list[bytes]:
    """Read a closed ledger to its end."""
    async with client.open_ledger(ledger_id) as reader:
        return [bytes(entry.data) async for batch in reader.read() for entry in batch]


async def refusal(cluster: LocalCluster, bookie: LocalBookie) -> str:
    """Run a bookie that must not start on its unchanged directories; return its output. If it
    starts, it ends at once with status 0, because its standard input has ended.
    """
    words = (*run_words(cluster, bookie.data_dir), "--die-with-parent")
    done = await asyncio.to_thread(run_quire, *words)
    assert done.returncode != 0
    assert done.stdout == b"", "nothing says that it serves"
    return done.stderr.decode()


def run_words(cluster: LocalCluster, directory: Path) -> list[str]:
    """Return the command of a bookie on a directory."""
    options = {
        "data-dir": directory,
        "metadata": cluster.metadata_uri,
        "reserve-bytes-min": 1,
        "segment-bytes-max": 2**20,
        "disk-high-mark": 1.0,
        "disk-low-mark": 1.0,
    }
    words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
    return ["bookie", "run", *words]
