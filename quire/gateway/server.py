"""Port of one gateway.

Leaves deadlines and closing to `quire.server.listening`, and each client's frames to
`connection.py`.
"""

from quire.gateway.connection import ClientConnection
from quire.gateway.gateway_context import GatewayContext
from quire.server.listening import ListeningServer
from quire.server.overriding import override
from quire.server.tls_listening import TlsListening


class GatewayServer(ListeningServer):
    """Port of one gateway. Call `start`, then `close`, once each."""

    _context: GatewayContext

    async def start(self, host: str, port: int, tls: TlsListening | None = None) -> tuple[str, int]:
        """Listen; return the host and port. Raises CannotListenError."""
        address = await self._open(
            "the gateway", host, port, lambda: ClientConnection(self._context), tls
        )
        await self.serve()
        return address

    @override
    async def close(self) -> None:
        """Accept no more requests, finish running ones within `drain_timeout_s`, and close all
        connections.
        """
        await super().close()
        await self._context.aclose()

    @override
    def _sweep(self) -> None:
        super()._sweep()
        self._context.sessions.sweep(self._context.now())
