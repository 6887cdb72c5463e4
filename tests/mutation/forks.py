"""Jobs in forked processes: each begins with the memory of this one, and changes nothing here.

Leaves the jobs to `session`.
"""

import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FAILED_STATUS = 3
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: its result, or the signal that ended its process."""

    result: Any = None
    is_done: bool = False
    text: str = ""
    """The exception of a job that failed."""


def run_forked(job: Callable[[], Any], timeout_s: float) -> Outcome:
    """Run a job in a child process and return its result, which JSON can hold.

    The job's output is dropped. A child that is not done after `timeout_s` is killed.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run(job, writing)
    os.close(writing)
    received = bytearray()
    try:
        while select.select([reading], [], [], timeout_s)[0]:
            if not (piece := os.read(reading, READ_BYTES)):
                break
            received += piece
        else:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(reading)
        _pid, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        return Outcome(json.loads(received), is_done=True)
    return Outcome(text=received.decode(errors="replace"))


def _run(job: Callable[[], Any], writing: int) -> None:
    status = FAILED_STATUS
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        answer = json.dumps(job()).encode()
        status = 0
    except BaseException:  # noqa: BLE001 - a child reports everything and ends
        answer = traceback.format_exc().encode()
    try:
        while answer:
            answer = answer[os.write(writing, answer) :]
    finally:
        os._exit(status)
