"""Data port of one bookie: listens, closes connections that miss deadlines, and stops without
losing an answer.

Leaves each client's frames to `bookie.server.connection`, and building the storage to
`bookie.bookie_process`.

Source: protocol rule 2.3; storage design, "Limits and refusals".
"""

import asyncio
from typing import cast

from bookie.server.connection import ClientConnection
from bookie.server.server_context import ServerContext
from serving.errors import CannotListenError
from serving.listening import LISTEN_BACKLOG, drain, tune_connection
from serving.overriding import override


class BookieServer:
    """Data port of one bookie. Call `start`, then `close`, once each."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the host and port. Raises CannotListenError."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._make_connection, host, port, backlog=LISTEN_BACKLOG
            )
        except OSError as error:
            raise CannotListenError("the bookie", host, port, str(error)) from error
        self._schedule_sweep()
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def close(self) -> None:
        """Accept no more requests, finish running ones within `drain_timeout_s`, and close all
        connections.
        """
        context = self._context
        context.is_closing = True
        if self._server is not None:
            self._server.close()
        deadline = context.now() + context.limits.drain_timeout_s
        for connection in self.connections:
            connection.refuse_polls()
        await drain(lambda: self.connections, context.now, deadline)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        context.stop_waiting()

    def _make_connection(self) -> "TunedConnection":
        return TunedConnection(self._context)

    @property
    def connections(self) -> list[ClientConnection]:
        """Open connections."""
        return [cast("ClientConnection", each) for each in self._context.connections]

    def _schedule_sweep(self) -> None:
        interval_s = self._context.limits.sweep_interval_s
        self._sweep_timer = asyncio.get_running_loop().call_later(interval_s, self._sweep)

    def _sweep(self) -> None:
        now_s = self._context.now()
        for connection in self.connections:
            why = connection.overdue(now_s)
            if why is not None:
                connection.drop_overdue(why)
        self._bound_unread()
        self._schedule_sweep()

    def _bound_unread(self) -> None:
        """Close the connections with the most unsent bytes while the total exceeds the limit. Their
        clients may connect again and repeat their requests.
        """
        unread = [(each.unread_bytes, each) for each in self.connections]
        excess = sum(count for count, _ in unread) - self._context.limits.unread_bytes_max
        if excess <= 0:
            return
        for count, connection in sorted(unread, key=lambda each: each[0], reverse=True):
            if excess <= 0:
                return
            excess -= count
            connection.drop_overdue("answers are not read, and room for them is short")


class TunedConnection(ClientConnection):
    """Connection over TCP, tuned to send answers at once and to detect a lost client."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        tune_connection(transport)
        super().connection_made(transport)
