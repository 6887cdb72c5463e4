"""Tests of a bookie's full disk: it becomes read-only, loses no entry, and recovers later."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from bookie.errors import DiskFullError
from bookie.files.disk import StoreTransaction
from bookie.files.index_lmdb import LmdbStore
from ledger_client import LedgerClient, LedgerError, NotEnoughBookiesError, Quorum
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.integration.faults.appending import appending, check_kept
from tests.until import WAIT_S

pytestmark = pytest.mark.long
DISK = "64m"
PIECE_BYTES = 1024 * 1024
POLL_S = 0.1


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[None]:
    """Mount a file system of this size in memory; skip the test if that is not possible."""
    directory.mkdir(parents=True)
    if shutil.which("mount") is None:
        pytest.skip("no small disk can be mounted here: there is no `mount`")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.fixture
async def cluster_with_a_small_disk(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Start four bookies, the first of them on a separate small disk."""
    with small_disk(tmp_path / "cluster" / "bookie-1", DISK):
        async with LocalCluster(4, tmp_path / "cluster") as cluster:
            yield cluster


async def test_a_bookie_starts_on_a_disk_that_is_full(tmp_path: Path) -> None:
    """It serves its entries, is read-only at the latest after a write, and writable when there is
    space.
    """
    with small_disk(tmp_path / "cluster" / "bookie-1", DISK):
        async with LocalCluster(1, tmp_path / "cluster") as cluster:
            bookie = cluster.bookies[0]
            reserve = bookie.data_dir / "log" / "reserve"
            await _until(reserve.exists)
            await _until(lambda: reserve.stat().st_size > 18 * PIECE_BYTES)
            async with LedgerClient(cluster.metadata_uri) as client:
                async with client.create_ledger(Quorum.all(1)) as ledger:
                    await ledger.append(b"kept")
                bookie.kill()
                filler = bookie.data_dir / "filler"
                _fill(filler)
                await bookie.restart()
                await _write_until_read_only(client, bookie)
                async with client.open_ledger(ledger.id) as reader:
                    kept = [
                        bytes(entry.data) async for batch in reader.read(0, 0) for entry in batch
                    ]
                assert kept == [b"kept"]
                filler.unlink()
                await _until(lambda: bool(_state(bookie)["writable"]))
                await _until(reserve.exists)


async def test_a_bookie_starts_and_frees_room_when_its_index_has_filled_its_disk(
    tmp_path: Path,
) -> None:
    options = {"checkpoint-records": "1000", "collect-reads-per-s": "1000"}
    with small_disk(tmp_path / "cluster" / "bookie-1" / "index", "1m"):
        async with LocalCluster(1, tmp_path / "cluster", bookie_options=options) as cluster:
            bookie = cluster.bookies[0]
            async with LedgerClient(cluster.metadata_uri) as client:
                ids = await _append_until_read_only(client, bookie)
                assert "disk of index/" in str(_state(bookie)["conditions"])
                for _ in range(2):  # the writes of a start leave room for the next one
                    bookie.kill()
                    await bookie.restart()
                for ledger_id in ids:
                    await client.delete_ledger(ledger_id)
                await _until_used_again(
                    client, 1
                )  # while it deletes, it may have room for a moment


async def _append_until_read_only(client: LedgerClient, bookie: LocalBookie) -> list[int]:
    """Append entries of many ledgers in turn, so that each is a separate run in the index."""
    ledgers = [await client.create_ledger(Quorum.all(1)) for _ in range(64)]
    while _state(bookie)["writable"]:
        for _ in range(10):
            appends = [ledger.append(b"x") for ledger in ledgers]
            await asyncio.gather(*appends, return_exceptions=True)
    for ledger in ledgers:
        with contextlib.suppress(LedgerError):
            await ledger.aclose()
    return [ledger.id for ledger in ledgers]


