"""A bookie's disk fills up: it becomes read-only, nothing is lost, and it is writable again."""

import asyncio
import json
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ledger_client import LedgerClient, NotEnoughBookiesError, Quorum
from quire.local_bookie import LocalBookie
from quire.local_cluster import LocalCluster
from tests.integration.faults.appending import appending, check_kept

pytestmark = pytest.mark.timeout(120)
DISK = "64m"
PIECE_BYTES = 1024 * 1024
WAIT_S = 30.0
POLL_S = 0.1
SPARE_KNOWN_S = 2.5
"""Clients look at who is up only so often."""


@pytest.fixture
async def cluster_with_a_small_disk(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Start four bookies, the first of them on a small disk of its own."""
    disk = tmp_path / "cluster" / "bookie-1"
    disk.mkdir(parents=True)
    if shutil.which("mount") is None:
        pytest.skip("no small disk can be mounted here: there is no `mount`")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        async with LocalCluster(4, tmp_path / "cluster") as cluster:
            yield cluster
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk(cluster_with_a_small_disk: LocalCluster, tmp_path: Path) -> None:
    cluster = cluster_with_a_small_disk
    small = cluster.bookies[0]
    filler = small.data_dir / "filler"
    (tmp_path / "writer").mkdir()
    async with appending(cluster.metadata_uri, tmp_path / "writer", ensemble=4) as writer:
        await writer.wait_for_acks(200)
        await cluster.add_bookie()  # now, so that the small one was surely chosen
        await asyncio.sleep(SPARE_KNOWN_S)
        _fill(filler)
        await _until(lambda: not _state(small)["writable"])
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


async def _until_used_again(client: LedgerClient) -> None:
    """Append to a ledger on every bookie, once all are known to be writable."""
    for _ in range(int(WAIT_S / POLL_S)):
        try:
            async with client.create_ledger(Quorum.all(5)) as ledger:
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
