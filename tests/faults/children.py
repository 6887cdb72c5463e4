"""Forked processes that run a part of a campaign, so that it may end at any place.

Leaves the code that runs there to the caller. A fork costs a hundredth of a start of Python.

Invariant: the parent has no other thread when it forks: campaigns run in separate processes.
"""

import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 1 << 16
FAILED_STATUS: Final = 70
_MEMORY: Final = Path("/dev/shm")
"""Directory for temporary files in memory, on systems that have one."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """End of a child, and its complete standard output."""

    output: bytes
    status: int
    """Its exit status; for a signal, minus its number."""
    was_late: bool
    """Whether it was killed because its time was over."""


class Child:
    """Forked process, and the pipe that it writes to."""

    def __init__(
        self, work: Callable[[], None], variables: Mapping[str, str] | None = None
    ) -> None:
        self._reader, writer = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            _be_child(work, writer, variables or {})
        os.close(writer)
        self._output = bytearray()

    def first_line(self, seconds: float) -> bytes:
        """Read until there is a line, the child ends, or this time is over; return the text."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._output and (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self._reader], [], [], left)
            data = os.read(self._reader, CHUNK_BYTES) if ready else b""
            if ready and not data:
                break
            self._output += data
        return bytes(self._output).partition(b"\n")[0]

    def wait(self, seconds: float) -> ChildEnd:
        """Read until it ends; kill it after this time."""
        deadline = time.monotonic() + seconds
        output, was_late = self._output, False
        while True:
            left = deadline - time.monotonic()
            if left <= 0 and not was_late:
                was_late = True
                self.kill()
            ready, _, _ = select.select([self._reader], [], [], None if was_late else left)
            if ready:
                data = os.read(self._reader, CHUNK_BYTES)
                if not data:
                    break
                output += data
        os.close(self._reader)
        _, status = os.waitpid(self.pid, 0)
        return ChildEnd(bytes(output), os.waitstatus_to_exitcode(status), was_late)

    def kill(self) -> None:
        """End it with SIGKILL; `wait` must still be called."""
        os.kill(self.pid, signal.SIGKILL)


def _be_child(work: Callable[[], None], writer: int, variables: Mapping[str, str]) -> None:
    status = FAILED_STATUS
    try:
        os.dup2(writer, 1)
        os.environ.update(variables)
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - nothing of this process may go on in the child
        traceback.print_exc()
    finally:
        os._exit(status)


def make_directory(prefix: str, *, in_memory: bool) -> Path:
    """Make a temporary directory, in memory where the system has a place for that."""
    parent = _MEMORY if in_memory and os.access(_MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=f"quire-{prefix}-", dir=parent))
