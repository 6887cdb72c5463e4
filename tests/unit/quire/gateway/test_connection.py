"""Limits of a gateway's connections: hellos, deadlines, requests, watches and unread answers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from metadata.gateway.codec import (
    Code,
    Reply,
    decode_reply,
    reply_frame,
    request_frame,
    stored_of,
    welcome_of,
)
from metadata.gateway.failures import failure_of
from metadata.gateway.frames import HELLO_BYTES_MAX, REPLY_BYTES_MAX, FrameAssembler, framed
from metadata.gateway.messages import (
    CloseSession,
    Get,
    Hello,
    Multi,
    Ping,
    Request,
    Unwatch,
    Watch,
    Welcome,
)
from metadata.ids import Version
from metadata.msgpack_fields import array_of
from metadata.store.interface import Create
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.gateway.connection import ClientConnection
from quire.server import connection
from tests.support.gateway.running_gateway import LIMITS, RunningGateway, run_gateway
from tests.support.loop_passes import counting_passes
from tests.support.metadata.scripted_faults import ScriptedFaults, is_write
from tests.until import until

HELLO = Hello(1, 1, 0, b"", 6_000, "test")
WAIT_S = 10.0


@dataclass
class Client:
    """A client that sends any bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    assembler: FrameAssembler
    replies: list[Reply]

    @classmethod
    async def of(cls, gateway: RunningGateway) -> "Client":
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        return cls(reader, writer, FrameAssembler(REPLY_BYTES_MAX), [])

    async def greet(self, hello: Hello = HELLO) -> Welcome:
        self.send(0, hello)
        reply = await self.reply()
        assert reply.code is Code.OK, reply
        return welcome_of(reply.result)

    def send(self, number: int, request: Request) -> None:
        self.writer.write(request_frame(number, request))

    async def reply(self) -> Reply:
        async with asyncio.timeout(WAIT_S):
            while not self.replies:
                data = await self.reader.read(65_536)
                assert data, "the gateway closed the connection"
                self.replies += map(decode_reply, self.assembler.feed(data))
        return self.replies.pop(0)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(WAIT_S):
            try:
                while await self.reader.read(65_536):
                    continue
            except ConnectionError:
                pass
        self.close()
        return True

    def close(self) -> None:
        self.writer.transport.abort()


@pytest.fixture
def faults() -> ScriptedFaults:
    return ScriptedFaults()


@pytest.fixture
async def gateway(faults: ScriptedFaults) -> AsyncIterator[RunningGateway]:
    running = await run_gateway(MemoryMetadataStore(MemoryMetadataServer(faults)))
    yield running
    faults.gate.set()
    await running.aclose()


def hold(faults: ScriptedFaults, path: str) -> None:
    """Make requests of a path wait."""
    faults.meets = lambda call: call.path == path
    faults.calls.clear()
    faults.gate.clear()


async def test_nothing_is_served_before_a_hello(
    gateway: RunningGateway, faults: ScriptedFaults
) -> None:
    hold(faults, "/secret")
    for request in (Ping(), Get("/secret"), Watch(1, "/a", of_children=False), CloseSession()):
        client = await Client.of(gateway)
        client.send(1, request)
        assert await client.is_closed()
    assert not faults.calls
    assert gateway.counters.bad_frames == 4
    assert gateway.counters.watches_now == 0


async def test_bad_bytes_end_a_connection(gateway: RunningGateway) -> None:
    large = framed(bytes(HELLO_BYTES_MAX + 1))
    for data in (b"GET / HTTP/1.1\r\n\r\n", framed(b"\xc1"), large, bytes(4)):
        client = await Client.of(gateway)
        client.writer.write(data)
        assert await client.is_closed()
    client = await Client.of(gateway)
    await client.greet()
    client.send(1, HELLO)
    assert await client.is_closed()
    assert gateway.counters.bad_frames == 5


async def test_a_client_without_a_hello_is_dropped() -> None:
    limits = replace(LIMITS, hello_deadline_s=1.0, frame_deadline_s=1.0)
    gateway = await run_gateway(MemoryMetadataStore(MemoryMetadataServer()), limits=limits)
    silent, slow = await Client.of(gateway), await Client.of(gateway)
    slow.writer.write(request_frame(0, HELLO)[:5])
    assert await silent.is_closed()
    assert await slow.is_closed()
    half = await Client.of(gateway)
    await half.greet()
    half.writer.write(request_frame(1, Get("/a"))[:5])
    assert await half.is_closed()
    assert gateway.counters.peers_dropped == 3
    await gateway.aclose()


