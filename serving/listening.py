"""Tuning of a server port's connections, and their draining before they are closed.

Leaves opening ports, and the protocol of a connection, to `bookie.server.server` and
`broker_layer.server.connections.server`.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

LISTEN_BACKLOG: Final = 1_024
DRAIN_POLL_S: Final = 0.005
KEEPALIVE_IDLE_S: Final = 30
KEEPALIVE_INTERVAL_S: Final = 10
KEEPALIVE_PROBES: Final = 3


class Drained(Protocol):
    """A connection that can be drained."""

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""

    def close(self) -> None:
        """Close after everything written was sent."""

    def abort(self) -> None:
        """Close at once."""


async def drain(
    connections: Callable[[], Sequence[Drained]], now: Callable[[], float], deadline_s: float
) -> None:
    """Wait until all connections are idle, then close them; abort them at the deadline."""
    await _poll_until(lambda: all(each.is_idle for each in connections()), now, deadline_s)
    for connection in connections():
        connection.close()
    await _poll_until(lambda: not connections(), now, deadline_s)
    for connection in connections():
        connection.abort()


def tune_connection(transport: asyncio.BaseTransport) -> None:
    """Set a connection's options so that answers are sent at once and a lost peer is detected."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPALIVE", KEEPALIVE_IDLE_S),  # the same, as macOS calls it
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def _poll_until(
    is_done: Callable[[], bool], now: Callable[[], float], deadline_s: float
) -> None:
    while now() < deadline_s and not is_done():  # noqa: ASYNC110 - only at the end
        await asyncio.sleep(DRAIN_POLL_S)
