"""Processes that are paused while a test looks at the others."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Pause processes (SIGSTOP) during the block."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