async def test_a_disk_smaller_than_the_reserve_is_not_formatted(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, "160m"):
        async with LocalCluster(0, tmp_path / "cluster") as cluster:
            words = ["bookie", "format", "--data-dir", str(disk), "--metadata"]
            words += [cluster.metadata_uri]
            refused = await _run(words)
            assert refused.returncode
            for part in ("reserve_bytes_min", "segment_bytes_max", "larger disk", "167772160"):
                assert part in refused.stderr, refused.stderr
            assert [path for path in disk.iterdir() if path.name != "lock"] == []
            smaller = ["--reserve-bytes-min", "8388608", "--segment-bytes-max", "16777216"]
            done = await _run([*words, *smaller])
            assert done.returncode == 0, done.stderr


async def test_an_index_on_a_full_file_system_continues_when_there_is_room(
    tmp_path: Path,
) -> None:
    """LMDB reports a short write as an input/output error, which is no failure of the disk."""
    disk = tmp_path / "disk"
    with small_disk(disk, "4m"):
        store = await LmdbStore.open(disk / "index", PIECE_BYTES * 64)
        _fill(disk / "filler")

        def put_much(transaction: StoreTransaction) -> None:
            for number in range(1_000):
                transaction.put(b"%d" % number, bytes(1_000))

        for spare in (0, 100_000, 600_000):  # with some room left, the write is short
            os.truncate(disk / "filler", (disk / "filler").stat().st_size - spare)
            with pytest.raises(DiskFullError):
                await store.update(put_much)
        (disk / "filler").unlink()
        await store.update(put_much)
        assert await store.view(lambda t: t.get(b"999")) == bytes(1_000)
        assert store.sizes().used_bytes >= 1_000_000
        await store.close()


async def _run(words: list[str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "quire.cli.main", *words]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=60
    )


async def test_a_full_disk(cluster_with_a_small_disk: LocalCluster, tmp_path: Path) -> None:
    cluster = cluster_with_a_small_disk
    small = cluster.bookies[0]
    filler = small.data_dir / "filler"
    (tmp_path / "writer").mkdir()
    async with appending(cluster.metadata_uri, tmp_path / "writer", ensemble=4) as writer:
        await writer.wait_for_acks(200)
        await cluster.add_bookie()  # now, so that the small one was certainly chosen
        _fill(filler)
        await _until(lambda: not _state(small)["writable"])
        await writer.wait_until(lambda history: small.id not in history.ensembles[0])
        await writer.wait_for_acks(2_000)
        history = await writer.stop()
    assert history.failures == {}
    async with LedgerClient(cluster.metadata_uri) as client:
        info = await client.ledger_info(next(iter(history.ledgers)))
        assert small.id in info.fragments[0].ensemble
        assert small.id not in info.fragments[-1].ensemble
        filler.unlink()
        await _until(lambda: bool(_state(small)["writable"]))
        await _until_used_again(client)
    await check_kept(cluster.metadata_uri, history)


async def _write_until_read_only(client: LedgerClient, bookie: LocalBookie) -> None:
    """Append more than there is room for, in as many ledgers as needed.

    An append may also fail because a busy machine is slow.
    """
    deadline_s = monotonic() + WAIT_S
    while (await asyncio.to_thread(_state, bookie))["writable"]:
        assert monotonic() < deadline_s, "it took everything"
        with contextlib.suppress(LedgerError):
            async with client.create_ledger(Quorum.all(1), timeout=10) as ledger:
                for _ in range(40):
                    await ledger.append(bytes(PIECE_BYTES), timeout=5)


async def _until_used_again(client: LedgerClient, bookies: int = 5) -> None:
    """Append to a ledger on every bookie, once all are known to be writable."""
    for _ in range(int(WAIT_S / POLL_S)):
        try:
            async with client.create_ledger(Quorum.all(bookies)) as ledger:
                assert await ledger.append(b"there is room again") == 0
                return
        except NotEnoughBookiesError:
            await asyncio.sleep(POLL_S)
    raise TimeoutError(f"it was not used again within {WAIT_S} s")


def _fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(PIECE_BYTES))
        except OSError:
            return


def _state(bookie: LocalBookie) -> dict[str, object]:
    with urllib.request.urlopen(f"{bookie.admin_url}/api/v1/state", timeout=WAIT_S) as answer:
        state: dict[str, object] = json.load(answer)
        return state


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(int(WAIT_S / POLL_S)):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(POLL_S)
    raise TimeoutError(f"it was not so within {WAIT_S} s")
