"""Servers that are down, or that a client does not reach."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from metadata.brokers.broker_registration import BrokerRegistration, Listener
from metadata.ids import BookieId
from metadata.registry.gateways import GatewayRecord
from metadata.registry.positions import PositionRecord
from quire.operate.faulty_servers import Fault, FaultyServer, Kind, down_bookie
from quire.operate.reachability import _ask, _broker, _gateway

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[int]:
    """Serve a port of this machine."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(14)
    writer.write(b"\0\0\0\4\0\0\0\1")
    writer.close()


async def closed_port() -> int:
    """Return a port at which nothing listens any more."""
    async with serving(answer) as port:
        return port


async def test_a_broker_is_asked_at_each_listener() -> None:
    async with serving(answer) as port:
        broker = BrokerRegistration(2, (Listener("PLAINTEXT", "127.0.0.1", port),), rack="r1")
        assert await _broker(broker, broker.listeners[0], None) is None
    fault = await _broker(broker, broker.listeners[0], None)
    assert fault is not None
    assert (fault.kind, fault.name, fault.fault) == (Kind.BROKER, "2", Fault.UNREACHABLE)
    assert (fault.address, fault.rack) == (f"127.0.0.1:{port}", "r1")
    assert fault.finding.where == "broker 2"
    assert f"cannot be reached at 127.0.0.1:{port}: " in fault.finding.what


async def test_a_name_that_does_not_resolve_is_no_exception() -> None:
    for host in ("no-such-machine.invalid", "a" * 64 + ".invalid"):
        assert await _ask(host, 1, None, b"")


async def test_a_gateway_without_an_answer_is_down() -> None:
    port = await closed_port()
    fault = await _gateway(GatewayRecord(f"127.0.0.1:{port}"), None)
    assert fault is not None
    assert (fault.kind, fault.fault) == (Kind.GATEWAY, Fault.DOWN)
    assert "quire cluster forget" in fault.finding.advice


def test_a_bookie_that_is_down_keeps_its_place() -> None:
    record = PositionRecord(bytes(16), 5, (), "", None, "10.0.0.7:4181", "/eu/r3/h9")
    assert down_bookie(BookieId("b"), record) == FaultyServer(
        Kind.BOOKIE, "b", Fault.DOWN, "10.0.0.7:4181", "h9", "/eu/r3", "it is not registered"
    )
    assert down_bookie(BookieId("b"), None).address == ""
