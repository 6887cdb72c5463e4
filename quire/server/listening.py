"""Listening server: opens its addresses, checks its clients' deadlines, and closes without losing
an answer.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from quire.server.connection import ServerConnection
from quire.server.connection_context import ConnectionContext
from quire.server.errors import CannotListenError
from quire.server.tls_listening import TlsListener, TlsListening

LISTEN_BACKLOG: Final = 1_024
DRAIN_POLL_S: Final = 0.005


class ListeningServer:
    """Addresses of one server. Open them, then call `serve` and `close`, once each."""

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._listening: list[asyncio.Server | TlsListener] = []
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> list[ServerConnection]:
        """Open connections."""
        return list(self._context.connections)

    async def serve(self) -> None:
        """Start accepting connections."""
        for listener in self._listening:
            if isinstance(listener, TlsListener):
                listener.start_serving()
            else:
                await listener.start_serving()
        self._schedule_sweep()

    async def close(self) -> None:
        """Accept no more connections, finish running requests within `drain_timeout_s`, and close
        all connections.
        """
        context = self._context
        context.is_closing = True
        for listener in self._listening:
            listener.close()
        for connection in self.connections:
            connection.note_closing()
        deadline_s = context.now() + context.limits.drain_timeout_s
        await self._poll_until(lambda: all(peer.is_idle for peer in self.connections), deadline_s)
        for connection in self.connections:
            connection.close()
        await self._poll_until(lambda: not context.connections, deadline_s)
        context.abort_connections()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    async def _open(
        self,
        what: str,
        host: str,
        port: int,
        make: Callable[[], ServerConnection],
        tls: TlsListening | None = None,
    ) -> tuple[str, int]:
        """Bind an address and return it; clients cannot connect before `serve`. With `tls`,
        connections begin with a handshake.

        Raises CannotListenError.
        """
        loop = asyncio.get_running_loop()
        try:
            if tls is not None:
                listener = TlsListener(tls, make)
                self._listening.append(listener)
                return await listener.open(host, port, LISTEN_BACKLOG)
            server = await loop.create_server(
                make, host, port, backlog=LISTEN_BACKLOG, start_serving=False
            )
        except OSError as error:
            raise CannotListenError(what, host, port, str(error)) from error
        self._listening.append(server)
        name = server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def _poll_until(self, is_done: Callable[[], bool], deadline_s: float) -> None:
        while self._context.now() < deadline_s and not is_done():  # noqa: ASYNC110 - only at the end
            await asyncio.sleep(DRAIN_POLL_S)

    def _schedule_sweep(self) -> None:
        interval_s = self._context.limits.sweep_interval_s
        self._sweep_timer = asyncio.get_running_loop().call_later(interval_s, self._sweep)

    def _sweep(self) -> None:
        now_s = self._context.now()
        for connection in self.connections:
            connection.check_deadlines(now_s)
        self._schedule_sweep()
