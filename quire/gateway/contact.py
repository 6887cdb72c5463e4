"""Contact of a gateway with the metadata service, shared by its clients.

Leaves the session with the service to the store.

Invariants: a call ends after a read that began after the call did; at most one read runs, however
many calls wait.
"""

import asyncio
from collections.abc import Awaitable, Callable

from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError


class Contact:
    """Shared reads of one kind."""

    def __init__(self, read: Callable[[], Awaitable[object]]) -> None:
        self._read = read
        self._next: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def prove(self) -> None:
        """Wait until a read that begins from now on is answered. Raises MetadataError."""
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.create_future()
        waiting = self._next
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._answer())
        await asyncio.shield(waiting)

    async def aclose(self) -> None:
        """Stop; calls that wait fail."""
        await cancel_and_wait(self._task)
        if self._next is not None and not self._next.done():
            self._next.cancel()

    async def _answer(self) -> None:
        while self._next is not None:
            waiting, self._next = self._next, None
            try:
                await self._read()
            except MetadataError as error:
                waiting.set_exception(error)
                waiting.exception()  # its callers may have gone
            except asyncio.CancelledError:
                waiting.cancel()
                raise
            else:
                waiting.set_result(None)
