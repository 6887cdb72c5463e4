"""The limit of file descriptors is raised and divided, and connections are refused at it."""

import asyncio
import errno
import resource
import socket
import subprocess
import sys

import pytest

from quire.server import descriptors
from quire.server.descriptors import ConnectionRefuser, share_descriptors

RAISED = """
import resource
from quire.server import descriptors
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
hard = 300 if hard == resource.RLIM_INFINITY else min(hard, 300)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
print(hard)
print(descriptors.raise_limit(200), descriptors.current_limit(), descriptors.raise_limit(100))
print(descriptors.share_descriptors(1_000, 250))
"""


def test_the_soft_limit_is_raised_up_to_the_hard_one() -> None:
    run = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=True)
    hard, first, second = run.stdout.splitlines()
    assert first == "200 200 200"
    start = f"({int(hard) - 250}, 'the limit of open files is {hard}, and 1250 are needed: 1000 for"
    assert second.startswith(start)


@pytest.mark.parametrize(
    ("limit", "allowed", "warns"), [(1_250, 1_000, False), (400, 150, True), (100, 1, True)]
)
def test_connections_get_the_remaining_descriptors(
    limit: int, allowed: int, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "raise_limit", lambda _: limit)
    connections, warning = share_descriptors(1_000, 250)
    assert connections == allowed
    assert bool(warning) is warns


@pytest.mark.parametrize(("limit", "allowed"), [(11_152, 10_000), (4_000, 2_848), (1_024, 512)])
def test_others_get_at_most_their_share_of_a_low_limit(
    limit: int, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker whose hard limit was 1,024 accepted one connection, and its clients waited."""
    monkeypatch.setattr(descriptors, "raise_limit", lambda _: limit)
    assert share_descriptors(10_000, 1_152, own_share_max=0.5)[0] == allowed


def test_open_descriptors_are_counted() -> None:
    before = descriptors.count_open()
    with socket.socket(), socket.socket():
        assert descriptors.count_open() == before + 2
    assert descriptors.current_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


async def test_connections_that_wait_are_refused_when_no_descriptor_is_left() -> None:
    loop = asyncio.get_running_loop()
    others: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: others.append(context))
    refuser = ConnectionRefuser()
    refuser.install(loop)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        for _ in range(2):
            clients = [socket.create_connection(listener.getsockname(), 30) for _ in range(3)]
            for error in (errno.EMFILE, errno.ECONNABORTED):
                loop.call_exception_handler(
                    {"message": "accept", "exception": OSError(error, ""), "socket": listener}
                )
            for client in clients:
                assert client.recv(1) == b""
                client.close()
    refuser.close()
    assert refuser.refused == 6
    assert len(others) == 2  # other errors are handled as before
