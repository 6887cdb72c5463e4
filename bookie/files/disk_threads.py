"""Blocking calls on separate threads, with their results returned to the event loop.

Leaves the calls themselves to `bookie.files.disk_real` and `bookie.files.index_lmdb`, its only
users.

Invariant: with one thread, calls run one after another in the order in which they were queued.
Source: storage design, "Threads".
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

JOIN_S_MAX: Final = 30.0


class Threads:
    """Daemon threads that share one queue of calls."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, call: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """Queue a call; the future receives its result or exception."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put((call, arguments, future))
        return future

    async def obtain(
        self,
        call: Callable[..., Result],
        *arguments: Any,
        give_up: Callable[[Result], object] | None,
    ) -> Result:
        """Run a call for its result. If the caller is cancelled, `give_up` takes the result of the
        call, which runs to its end: what the call opened does not stay open. Needs one thread.
        """
        results: list[Result] = []

        def keep() -> Result:
            results.append(call(*arguments))
            return results[0]

        try:
            return await self.run(keep)
        except asyncio.CancelledError:
            if give_up is not None:
                self.run(lambda: [give_up(result) for result in results])
            raise

    def close(self) -> None:
        """Stop the threads after every queued call has run."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(JOIN_S_MAX)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, arguments, future = job
            try:
                result = call(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised again by the future
                self._answer(_fail, future, error)
            else:
                self._answer(_succeed, future, result)
            del job, call, arguments, future

    def _answer(self, *call: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits for the result
            self._loop.call_soon_threadsafe(*call)


_Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]


def _succeed(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
