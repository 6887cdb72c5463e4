"""The embedded server ends with its parent, keeps its data, and takes no other server's place."""

import asyncio
import os
import random
import signal
import socket
import sys
from pathlib import Path

import pytest

from metadata.errors import EmbeddedServerError, PortInUseError
from metadata.store.embedded import EmbeddedZooKeeper, four_letter_word
from metadata.store.zookeeper.store import open_store
from tests.until import until

ROOT = Path(__file__).parents[3]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_it_starts_serves_and_stops(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper(tmp_path) as server:
        pid = server.pid
        assert is_alive(pid)
        assert "Mode: standalone" in await four_letter_word("127.0.0.1", server.port, "srvr")
        assert "forceSync" not in (tmp_path / "zookeeper.properties").read_text()
    assert not server.is_running
    assert not is_alive(pid)
    assert server.pid == 0


async def test_a_directory_with_any_name_does(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper(tmp_path / "a b=c:d\\e é漢") as server:
        store = await open_store(server.uri, rng=random.Random(1))
        await store.create("/a", b"1")
        await store.aclose()
    assert list((tmp_path / "a b=c:d\\e é漢" / "version-2").iterdir())


async def test_it_keeps_its_port_and_data(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper(tmp_path) as first:
        store = await open_store(first.uri + "/quire", rng=random.Random(1))
        await store.create("/a", b"1")
        await store.aclose()
    async with EmbeddedZooKeeper(tmp_path) as second:
        assert second.port == first.port
        store = await open_store(second.uri + "/quire", rng=random.Random(1))
        assert (await store.get("/a")).value == b"1"
        await store.aclose()


async def test_it_takes_another_port_when_the_last_one_is_taken(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper(tmp_path) as first:
        port = first.port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        async with EmbeddedZooKeeper(tmp_path) as second:
            assert second.port != port


async def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper(tmp_path / "one") as first:
        second = EmbeddedZooKeeper(tmp_path / "two", port=first.port)
        with pytest.raises(PortInUseError) as caught:
            await second.start()
        assert caught.value.port == first.port
        assert not second.is_running


async def test_a_directory_in_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metadata.store.embedded.LOCK_TIMEOUT_S", 0.1)
    async with EmbeddedZooKeeper(tmp_path):
        with pytest.raises(EmbeddedServerError, match="in use"):
            await EmbeddedZooKeeper(tmp_path).start()


async def test_a_java_that_fails_is_quoted(tmp_path: Path) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho no room for the heap >&2\nexit 3\n")
    java.chmod(0o755)
    (tmp_path / "home" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    server = EmbeddedZooKeeper(tmp_path / "data", environment={"QUIRE_JAVA": str(java)})
    with pytest.raises(EmbeddedServerError, match=r"status 3 .*no room for the heap"):
        await server.start()


async def test_damaged_data_is_reported(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    await server.start()
    await server.stop()
    (tmp_path / "version-2").rename(tmp_path / "moved")
    (tmp_path / "version-2").write_text("not a directory")
    with pytest.raises(EmbeddedServerError, match="ended with status"):
        await server.start()


async def test_kill_and_pause(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    await server.start()
    pid = server.pid
    server.pause()
    assert server.is_running
    server.kill()
    assert not is_alive(pid)
    await server.restart()
    assert server.pid not in (0, pid)
    server.pause()
    await server.stop()
    assert not server.is_running


@pytest.mark.parametrize("is_paused", [False, True])
async def test_it_dies_with_its_parent(tmp_path: Path, is_paused: bool) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).parent / "orphan.py"),
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    pid, port = map(int, (await parent.stdout.readline()).split())
    assert is_alive(pid)
    if is_paused:
        os.kill(pid, signal.SIGSTOP)
    parent.kill()
    await parent.wait()
    await until(lambda: not is_alive(pid))
    async with EmbeddedZooKeeper(tmp_path) as server:
        assert server.port == port


async def test_it_dies_with_its_supervisor(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("needs PR_SET_PDEATHSIG")
    server = EmbeddedZooKeeper(tmp_path)
    await server.start()
    pid = server.pid
    assert server._supervisor is not None
    server._supervisor.kill()
    await until(lambda: not is_alive(pid))
    server.kill()
