"""File descriptors of this process: the limit, the number of open ones, and the refusal of
connections when none is left.

Invariants: the soft limit is raised and never lowered; connections leave free the descriptors that
a server needs for other uses.
"""

import asyncio
import contextlib
import errno
import resource
import socket
from pathlib import Path
from typing import Any, Final

REFUSED_AT_ONCE_MAX: Final = 1_024
"""Maximum number of waiting connections refused in one callback of the loop."""
_DIRECTORIES: Final = ("/proc/self/fd", "/dev/fd")
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)


def raise_limit(wanted: int) -> int:
    """Raise the soft limit to `wanted` descriptors, or as far as the hard limit allows. Return the
    new limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):  # some systems have another, lower limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, reachable), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def share_descriptors(
    connections_max: int, own: int, *, own_share_max: float = 1.0
) -> tuple[int, str]:
    """Raise the limit to `connections_max` descriptors for connections plus `own` others. Return
    how many connections the limit allows, and a warning if they are fewer. The others have
    priority, up to a share of the limit.
    """
    wanted = connections_max + own
    limit = raise_limit(wanted)
    if limit >= wanted:
        return connections_max, ""
    allowed = max(1, limit - min(own, int(limit * own_share_max)))
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
    """Return the number of open descriptors; -1 if the system does not report it."""
    for directory in _DIRECTORIES:
        with contextlib.suppress(OSError):
            return sum(1 for _ in Path(directory).iterdir()) - 1  # without the one for listing
    return -1


class ConnectionRefuser:
    """Refusal of waiting connections while no descriptor is left.

    In that state asyncio stops accepting for a second, and clients wait without an answer. This
    class keeps one spare descriptor. It closes the spare one, so that each waiting connection can
    be accepted and closed. (uvloop does the same by itself.)
    """

    def __init__(self) -> None:
        self.refused = 0
        self._spare: socket.socket | None = socket.socket()

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle the loop's reports of exhausted descriptors; pass other errors to the previous
        handler.
        """
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
        """Close the spare descriptor."""
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def refuse_waiting(self, listener: int) -> None:
        """Accept and close each connection that waits at a listening socket, given by its
        descriptor.
        """
        self.close()
        borrowed = socket.socket(fileno=listener)
        try:
            for _ in range(REFUSED_AT_ONCE_MAX):
                borrowed.accept()[0].close()
                self.refused += 1
        except OSError:  # none is waiting, or another thread used the descriptor
            pass
        finally:
            borrowed.detach()
            with contextlib.suppress(OSError):
                self._spare = socket.socket()
