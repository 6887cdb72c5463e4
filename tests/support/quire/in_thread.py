"""A cluster, or anything that a loop runs, for blocking callers: a loop in a thread runs it.

Leaves what runs to its asynchronous context manager.
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

CALL_S_MAX: Final = 240
STOP_S_MAX: Final = 60

Yielded = TypeVar("Yielded")
Result = TypeVar("Result")


class InThread(Generic[Yielded]):
    """Runs an asynchronous context manager as a blocking one."""

    def __init__(self, manager: AbstractAsyncContextManager[Yielded]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._manager = manager

    def __enter__(self) -> Yielded:
        self._thread.start()
        try:
            return self.run(self._entered())
        except BaseException:
            self._end()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._left())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S_MAX)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S_MAX)

    async def _entered(self) -> Yielded:
        return await self._manager.__aenter__()

    async def _left(self) -> None:
        await self._manager.__aexit__(None, None, None)
