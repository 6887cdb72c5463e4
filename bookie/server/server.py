"""Data port of one bookie.

Leaves deadlines and closing to `quire.server.listening`, each client's frames to
`bookie.server.connection`, and building the storage to `bookie.bookie_process`.

Source: protocol rule 2.3; storage design, "Limits and refusals".
"""

from bookie.server.connection import ClientConnection
from bookie.server.server_context import ServerContext
from quire.server.listening import ListeningServer
from quire.server.overriding import override
from quire.server.tls_listening import TlsListening


class BookieServer(ListeningServer):
    """Data port of one bookie. Call `start`, then `close`, once each."""

    _context: ServerContext

    async def start(self, host: str, port: int, tls: TlsListening | None = None) -> tuple[str, int]:
        """Listen; return the host and port. Raises CannotListenError."""
        address = await self._open(
            "the bookie", host, port, lambda: ClientConnection(self._context), tls
        )
        await self.serve()
        return address

    @override
    async def close(self) -> None:
        """Accept no more requests, finish running ones within `drain_timeout_s`, and close all
        connections.
        """
        await super().close()
        self._context.stop_waiting()
