"""`quire zookeeper run` serves alone and as one of three, and an ensemble continues without one."""

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from metadata.store.embedded_ports import free_port
from metadata.store.zookeeper.store import open_store
from quire.errors import ExitCode
from tests.integration.quire.command import QUIRE, TIMEOUT_S, environment, run_quire
from tests.until import WAIT_S, until

pytestmark = pytest.mark.long

FAST = ["--tick-ms", "200", "--heap-mb", "64"]


@contextmanager
def serving(*words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a server; kill it at the end if it still runs."""
    command = [*QUIRE, "zookeeper", "run", "--die-with-parent", *FAST, *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(None))
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def ready(process: "subprocess.Popen[bytes]") -> dict[str, object]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=TIMEOUT_S)[1].decode()
    told: dict[str, object] = json.loads(line)
    return told


def modes(*ports: int) -> list[str]:
    addresses = [f"127.0.0.1:{port}" for port in ports]
    done = run_quire("zookeeper", "status", *addresses, "-o", "json")
    return [str(load["mode"]) for load in json.loads(done.stdout)]


async def write_and_read(uri: str, path: str) -> None:
    store = await open_store(uri, rng=random.Random(1))
    await store.create(path, b"1")
    assert (await store.get(path)).value == b"1"
    await store.aclose()


async def test_a_single_server_stops_in_order_and_keeps_its_data(tmp_path: Path) -> None:
    port = free_port()
    words = ["--data", str(tmp_path / "data"), "--port", str(port)]
    for path in ("/a", "/b"):
        with serving(*words) as process:
            told = ready(process)
            assert told["address"] == f"127.0.0.1:{port}"
            assert modes(port) == ["standalone"]
            await write_and_read(f"zk://127.0.0.1:{port}/quire", path)
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0
            with pytest.raises(ProcessLookupError):
                os.kill(int(str(told["java"])), 0)
    assert modes(port) == ["no answer"]


async def test_three_servers_go_on_without_one(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(9)]
    clients = ports[:3]
    members = [
        f"--server={n + 1}=127.0.0.1:{ports[3 + 2 * n]}:{ports[4 + 2 * n]}" for n in range(3)
    ]
    with ExitStack() as all_servers:

        def start(n: int) -> "subprocess.Popen[bytes]":
            data = ["--data", str(tmp_path / str(n)), "--id", str(n + 1)]
            words = [*data, "--port", str(clients[n]), *members]
            return all_servers.enter_context(serving(*words))

        servers = [start(n) for n in range(3)]
        for server in servers:
            ready(server)
        assert sorted(modes(*clients)) == ["follower", "follower", "leader"]
        uri = "zk://" + ",".join(f"127.0.0.1:{port}" for port in clients)
        await write_and_read(f"{uri}/quire", "/before")
        lost = modes(*clients).index("leader")
        servers[lost].kill()
        others = [port for port in clients if port != clients[lost]]
        await until(lambda: sorted(modes(*others)) == ["follower", "leader"])
        await write_and_read(f"{uri}/quire", "/after")
        ready(start(lost))
        assert sorted(modes(*clients)) == ["follower", "follower", "leader"]


def test_a_directory_of_another_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("2\n")
    with serving("--data", str(tmp_path)) as process:
        assert process.wait(TIMEOUT_S) == ExitCode.REFUSED
        assert process.stderr is not None
        errors = process.stderr.read().decode()
    assert "belongs to server 2 of an ensemble, and this is a single server" in errors


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    command = [*QUIRE, "zookeeper", "run", "--data", str(tmp_path)]
    variables = {**environment(None), "QUIRE_JAVA": str(tmp_path / "java")}
    done = subprocess.run(command, capture_output=True, env=variables, timeout=WAIT_S, check=False)
    assert done.returncode == ExitCode.UNAVAILABLE
    assert b"set QUIRE_JAVA" in done.stderr


def test_a_port_in_use_ends_the_server(tmp_path: Path) -> None:
    port = free_port()
    with serving("--data", str(tmp_path / "1"), "--port", str(port)) as first:
        ready(first)
        with serving("--data", str(tmp_path / "2"), "--port", str(port)) as second:
            assert second.wait(TIMEOUT_S) == ExitCode.UNAVAILABLE
            assert second.stderr is not None
            assert "a port in use" in second.stderr.read().decode()
