"""Tests of copies of a bookie's directory, started with the original or in its place (protocol
2.6).
"""

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

import pytest

from ledger_client import LedgerClient, NotEnoughBookiesError, Quorum, RecoveryUndecidedError
from quire.local_cluster import LocalCluster
from tests.integration.faults.test_identities import run_words
from tests.integration.quire.command import QUIRE
from tests.until import WAIT_S

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]
RECOVERY_S = 5.0
OLD, NEW = [b"old"] * 10, [b"new"] * 100


async def test_a_copy_of_a_running_bookie_is_refused(tmp_path: Path) -> None:
    async with LocalCluster(bookies=2) as cluster, LedgerClient(cluster.metadata_uri) as client:
        original, copy = cluster.bookies[0], tmp_path / "copy"
        writer = await client.create_ledger(Quorum.all(2))
        await writer.append_many(OLD)
        shutil.copytree(original.data_dir, copy)
        await writer.append_many(NEW)
        before = contents(copy)
        async with start(cluster, copy) as process:
            said = await ended(process)
        assert original.id in said
        assert "served by another process" in said
        assert contents(copy) == before
        assert original.is_running
        assert "limbo" not in original.log_tail()
        assert await writer.append(b"the original serves on") == len(OLD + NEW)
        await writer.aclose()


async def test_a_copy_of_a_killed_bookie_is_in_limbo(tmp_path: Path) -> None:
    async with LocalCluster(bookies=2) as cluster, LedgerClient(cluster.metadata_uri) as client:
        original, other = cluster.bookies
        copy = tmp_path / "copy"
        writer = await client.create_ledger(Quorum.all(2))
        await writer.append_many(OLD)
        shutil.copytree(original.data_dir, copy)
        await writer.append_many(NEW)
        original.kill()
        async with start(cluster, copy) as process:
            await serving(process)
            other.kill()
            # The second, where the copy has not received that the first entries were acknowledged.
            with pytest.raises((RecoveryUndecidedError, NotEnoughBookiesError)):
                await client.recover_ledger(writer.id, timeout=RECOVERY_S)
            await other.restart()
            assert await recovered_end(client, writer.id) == len(OLD + NEW) - 1, "none is lost"
        with suppress(Exception):
            await writer.aclose()


async def test_the_first_complete_copy_starts(tmp_path: Path) -> None:
    async with LocalCluster(bookies=1) as cluster, LedgerClient(cluster.metadata_uri) as client:
        original = cluster.bookies[0]
        async with client.create_ledger(Quorum.all(1)) as ledger:
            await ledger.append_many(OLD)
        await original.stop()
        for name in ("first", "second"):
            shutil.copytree(original.data_dir, tmp_path / name)
        async with start(cluster, tmp_path / "first") as process:
            await serving(process)
            async with client.open_ledger(ledger.id) as reader:
                read = [entry.data async for batch in reader.read() for entry in batch]
            assert read == OLD
        async with start(cluster, tmp_path / "second") as process:
            await serving(process)
            process.terminate()
            said = await ended(process)
        assert "a directory is an old copy" in said


async def test_a_start_after_a_kill_waits_for_no_session() -> None:
    async with LocalCluster(bookies=1) as cluster:
        bookie = cluster.bookies[0]
        bookie.kill()
        await bookie.restart()
        assert "waiting for the session" not in bookie.log_tail()
        assert "limbo" not in bookie.log_tail()


async def recovered_end(client: LedgerClient, ledger_id: int) -> int | None:
    """Recover a ledger while one of its bookies starts; return its last entry."""
    deadline_s = monotonic() + WAIT_S
    while True:
        try:
            return (await client.recover_ledger(ledger_id, timeout=RECOVERY_S)).last_entry_id
        except (RecoveryUndecidedError, NotEnoughBookiesError):
            assert monotonic() < deadline_s
            await asyncio.sleep(0.2)


@asynccontextmanager
async def start(cluster: LocalCluster, directory: Path) -> AsyncIterator[Process]:
    """Run a bookie on a directory; stop it at the end."""
    process = await asyncio.create_subprocess_exec(
        *QUIRE, *run_words(cluster, directory), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def serving(process: Process) -> None:
    """Wait until a bookie serves, which may take until an old session has ended."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), WAIT_S)
    assert b'"address"' in line, "it ended"


async def ended(process: Process) -> str:
    """Wait for a process's end; return its output."""
    _, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
    return errors.decode()


def contents(directory: Path) -> dict[Path, bytes]:
    """Read every file below a directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
