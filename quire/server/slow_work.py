"""Threads for work that takes milliseconds of processor time, such as checking a password.

Invariants: at most `threads` works run at once, so that the event loop keeps its processor; at most
WAITING_MAX run or wait, and a further one is refused at once. A work holds its place until it ends,
also if its caller no longer waits. After `close` every work is refused.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

THREADS: Final = 1
"""One is enough: checks release the interpreter, and a second one takes the loop's processor."""
WAITING_MAX: Final = 256

ResultT = TypeVar("ResultT")


class SlowWorkFullError(Exception):
    """Too many works wait, or the process is closing."""


class SlowWork:
    """Threads of one process. Call `close` once."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        self._waiting = 0
        self._is_closed = False

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run a function in a thread and return its result. Raises SlowWorkFullError."""
        if self._is_closed:
            raise SlowWorkFullError("the threads are closed")
        if self._waiting >= WAITING_MAX:
            raise SlowWorkFullError(f"{WAITING_MAX} works wait already")
        self._waiting += 1
        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        done.add_done_callback(self._note_done)
        return await asyncio.shield(done)

    def _note_done(self, _: object) -> None:
        self._waiting -= 1

    def close(self) -> None:
        """Start no further work; that which runs ends by itself."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
