"""Runs one `quire` command as a process that a process with all imports forks (`command_forks`).

Leaves commands that run until they are stopped, and those that must start as a user starts them, to
`command.py`.
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
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final

ROOT: Final = Path(__file__).parents[3]
PROGRAM: Final = "tests.integration.quire.command_forks"
_ONE_STARTS = threading.Lock()


def run_forked(
    words: Sequence[str], variables: Mapping[str, str], stdin: bytes, timeout_s: float
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end, as `subprocess.run` does; kill it at the timeout."""
    with ExitStack() as files:
        asking, asked = map(files.enter_context, socket.socketpair())
        (from_us, to_it), (from_it, to_us), (errors, to_errors) = (_pipe(files) for _ in range(3))
        theirs = (asked, from_us, to_us, to_errors)
        with _ONE_STARTS:
            forks = _forks()
        socket.send_fds(forks, [b"c"], [each.fileno() for each in theirs])
        for each in theirs:
            each.close()
        request = {"words": words, "variables": dict(variables), "directory": str(Path.cwd())}
        asking.sendall(json.dumps(request).encode() + b"\n")
        asking.settimeout(timeout_s)
        replies = files.enter_context(asking.makefile("rb"))
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_feed, to_it, stdin)
            out, err = (threads.submit(each.read) for each in (from_it, errors))
            pid = int(replies.readline())
            try:
                status = int(replies.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), timeout_s) from None
        return subprocess.CompletedProcess(["quire", *words], status, out.result(), err.result())


@cache
def _forks() -> socket.socket:
    """Start the program once; return the socket for requests."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", PROGRAM, str(theirs.fileno())]
        process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), cwd=ROOT, start_new_session=True
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _pipe(files: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    reading, writing = os.pipe()
    return (
        files.enter_context(os.fdopen(reading, "rb")),
        files.enter_context(os.fdopen(writing, "wb", buffering=0)),
    )


def _feed(stream: BinaryIO, content: bytes) -> None:
    with suppress(BrokenPipeError), stream:
        view = memoryview(content)
        while view:
            view = view[stream.write(view) :]