async def test_a_hello_of_another_version_is_refused(gateway: RunningGateway) -> None:
    client = await Client.of(gateway)
    client.send(3, replace(HELLO, version_min=2, version_max=9))
    reply = await client.reply()
    assert (reply.code, reply.number) == (Code.FAILED, 3)
    assert "version 1" in str(failure_of(array_of(reply.result)))
    assert await client.is_closed()
    assert gateway.counters.hellos_refused == 1


async def test_a_hello_waits_for_the_service(
    gateway: RunningGateway, faults: ScriptedFaults
) -> None:
    hold(faults, "/")
    client = await Client.of(gateway)
    client.send(0, HELLO)
    await until(lambda: len(faults.calls) == 1)
    assert gateway.counters.sessions_now == 0
    faults.gate.set()
    await client.reply()
    assert gateway.counters.sessions_now == 1
    client.close()


async def test_a_session_needs_its_token_and_its_principal(gateway: RunningGateway) -> None:
    gateway.principals[:] = ["User:alice"]
    first = await Client.of(gateway)
    welcome = await first.greet()
    again = replace(HELLO, session_id=welcome.session_id, token=welcome.token)
    for principal, hello, is_same in (
        ("User:alice", again, True),
        ("User:bob", again, False),
        ("User:alice", replace(again, token=bytes(16)), False),
        ("User:alice", replace(again, token=b""), False),
    ):
        gateway.principals[:] = [principal]
        client = await Client.of(gateway)
        found = await client.greet(hello)
        assert (found.session_id == welcome.session_id) is is_same
        client.close()
    assert await first.is_closed()


async def test_sessions_are_bounded(gateway: RunningGateway) -> None:
    limits = replace(LIMITS, sessions_max=2)
    small = await run_gateway(MemoryMetadataStore(MemoryMetadataServer()), limits=limits)
    clients = [await Client.of(small) for _ in range(3)]
    for client in clients[:2]:
        await client.greet()
    clients[2].send(0, HELLO)
    reply = await clients[2].reply()
    assert reply.code is Code.FAILED
    assert "as many sessions" in str(failure_of(array_of(reply.result)))
    for client in clients:
        client.close()
    await small.aclose()


async def test_sessions_of_one_principal_are_bounded() -> None:
    limits = replace(LIMITS, sessions_per_principal_max=2)
    small = await run_gateway(MemoryMetadataStore(MemoryMetadataServer()), limits=limits)
    small.principals[:] = ["User:a", "User:a", "User:a", "User:b"]
    clients = [await Client.of(small) for _ in range(4)]
    for client in clients[:2]:
        await client.greet()
    clients[2].send(0, HELLO)
    reply = await clients[2].reply()
    assert "sessions_per_principal_max" in str(failure_of(array_of(reply.result)))
    await clients[3].greet()
    clients[0].send(1, CloseSession())
    await clients[0].reply()
    small.principals[:] = ["User:a", "", "", ""]
    later = [await Client.of(small) for _ in range(4)]
    for client in later:
        await client.greet()
    for client in (*clients, *later):
        client.close()
    await small.aclose()


async def test_few_requests_run_and_others_wait(
    gateway: RunningGateway, faults: ScriptedFaults
) -> None:
    client = await Client.of(gateway)
    await client.greet()
    hold(faults, "/slow")
    for number in range(20):
        client.send(number, Get("/slow"))
    await until(lambda: len(faults.calls) == LIMITS.requests_running_max)
    await until(lambda: gateway.counters.reading_paused > 0)
    assert len(faults.calls) == LIMITS.requests_running_max
    faults.gate.set()
    numbers = [(await client.reply()).number for _ in range(20)]
    assert sorted(numbers) == list(range(20))
    client.close()


