"""Listens for clients of one broker, watches that they do their part, and closes without losing an
answer.

Leaves each client's frames to `connection`, and what is behind them to `dispatch`.
"""

import asyncio
from collections.abc import Callable

from broker_layer.server.connections.connection import BrokerConnection
from broker_layer.server.connections.listeners import ListenerAddress
from broker_layer.server.connections.server_context import Connection, ServerContext
from broker_layer.server.connections.server_errors import CannotListenError
from serving.listening import LISTEN_BACKLOG, drain, tune_connection
from serving.overriding import override


class BrokerServer:
    """The ports of one broker. `start`, then `close`, once each."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._servers: list[asyncio.Server] = []
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def start(self, listeners: tuple[ListenerAddress, ...]) -> tuple[ListenerAddress, ...]:
        """Take the addresses and serve. Raises CannotListenError."""
        taken = await self.bind(listeners)
        await self.serve()
        return taken

    async def bind(self, listeners: tuple[ListenerAddress, ...]) -> tuple[ListenerAddress, ...]:
        """Take all addresses and return them; nobody can connect yet. Raises CannotListenError."""
        loop = asyncio.get_running_loop()
        taken = []
        for each in listeners:
            try:
                server = await loop.create_server(
                    self._maker(each.name),
                    each.host,
                    each.port,
                    backlog=LISTEN_BACKLOG,
                    start_serving=False,
                )
            except OSError as error:
                raise CannotListenError(each.name, each.host, each.port, str(error)) from error
            self._servers.append(server)
            port = int(server.sockets[0].getsockname()[1])
            taken.append(ListenerAddress(each.name, each.host, port))
        return tuple(taken)

    async def serve(self) -> None:
        """Let clients connect."""
        for server in self._servers:
            await server.start_serving()
        self._schedule_sweep()

    def refuse_new(self) -> None:
        """Accept no further connections, and read no further requests."""
        self._context.is_closing = True
        for server in self._servers:
            server.close()
        for connection in self.connections:
            connection.stop_reading()

    async def close(self) -> None:
        """Finish what is under way within `drain_timeout_s`, and disconnect everybody."""
        context = self._context
        self.refuse_new()
        deadline_s = context.now() + context.limits.drain_timeout_s
        await drain(lambda: self.connections, context.now, deadline_s)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    @property
    def connections(self) -> list[Connection]:
        """List those that stand."""
        return list(self._context.connections)

    def _maker(self, name: str) -> Callable[[], "TunedConnection"]:
        return lambda: TunedConnection(self._context, name)

    def _schedule_sweep(self) -> None:
        interval_s = self._context.limits.sweep_interval_s
        self._sweep_timer = asyncio.get_running_loop().call_later(interval_s, self._sweep)

    def _sweep(self) -> None:
        now_s = self._context.now()
        for connection in self.connections:
            why = connection.overdue(now_s)
            if why is not None:
                connection.drop("peer overdue", why)
            elif connection.is_unused(now_s):
                self._context.counters.connections_idle_closed += 1
                connection.close()
        self._schedule_sweep()


class TunedConnection(BrokerConnection):
    """A connection over TCP: answers leave at once, and a peer that vanished is noticed."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        tune_connection(transport)
        super().connection_made(transport)
