"""Ports on this machine for servers that must know theirs before they start.

Leaves ports that a server chooses itself (port 0) to the server.

Invariants: a port that is returned lies below the range from which systems take the ports of
outgoing connections, so no connection takes it before its server listens, or while that restarts.
A process returns no port twice; two processes begin their search at different ports.
"""

import contextlib
import itertools
import os
import socket
from typing import Final

HOST: Final = "127.0.0.1"
FIRST_PORT: Final = 15_000
LAST_PORT: Final = 31_999
"""Linux takes the ports of connections from 32,768 on, macOS from 49,152 on."""
CONNECT_TIMEOUT_S: Final = 2.0
_STRIDE: Final = 61
"""Ports between the first tries of processes whose ids are neighbours."""

_tries = itertools.count()


def is_free(port: int) -> bool:
    """Return whether a server could listen at a port now."""
    with (
        socket.socket() as probe
    ):  # macOS lets one address be bound beside a server for all of them
        probe.settimeout(CONNECT_TIMEOUT_S)
        with contextlib.suppress(OverflowError):
            if probe.connect_ex((HOST, port)) == 0:
                return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def free_port() -> int:
    """Return a port that no server uses. Raises OSError if there is none."""
    count = LAST_PORT - FIRST_PORT + 1
    for _ in range(count):
        port = FIRST_PORT + (os.getpid() * _STRIDE + next(_tries)) % count
        if is_free(port):
            return port
    raise OSError(f"no port from {FIRST_PORT} to {LAST_PORT} is free: stop servers on this machine")
