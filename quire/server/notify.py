"""Messages to systemd: the server is ready, is stopping, and its event loop is alive.

Without systemd, nothing is sent.

Format: datagrams of lines `NAME=value` to the socket that `NOTIFY_SOCKET` names, a path or an
abstract name after `@`.

Invariants: a message that cannot be sent is left out, and never waits; signs of life come from the
event loop, so a loop that is stalled sends none, and the manager starts the server again.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, MutableMapping
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"
ADDRESS_VARIABLE: Final = "NOTIFY_SOCKET"
INTERVAL_VARIABLE: Final = "WATCHDOG_USEC"
PROCESS_VARIABLE: Final = "WATCHDOG_PID"
SIGNS_PER_INTERVAL: Final = 3
"""Number of signs of life in the time after which the manager ends the server."""
_MICROSECONDS: Final = 1e6


class Notifier:
    """Sender of messages to the manager of this process; does nothing without one."""

    def __init__(self, variables: Mapping[str, str], process_id: int) -> None:
        """Read the address and the time of the watchdog from the environment."""
        self._address = socket_address(variables.get(ADDRESS_VARIABLE, ""))
        self._interval_s = watchdog_interval_s(variables, process_id)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send signs of life from this event loop until `close`."""
        if self._address and self._interval_s:
            self._sign(self._interval_s / SIGNS_PER_INTERVAL)

    def send(self, message: str) -> None:
        """Send a message."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.setblocking(False)  # noqa: FBT003 - the standard library's argument
            end.sendto(message.encode(), self._address)

    def close(self) -> None:
        """Stop sending signs of life."""
        if self._timer is not None:
            self._timer.cancel()

    def _sign(self, every_s: float) -> None:
        self.send(ALIVE)
        self._timer = asyncio.get_running_loop().call_later(every_s, self._sign, every_s)


def socket_address(name: str) -> str:
    """Return the address of a socket, empty for none: `@name` is an abstract one."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def watchdog_interval_s(variables: Mapping[str, str], process_id: int) -> float | None:
    """Return the time within which the manager wants a sign of life; None if it wants none."""
    text = variables.get(INTERVAL_VARIABLE, "")
    if variables.get(PROCESS_VARIABLE, str(process_id)) != str(process_id) or not text.isdigit():
        return None
    return int(text) / _MICROSECONDS or None


def keep_from_children(variables: MutableMapping[str, str]) -> None:
    """Remove the manager's variables, so that no child sends messages, which it would refuse."""
    for name in (ADDRESS_VARIABLE, INTERVAL_VARIABLE, PROCESS_VARIABLE):
        variables.pop(name, None)


THIS_PROCESS: Final = Notifier(os.environ, os.getpid())
"""The notifier of this process: a server runs once in a process."""
