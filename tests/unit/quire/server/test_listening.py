"""A listening server finishes requests before it closes, up to a deadline, and checks deadlines."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from quire.server.connection_context import ConnectionContext, ConnectionCounters, ConnectionLimits
from quire.server.errors import CannotListenError
from quire.server.listening import ListeningServer
from quire.server.server_log import ServerLog
from tests.unit.quire.server.echo_connection import EchoConnection
from tests.until import until

pytestmark = pytest.mark.real_time

LIMITS = ConnectionLimits(sweep_interval_s=0.01, drain_timeout_s=20.0)


class EchoServer(ListeningServer):
    """Server of echoes on one address."""

    port = 0

    async def start(self, port: int = 0) -> None:
        await self.bind(port)
        await self.serve()

    async def bind(self, port: int = 0) -> None:
        def make() -> EchoConnection:
            return EchoConnection(self._context)

        _, self.port = await self._open("the echo", "127.0.0.1", port, make)

    @property
    def echoes(self) -> list[EchoConnection]:
        return [
            connection for connection in self.connections if isinstance(connection, EchoConnection)
        ]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


def _context(limits: ConnectionLimits) -> ConnectionContext:
    now = asyncio.get_running_loop().time
    return ConnectionContext(limits, ConnectionCounters(), ServerLog(now), now)


@pytest.fixture
async def server() -> AsyncIterator[EchoServer]:
    made = EchoServer(_context(LIMITS))
    yield made
    made._context.limits = replace(LIMITS, drain_timeout_s=0.0)
    await made.close()


async def test_bound_address_refuses_until_it_is_served(server: EchoServer) -> None:
    await server.bind()
    with pytest.raises(ConnectionError):
        await server.connect()
    await server.serve()
    reader, writer = await server.connect()
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    writer.close()


async def test_address_in_use_is_reported(server: EchoServer) -> None:
    await server.start()
    second = EchoServer(_context(LIMITS))
    with pytest.raises(CannotListenError, match=f"the echo cannot listen on .*:{server.port}"):
        await second.start(server.port)
    await second.close()


async def test_open_request_is_answered_before_the_end(server: EchoServer) -> None:
    await server.start()
    reader, writer = await server.connect()
    writer.write(b"?")
    await until(lambda: any(echo.open_requests for echo in server.echoes))
    closing = asyncio.create_task(server.close())
    (connection,) = server.echoes
    await until(lambda: connection.is_told)
    with pytest.raises(ConnectionError):
        await server.connect()
    assert not closing.done()
    connection.answer(b"late answer")
    connection.open_requests = 0
    assert await reader.read() == b"late answer"
    await closing
    assert not server.connections
    writer.close()


async def test_connections_are_aborted_at_the_deadline(server: EchoServer) -> None:
    server._context.limits = replace(LIMITS, drain_timeout_s=0.02)
    await server.start()
    reader, writer = await server.connect()
    writer.write(b"?")
    await until(lambda: any(echo.open_requests for echo in server.echoes))
    await server.close()
    await until(lambda: not server.connections)
    assert await reader.read() == b""
    writer.close()


async def test_overdue_client_is_disconnected_by_the_sweep(server: EchoServer) -> None:
    await server.start()
    reader, writer = await server.connect()
    await until(lambda: bool(server.echoes))
    (connection,) = server.echoes
    connection._waiting_since_s = float("-inf")
    assert await reader.read() == b""
    assert server._context.counters.peers_dropped == 1
    writer.close()
