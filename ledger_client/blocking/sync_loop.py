"""Event loop in a background thread, for blocking callers.

Leaves the work that runs there to `sync` and `sync_handles`.

Invariants: work started by one thread begins in that order; in a forked child, calls fail instead
of waiting for a thread that does not exist there.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from ledger_client.errors import ClientClosedError, LedgerError
from ledger_client.own_loop import ForkGuard

JOIN_TIMEOUT_S: Final = 5.0

ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """One event loop in one daemon thread."""

    def __init__(self) -> None:
        self._fork_guard = ForkGuard("client")
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Start `work` on the loop; work started by one thread begins in order."""
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, loop)

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Return the outcome of `work`; cancel it if the wait is interrupted."""
        return wait(self.start(work))

    def stop(self) -> None:
        """End the loop and its thread."""
        with self._lock:
            if self._fork_guard.is_forked:
                return
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(JOIN_TIMEOUT_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        self._fork_guard.require_process()
        with self._lock:
            if self._is_closed:
                raise ClientClosedError("the client is closed: create a new one")
            if threading.current_thread() is self._thread:
                raise LedgerError(
                    "a blocking call in `on_event` would wait for itself: use a thread"
                )
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="quire-client", daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in sorted(left, key=asyncio.Task.get_name):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def wait(outcome: Future[ResultT]) -> ResultT:
    """Return the outcome of a future; cancel it if the wait is interrupted."""
    try:
        return outcome.result()
    except BaseException:
        outcome.cancel()
        raise


def iterate(background: BackgroundLoop, items: AsyncIterator[ResultT]) -> Iterator[ResultT]:
    """Yield the items of an asynchronous iterator; close it at the end."""
    end = object()

    async def following() -> ResultT | object:
        return await anext(items, end)

    async def closed() -> None:
        if isinstance(items, AsyncGenerator):
            await items.aclose()

    try:
        while (item := background.run(following())) is not end:
            yield item  # type: ignore[misc]  # it is not `end`
    finally:
        background.run(closed())
