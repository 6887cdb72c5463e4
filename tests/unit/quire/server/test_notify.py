"""Messages to systemd, to a real socket and from a real process."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.server.notify import (
    ALIVE,
    READY,
    STOPPING,
    Notifier,
    socket_address,
    watchdog_interval_s,
)
from tests.until import WAIT_S

PROGRAM = """
import os, sys, time
from quire.server.process import ServerProcess, print_ready, run_server

MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

async def serve(stopping):
    print_ready({"children": sorted(name for name in os.environ if name in MANAGER)})
    if sys.argv[1] == "stall":
        time.sleep(600)
    await stopping.wait()

sys.exit(run_server(ServerProcess("thing", "info", False, ()), serve))
"""


@pytest.mark.parametrize(
    ("name", "address"),
    [("", ""), ("/run/a", "/run/a"), ("@a/b", "\0a/b"), ("relative", ""), ("vsock:1:2", "")],
)
def test_addresses(name: str, address: str) -> None:
    assert socket_address(name) == address


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "2000000"}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "7"}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
    ],
)
def test_times_of_the_watchdog(variables: dict[str, str], seconds: float | None) -> None:
    assert watchdog_interval_s(variables, 7) == seconds


async def test_without_a_manager_nothing_is_sent(tmp_path: Path) -> None:
    for variables in ({}, {"NOTIFY_SOCKET": str(tmp_path / "none"), "WATCHDOG_USEC": "1000"}):
        notifier = Notifier(variables, 7)
        notifier.start()
        notifier.send(READY)
        await asyncio.sleep(0)
        notifier.close()


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """Bind in a short directory: the path of a socket has at most 107 bytes."""
    with (
        tempfile.TemporaryDirectory(prefix="quire-", dir="/tmp") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end,
    ):
        end.bind(f"{directory}/notify")
        end.settimeout(WAIT_S)
        yield end


def started(manager: socket.socket, how: str, watchdog_us: int) -> "subprocess.Popen[bytes]":
    variables = {
        **os.environ,
        "NOTIFY_SOCKET": manager.getsockname(),
        "WATCHDOG_USEC": str(watchdog_us),
    }
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how], env=variables, stdout=subprocess.PIPE
    )


def received(manager: socket.socket) -> str:
    return manager.recv(1_000).decode()


def test_a_server_reports_that_it_is_ready_alive_and_stopping(manager: socket.socket) -> None:
    with started(manager, "serve", 60_000) as process:
        assert [received(manager) for _ in range(2)] == [ALIVE, READY]
        assert [received(manager) for _ in range(3)] == [ALIVE] * 3
        process.send_signal(signal.SIGTERM)
        while (message := received(manager)) == ALIVE:
            continue
        assert message == STOPPING
        assert process.wait(WAIT_S) == 0


def test_no_child_sends_messages_to_the_manager(manager: socket.socket) -> None:
    with started(manager, "serve", 60_000) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"children": []}
        process.terminate()


def test_a_stalled_loop_sends_no_sign_of_life(manager: socket.socket) -> None:
    with started(manager, "stall", 60_000) as process:
        assert [received(manager) for _ in range(2)] == [ALIVE, READY]
        manager.settimeout(1.0)
        with pytest.raises(TimeoutError):
            received(manager)
        process.kill()
