"""Tests of a local cluster of real processes, which are killed, paused and restarted."""

import json
import os
import shutil
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from ledger_client import LedgerClient, Quorum
from quire.errors import ExitCode, LocalClusterError, UnusableDirectoryError
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import (
    TIMEOUT_S,
    environment,
    pause_repair,
    run_quire,
    start_cluster,
)
from tests.until import until

ROOT = Path(__file__).parents[3]


async def read_all(uri: str, ledger_id: int) -> list[bytes]:
    async with LedgerClient(uri) as client, client.open_ledger(ledger_id) as reader:
        last = await reader.refresh_last_confirmed()
        return [e.data async for batch in reader.read(0, last) for e in batch]


def addresses_of(cluster: LocalCluster) -> list[tuple[str, str]]:
    return [(bookie.address, bookie.admin_url) for bookie in (*cluster.bookies, *cluster.brokers)]


@pytest.mark.long
async def test_bookies_are_killed_paused_restarted_and_added() -> None:
    async with LocalCluster(bookies=3) as cluster:
        added = await cluster.add_bookie()
        async with LedgerClient(cluster.metadata_uri) as client:
            async with client.create_ledger(Quorum(3, 3, 2)) as ledger:
                await ledger.append(b"before")
                victim = cluster.bookies[0]
                known = (victim.id, victim.pid)
                victim.kill()
                await ledger.append(b"after")
                await victim.restart()
                assert victim.id == known[0]
                assert victim.pid != known[1]
                victim.pause()
                victim.resume()
                # Paused while no ensemble change is due: appends do not need it.
                await ledger.append(b"settled")
                cluster.zookeeper.pause()
                await ledger.append(b"without ZooKeeper")
                cluster.zookeeper.resume()
                await cluster.zookeeper.restart()
            assert len({bookie.id for bookie in cluster.bookies}) == 4
            assert added in cluster.bookies
            expected = [b"before", b"after", b"settled", b"without ZooKeeper"]
            assert await read_all(cluster.metadata_uri, ledger.id) == expected
        data_dir = cluster.data_dir
        assert data_dir.exists()
    assert not data_dir.exists()
    assert not any(bookie.is_running for bookie in cluster.bookies)


@pytest.mark.long
async def test_the_same_directory_is_the_same_cluster(tmp_path: Path) -> None:
    steps = list[str]()
    async with LocalCluster(3, tmp_path, broker=1, report=steps.append) as cluster:
        ids = [bookie.id for bookie in cluster.bookies]
        addresses = addresses_of(cluster)
        uri = cluster.metadata_uri
        async with LedgerClient(uri) as client, client.create_ledger(Quorum.all(3)) as ledger:
            await ledger.append(b"kept")
    assert [step for step in steps if not step.startswith("Waiting")] == [
        f"Starting ZooKeeper in {tmp_path} ...",
        "Starting 3 bookies ...",
        "Starting 1 broker ...",
    ]
    async with LocalCluster(None, tmp_path, broker=1) as cluster:
        assert [bookie.id for bookie in cluster.bookies] == ids
        assert addresses_of(cluster) == addresses
        assert cluster.metadata_uri == uri
        assert await read_all(uri, ledger.id) == [b"kept"]


async def test_one_cluster_at_a_time_uses_a_directory(tmp_path: Path) -> None:
    async with LocalCluster(bookies=0, data_dir=tmp_path):
        with pytest.raises(LocalClusterError, match="in use by another local cluster"):
            await LocalCluster(bookies=0, data_dir=tmp_path).start()


async def test_a_start_that_fails_shows_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    stray = tmp_path / "bookie-1" / "log" / "stray"
    stray.parent.mkdir(parents=True)
    stray.write_text("not a bookie's")
    cluster = LocalCluster(bookies=1, data_dir=tmp_path)
    with pytest.raises(LocalClusterError, match=r"bookie-1.log, ends:(.|\n)*quire bookie format"):
        await cluster.start()
    assert not cluster.zookeeper.is_running
    assert not cluster.bookies[0].is_running


