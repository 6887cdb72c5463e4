"""File descriptors of this process: the limit, how many are open, and refusal of connections when
none is left.

Leaves what needs how many to the servers.

Invariants: the soft limit is raised and never lowered; connections leave a server the descriptors
that it needs for everything else.
"""

import asyncio
import contextlib
import errno
import resource
import socket
from pathlib import Path
from typing import Any, Final

REFUSED_AT_ONCE_MAX: Final = 1_024
"""Waiting connections that are refused in one callback of the loop."""
_DIRECTORIES: Final = ("/proc/self/fd", "/dev/fd")
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)


def raise_limit(wanted: int) -> int:
    """Raise the soft limit to `wanted` descriptors, or as near as the hard limit allows; return the
    limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):  # some systems have a lower limit of their own
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, reachable), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def share_descriptors(connections_max: int, own: int) -> tuple[int, str]:
    """Raise the limit to `connections_max` descriptors for connections and `own` others; return how
    many connections it allows, and a warning if they are fewer. The others come first.
    """
    wanted = connections_max + own
    limit = raise_limit(wanted)
    if limit >= wanted:
        return connections_max, ""
    allowed = max(1, limit - own)
    return allowed, (
        f"the limit of open files is {limit}, and {wanted} are needed: {connections_max} for "
        f"connections (connections_max) and {own} for files and other uses. At most {allowed} "
        f"connections are accepted. Raise the hard limit to {wanted} (LimitNOFILE= in systemd, "
        "ulimit -Hn in a shell, --ulimit nofile= in Docker), or lower connections_max"
    )


def current_limit() -> int:
    """Return the soft limit; -1 when there is none."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def count_open() -> int:
    """Return how many descriptors are open; -1 where the system does not say."""
    for directory in _DIRECTORIES:
        with contextlib.suppress(OSError):
            return sum(1 for _ in Path(directory).iterdir()) - 1  # without the one that lists
    return -1


class ConnectionRefuser:
    """Refusal of the connections that wait while no descriptor is left.

    asyncio stops to accept for a second then, and clients wait for an answer that does not come.
    This keeps one descriptor to give up, so that each can be accepted and closed. (uvloop does the
    same by itself.)
    """

    def __init__(self) -> None:
        self.refused = 0
        self._spare: socket.socket | None = socket.socket()

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle the exhaustion that the loop reports; everything else as before."""
        before = loop.get_exception_handler()

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error, listener = context.get("exception"), context.get("socket")
            if isinstance(error, OSError) and error.errno in _EXHAUSTED and listener is not None:
                self.refuse_waiting(listener.fileno())
            elif before is None:
                loop.default_exception_handler(context)
            else:
                before(loop, context)

        loop.set_exception_handler(handle)

    def close(self) -> None:
        """Give the spare descriptor up."""
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def refuse_waiting(self, listener: int) -> None:
        """Close each connection that waits at a listening socket, given by its descriptor."""
        self.close()
        borrowed = socket.socket(fileno=listener)
        try:
            for _ in range(REFUSED_AT_ONCE_MAX):
                borrowed.accept()[0].close()
                self.refused += 1
        except OSError:  # none waits any more, or another thread took the descriptor
            pass
        finally:
            borrowed.detach()
            with contextlib.suppress(OSError):
                self._spare = socket.socket()
