"""Event loop in a background thread, for blocking callers; and the methods of their handles, made
from the methods of the asynchronous ones.

Leaves the handles to `sync` and `sync_handles`.

Invariants: work started by one thread begins in that order; work that is started ends, also while
another thread stops the loop, and if a callback ends it by SystemExit; in a forked child, calls
fail instead of waiting for a thread, or a lock of one, that does not exist there.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from ledger_client.errors import ClientClosedError, LedgerError
from ledger_client.handle import ForkGuard, Handle

JOIN_TIMEOUT_S: Final = 5.0

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """One event loop in one daemon thread."""

    def __init__(self) -> None:
        self._fork_guard = ForkGuard("client")
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        """Set on the loop. Unlike the loop's `stop`, it does not disturb an end by SystemExit."""

    def start(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Start `work` on the loop; work started by one thread begins in order. Raises
        ClientClosedError, LedgerError if the thread cannot be started.
        """
        try:
            self.require_process()
            with self._lock:  # `stop` comes before or after
                return asyncio.run_coroutine_threadsafe(work, self._running())
        except BaseException:
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Return the outcome of `work`; cancel it if the wait is interrupted."""
        return wait(self.start(work))

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._fork_guard.is_forked:
            return
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(self._stopping.set)
            thread.join(JOIN_TIMEOUT_S)

    @property
    def is_running(self) -> bool:
        """Whether this process has started the loop, and it has not ended."""
        return not (self._fork_guard.is_forked or self._is_closed) and self._loop is not None

    def require_process(self) -> None:
        """Raise ClientClosedError in a forked child: call this before waiting for any lock."""
        self._fork_guard.require_process()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._is_closed:
            raise ClientClosedError("the client is closed: create a new one")
        if threading.current_thread() is self._thread:
            raise LedgerError("a blocking call in `on_event` would wait for itself: use a thread")
        if self._loop is None:
            loop = asyncio.new_event_loop()
            name = "quire-client"
            thread = threading.Thread(target=self._serve, args=(loop,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                loop.close()
                text = f"the thread of this client cannot be started ({error}): end other threads"
                raise LedgerError(f"{text}, or raise the limit, and call again") from error
            self._loop, self._thread = loop, thread
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._stopping.wait())
        finally:
            with self._lock:  # `start` comes before, and what it started ends, or is refused
                self._is_closed = True
            loop.run_until_complete(_end_all())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


async def _end_all() -> None:
    """Cancel every task, also those that begin only now, and wait for them."""
    await asyncio.sleep(0)  # what another thread has just started begins
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in sorted(left, key=asyncio.Task.get_name):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)


def wait(outcome: Future[ResultT]) -> ResultT:
    """Return the outcome of a future; cancel it if the wait is interrupted. Raises
    ClientClosedError if another thread closed the client meanwhile.
    """
    try:
        return outcome.result()
    except CancelledError as error:
        text = "the client was closed during this call: create a new one"
        raise ClientClosedError(text, outcome="unknown") from error
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


class BlockingHandle(Handle):
    """A handle for threads: it passes calls on to a handle of the asynchronous client."""

    _background: BackgroundLoop
    _handle: Any
    """The other handle, which is used only on the loop."""

    def _description(self) -> str:  # type: ignore[explicit-override]
        return f"over {self._handle!r}"


def blocking(
    method: Callable[Concatenate[Any, ParametersT], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[BlockingHandle, ParametersT], ResultT]:
    """Return the method of a blocking handle that calls this method of the other handle, and
    returns its outcome.
    """
    name = method.__name__

    @wraps(method)
    def call(
        self: BlockingHandle, /, *args: ParametersT.args, **kwargs: ParametersT.kwargs
    ) -> ResultT:
        work: Coroutine[Any, Any, ResultT] = getattr(self._handle, name)(*args, **kwargs)
        return self._background.run(work)

    return call


def iterating(
    method: Callable[Concatenate[Any, ParametersT], AsyncIterator[ResultT]],
) -> Callable[Concatenate[BlockingHandle, ParametersT], Iterator[ResultT]]:
    """Return the method of a blocking handle that yields what this method of the other one does."""
    name = method.__name__

    @wraps(method)
    def call(
        self: BlockingHandle, /, *args: ParametersT.args, **kwargs: ParametersT.kwargs
    ) -> Iterator[ResultT]:
        return iterate(self._background, getattr(self._handle, name)(*args, **kwargs))

    return call
