"""Server of one broker's listeners.

It closes connections that are overdue or idle, and drains answers when it stops. Leaves each
client's frames to `connection`, and serving requests to `dispatch`.
"""

import asyncio
from collections.abc import Callable

from broker_layer.server.connections.connection import BrokerConnection
from broker_layer.server.connections.listeners import ListenerAddress
from broker_layer.server.connections.server_context import Connection, ServerContext
from serving.errors import CannotListenError
from serving.listening import LISTEN_BACKLOG, drain, tune_connection
from serving.overriding import override


class BrokerServer:
    """The listeners of one broker. Call `start`, then `close`, once each."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._servers: list[asyncio.Server] = []
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def start(self, listeners: tuple[ListenerAddress, ...]) -> tuple[ListenerAddress, ...]:
        """Bind the addresses and serve; return the bound ones. Raises CannotListenError."""
        taken = await self.bind(listeners)
        await self.serve()
        return taken

    async def bind(self, listeners: tuple[ListenerAddress, ...]) -> tuple[ListenerAddress, ...]:
        """Bind all addresses and return them; clients cannot connect yet.

        Raises CannotListenError.
        """
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
        """Start accepting connections."""
        for server in self._servers:
            await server.start_serving()
        self._schedule_sweep()

    def refuse_new(self) -> None:
        """Stop accepting connections, and stop reading requests."""
        self._context.is_closing = True
        for server in self._servers:
            server.close()
        for connection in self.connections:
            connection.stop_reading()

    async def close(self) -> None:
        """Finish requests in progress within `drain_timeout_s`, and close all connections."""
        context = self._context
        self.refuse_new()
        deadline_s = context.now() + context.limits.drain_timeout_s
        await drain(lambda: self.connections, context.now, deadline_s)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
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
    """A TCP connection that sends answers without delay, and detects a peer that vanished."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        tune_connection(transport)
        super().connection_made(transport)
