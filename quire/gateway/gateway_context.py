"""State shared by all connections to one gateway, and its contact with the metadata service."""

import asyncio
from collections.abc import Awaitable, Callable

from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError
from metadata.store.interface import MetadataStore
from quire.gateway.limits import GatewayCounters, GatewayLimits
from quire.gateway.requests import MetadataRequests
from quire.gateway.sessions import Sessions
from quire.server.connection_context import ConnectionContext
from quire.server.server_log import ServerLog

PrincipalOf = Callable[[asyncio.BaseTransport | None], str]
"""Returns the principal that a connection proved; empty if it proved none."""


class GatewayContext(ConnectionContext):
    """State shared by connections, for one event loop."""

    limits: GatewayLimits
    counters: GatewayCounters

    def __init__(
        self,
        store: MetadataStore,
        sessions: Sessions,
        requests: MetadataRequests,
        principal_of: PrincipalOf,
        limits: GatewayLimits,
        counters: GatewayCounters,
        log: ServerLog,
        now: Callable[[], float],
    ) -> None:
        super().__init__(limits, counters, log, now)
        self.store = store
        self.sessions = sessions
        self.requests = requests
        self.principal_of = principal_of
        self.pings = Contact(lambda: store.get("/"))
        self.hellos = Contact(lambda: store.get("/", agreed=True))
        """Agreed reads, so that a client of another gateway reads nothing older than there."""

    async def aclose(self) -> None:
        """Stop; the caller closes the store."""
        await self.sessions.aclose()
        await self.pings.aclose()
        await self.hellos.aclose()


class Contact:
    """Shared reads of one kind.

    A call ends after a read that began after the call did; at most one read runs, however many
    calls wait.
    """

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