async def test_a_directory_that_cannot_be_made_is_a_wrong_argument(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for unusable in (file, file / "below"):
        with pytest.raises(UnusableDirectoryError, match="no cluster can be kept in"):
            await LocalCluster(bookies=0, data_dir=unusable).start()


@pytest.mark.parametrize("wanted", [{"broker": -1}, {"bookies": -1}])
def test_unknown_names_are_refused(wanted: dict[str, int]) -> None:
    with pytest.raises(LocalClusterError):
        LocalCluster(**wanted)  # type: ignore[arg-type]


@pytest.mark.long
async def test_the_processes_die_with_their_parent() -> None:
    program = str(Path(__file__).with_name("orphan.py"))
    parent = subprocess.Popen(
        [sys.executable, program],
        stdout=subprocess.PIPE,
        env={**environment(None), "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    *pids, data_dir = json.loads(parent.stdout.readline())
    parent.kill()
    parent.communicate(timeout=TIMEOUT_S)
    await until(lambda: not any(is_alive(pid) for pid in pids))
    shutil.rmtree(data_dir, ignore_errors=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    # A process that has ended and is not reaped yet is not alive.
    return not (status.exists() and "State:\tZ" in status.read_text())


@pytest.mark.long
def test_damage_and_absence_are_found(tmp_path: Path) -> None:
    cluster = start_cluster(tmp_path, bookies=3)
    try:
        lines = b"".join(b"a line that is long enough to be hit %d\n" % n for n in range(4000))
        told = cluster.json("ledger", "append", "--ack", "3", stdin=lines)
        ledger = str(told["ledger_id"])
        assert cluster.json("ledger", "verify", ledger)["is_well"]
        pause_repair(cluster.metadata)
    finally:
        assert cluster.stop() == 0

    directory = tmp_path / "bookie-2"
    assert run_quire("bookie", "check", str(directory)).returncode == 0
    segment = max((directory / "log").glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[data.index(b"long enough to be hit 2000") + 5] ^= 0x20
    segment.write_bytes(data)
    checked = run_quire("bookie", "check", str(directory))
    assert checked.returncode == ExitCode.FINDINGS
    assert b"are damaged" in checked.stdout

    cluster = start_cluster(tmp_path, bookies=3)
    try:
        verified = cluster.run("ledger", "verify", ledger)
        assert verified.returncode == ExitCode.FINDINGS, verified.stdout
        assert cluster.run("ledger", "read", ledger).stdout == lines
        os.kill(cluster.told["bookies"][0]["pid"], 9)
        verified = cluster.run("ledger", "verify", ledger)
        assert verified.returncode == ExitCode.FINDINGS
        assert b"missing or bad" in verified.stdout
    finally:
        assert cluster.stop() == 0


@pytest.mark.long
async def test_the_console_keeps_its_port_and_that_of_a_secure_cluster_needs_a_token(
    tmp_path: Path,
) -> None:
    async with LocalCluster(1, tmp_path, secure=True) as cluster:
        address = (await cluster.add_console({})).address
        assert cluster.console is not None
        assert await status_of(address) == HTTPStatus.SEE_OTHER
        token = Path(cluster.certificates.console_token_file()).read_text().strip()
        assert await status_of(address, token) == HTTPStatus.OK
    assert not cluster.console.is_running
    async with LocalCluster(None, tmp_path, secure=True) as cluster:
        assert (await cluster.add_console({"allow_writes": "true"})).address == address
        assert await status_of(address, token) == HTTPStatus.OK
    async with LocalCluster(0) as cluster:
        console = await cluster.add_console({"allow_writes": "true"})
        assert await status_of(console.address) == HTTPStatus.SEE_OTHER
        assert await status_of(console.address, console.login_token) == HTTPStatus.OK


async def status_of(address: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(address, allow_redirects=False) as answer,
    ):
        return answer.status
