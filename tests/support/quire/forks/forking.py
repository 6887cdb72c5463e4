"""Processes of `quire` that a process with all imports forks (`program.py`), and commands in them.

Leaves servers to `forked_server.py`.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Final

ROOT: Final = Path(__file__).parents[4]
PROGRAM: Final = "tests.support.quire.forks.program"
FORKS: Final[list[socket.socket]] = []
"""Socket for requests to the program, once it runs."""
FORKED: Final[set[int]] = set()
"""Ids of the processes that this one asked for, also of those that have ended."""
_ONE_STARTS: Final = threading.Lock()


def fork_quire(
    words: Sequence[str], variables: Mapping[str, str], streams: Sequence[int]
) -> socket.socket:
    """Fork a process that runs a command with these three standard streams, of which it gets
    copies; return the socket with the two lines of its replies. Servers that it starts are forked
    too.
    """
    with _ONE_STARTS:
        forks = FORKS[0] if FORKS else _start_program()
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(forks, [b"c"], [theirs.fileno(), *streams, forks.fileno()])
    request = {"words": words, "variables": dict(variables), "directory": str(Path.cwd())}
    ours.sendall(json.dumps(request).encode() + b"\n")
    return ours


class ForkedCommand:
    """A command in a forked process, with pipes as its streams and the calls of `Popen`."""

    def __init__(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        self.args = ["quire", *words]
        self.returncode: int | None = None
        with ExitStack() as files:
            (from_us, self.stdin), (self.stdout, to_us), (self.stderr, errors) = (
                pipe(files) for _ in range(3)
            )
            theirs = [o.fileno() for o in (from_us, to_us, errors)]
            self._asking = fork_quire(words, variables, theirs)
            for o in (from_us, to_us, errors):
                o.close()
            files.pop_all()
        self._replies = self._asking.makefile("rb")
        self.pid = int(self._replies.readline())
        FORKED.add(self.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process has not ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended; return its status."""
        if self.returncode is None:
            self._asking.settimeout(timeout)
            try:
                self.returncode = int(self._replies.readline())
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._replies.close()
            self._asking.close()
        return self.returncode

    def communicate(self, stdin: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Write to its input, read its outputs to their ends, and wait until it has ended. At the
        timeout, kill it.
        """
        with ThreadPoolExecutor(3) as threads, self.stdout, self.stderr:
            threads.submit(_feed, self.stdin, stdin)
            outputs = [threads.submit(o.read) for o in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            out, err = (output.result() for output in outputs)
        return out, err


def pipe(files: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """Return the ends of a pipe, to read and to write; both are closed with the stack."""
    reading, writing = os.pipe()
    return (
        files.enter_context(os.fdopen(reading, "rb")),
        files.enter_context(os.fdopen(writing, "wb", buffering=0)),
    )


def adopt(forks: socket.socket) -> None:
    """Use a program that another process started."""
    FORKS[:] = [forks]


def _start_program() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", PROGRAM, str(theirs.fileno())]
        process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), cwd=ROOT, start_new_session=True
        )

    def end() -> None:
        ours.close()
        process.terminate()  # a cluster that runs on holds a copy of the socket
        process.wait()

    atexit.register(end)
    FORKS.append(ours)
    return ours


def _feed(stream: BinaryIO, content: bytes) -> None:
    with suppress(BrokenPipeError), stream:
        view = memoryview(content)
        while view:
            view = view[stream.write(view) :]
