"""State shared by all connections to one gateway.

Leaves the open connections to `quire.server.connection_context`, and each connection's frames to
`connection.py`.
"""

import asyncio
from collections.abc import Callable

from metadata.store.interface import MetadataStore
from quire.gateway.contact import Contact
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