async def test_large_requests_run_a_few_at_a_time(
    gateway: RunningGateway, faults: ScriptedFaults
) -> None:
    """Else a slow metadata service fills the memory with the writes of one client."""
    client = await Client.of(gateway)
    await client.greet()
    faults.meets = is_write
    faults.calls.clear()
    faults.gate.clear()
    for number in range(4):
        value = bytes(800_000 if number == 3 else 150_000)
        client.send(number, Multi((Create(f"/a{number}", value),)))
    client.send(4, Ping())
    await until(lambda: len(faults.calls) == 2)
    await until(lambda: gateway.counters.reading_paused > 0)
    assert len(faults.calls) == 2
    faults.gate.set()
    assert sorted([(await client.reply()).number for _ in range(5)]) == list(range(5))
    (connection,) = gateway.context.connections
    assert isinstance(connection, ClientConnection)
    await until(lambda: connection._running_bytes == 0)
    client.close()


async def test_watches_are_bounded_and_end(gateway: RunningGateway) -> None:
    client = await Client.of(gateway)
    await client.greet()
    for number in range(LIMITS.watches_max):
        client.send(0, Watch(number, "/a", of_children=False))
    client.send(0, Unwatch(0))
    client.send(0, Unwatch(0))
    client.send(0, Watch(0, "/b", of_children=True))
    await until(lambda: gateway.counters.watches_now == LIMITS.watches_max)
    await gateway.store.create("/b/c", b"")
    assert await client.reply() == Reply(Code.EVENT, 0, None)
    client.send(0, Watch(LIMITS.watches_max, "/a", of_children=False))
    await until(lambda: gateway.counters.peers_dropped == 1)
    assert await client.is_closed()
    assert gateway.counters.watches_now == 0
    two = await Client.of(gateway)
    await two.greet()
    two.send(0, Watch(1, "/a", of_children=False))
    two.send(0, Watch(1, "/b", of_children=False))
    assert await two.is_closed()


async def test_a_client_that_reads_no_answers_is_cut() -> None:
    limits = replace(LIMITS, requests_running_max=100)
    gateway = await run_gateway(MemoryMetadataStore(MemoryMetadataServer()), limits=limits)
    await gateway.store.create("/large", bytes(800_000))
    client = await Client.of(gateway)
    await client.greet()
    for number in range(200):
        client.send(number, Get("/large"))
    await until(lambda: gateway.counters.peers_dropped == 1)
    client.close()
    await gateway.aclose()


async def test_events_for_a_client_that_does_not_read_are_joined(gateway: RunningGateway) -> None:
    await gateway.store.create("/a", b"")
    client = await Client.of(gateway)
    await client.greet()
    client.send(0, Watch(5, "/a", of_children=False))
    await until(lambda: gateway.counters.watches_now == 1)
    (connection,) = gateway.context.connections
    connection.pause_writing()
    for version in range(30):
        await gateway.store.compare_and_set("/a", b"", Version(version))
    await asyncio.sleep(0)
    connection.resume_writing()
    client.send(1, Get("/a"))
    replies = [await client.reply()]
    while replies[-1].code is Code.EVENT:
        replies.append(await client.reply())
    assert replies[0] == decode_reply(reply_frame(Code.EVENT, 5)[4:])
    assert len(replies) <= 3
    assert stored_of(replies[-1].result).version == 30
    client.close()


async def test_a_closing_gateway_finishes_what_runs(
    gateway: RunningGateway, faults: ScriptedFaults
) -> None:
    client = await Client.of(gateway)
    await client.greet()
    await gateway.store.create("/slow", b"value")
    hold(faults, "/slow")
    client.send(1, Get("/slow"))
    await until(lambda: len(faults.calls) == 1)
    closing = asyncio.create_task(gateway.server.close())
    await asyncio.sleep(0)
    faults.gate.set()
    assert stored_of((await client.reply()).result).value == b"value"
    await closing
    assert await client.is_closed()


async def test_many_small_requests_are_served_in_later_passes(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FRAMES_S", 0.0)  # each frame ends a turn
    noted, take = list[int](), ClientConnection._take
    client = await Client.of(gateway)
    await client.greet()
    async with counting_passes() as passes:

        def note(self: ClientConnection, number: int, request: Request, size: int) -> None:
            noted.append(passes.now)
            take(self, number, request, size)

        monkeypatch.setattr(ClientConnection, "_take", note)
        for number in range(20):
            client.send(number, Ping())
        found = [(await client.reply()).number for _ in range(20)]
    assert sorted(found) == list(range(20))
    assert len(set(noted)) >= len(noted) - 1, "the first of a buffer, and one more"
    client.close()
