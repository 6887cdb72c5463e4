"""Bytes that a client over TLS does not take: counted, with pauses, and sent in order."""

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from quire.identity.tls import (
    ClientCertificates,
    RefusedCertificates,
    ServerTls,
    TlsFiles,
    client_context,
)
from quire.local.development_certificates import DevelopmentAuthority
from quire.server.overriding import override
from quire.server.tls_listening import BELOW_BYTES_HIGH, PIECE_BYTES, begin_tls
from tests.until import until

MIB = 2**20
Factory = Callable[[], asyncio.AbstractEventLoop]


class Answering(asyncio.BufferedProtocol):
    """Keeps what it receives, and writes what a test asks for."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.received = b""
        self._buffer = bytearray(3)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    @override
    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    @override
    def pause_writing(self) -> None:
        self.calls.append("pause")

    @override
    def resume_writing(self) -> None:
        self.calls.append("resume")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")


class Pair:
    """Both ends of one connection. The client reads only what a test reads."""

    def __init__(self, directory: Path) -> None:
        authority = DevelopmentAuthority(directory)
        own = authority.issue("server")
        trusted = str(authority.files.certificate)
        files = TlsFiles(str(own.certificate), str(own.key), trusted)
        self._server = ServerTls(files, ClientCertificates.NONE).context
        self._client = client_context(TlsFiles(authorities=trusted))
        self.answering = Answering()
        self.client: ssl.SSLSocket

    async def open(self, first: bytes = b"") -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            name = listening.getsockname()
            plain = socket.create_connection(name)
            accepted, _ = listening.accept()
        accepted.setblocking(False)
        refused = RefusedCertificates()
        begun = begin_tls(accepted, lambda: self.answering, self._server, 5, 5, refused)
        _, self.client = await asyncio.gather(begun, asyncio.to_thread(self._greet, plain, first))

    def _greet(self, plain: socket.socket, first: bytes) -> ssl.SSLSocket:
        client = self._client.wrap_socket(plain, server_hostname="127.0.0.1")
        if first:
            client.sendall(first)
        return client

    async def read(self, count: int) -> bytes:
        def read() -> bytes:
            parts = list[bytes]()
            while sum(map(len, parts)) < count and (part := self.client.recv(MIB)):
                parts.append(part)
            return b"".join(parts)

        return await asyncio.to_thread(read)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[None, None, None]], None]:
    def run(work: Coroutine[None, None, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run


Run = Callable[[Coroutine[None, None, None]], None]


def test_unsent_bytes_are_counted_and_pause_the_protocol_until_they_are_taken(
    run: Run, tmp_path: Path
) -> None:
    async def work() -> None:
        pair, answer = Pair(tmp_path), bytes(range(256)) * (32 * MIB // 256)
        await pair.open()
        answering, transport = pair.answering, pair.answering.transport
        transport.set_write_buffer_limits(4 * MIB)
        transport.writelines([b"head", answer[: MIB + 1], answer[MIB + 1 :]])
        assert answering.calls == ["pause"]
        await asyncio.sleep(0.1)
        assert transport.get_write_buffer_size() > 16 * MIB, "the socket's buffers take a part"
        found = await pair.read(4 + len(answer))
        await until(lambda: answering.calls == ["pause", "resume"])
        assert hashlib.sha256(found).digest() == hashlib.sha256(b"head" + answer).digest()
        await until(lambda: not transport.get_write_buffer_size())
        pair.client.close()
        await until(lambda: answering.calls[-1] == "lost")

    run(work())


def test_only_a_piece_waits_encrypted(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        pair = Pair(tmp_path)
        await pair.open()
        transport = pair.answering.transport
        for _ in range(8):
            transport.write(bytes(4 * MIB))
        below = transport.get_write_buffer_size() - transport._queued_bytes  # type: ignore[attr-defined]
        assert below < BELOW_BYTES_HIGH + 2 * PIECE_BYTES
        transport.abort()
        await until(lambda: pair.answering.calls[-1] == "lost")
        pair.client.close()

    run(work())


def test_a_closed_connection_sends_what_was_written(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        pair = Pair(tmp_path)
        await pair.open()
        transport = pair.answering.transport
        transport.write(bytes(16 * MIB))
        transport.close()
        assert transport.is_closing()
        transport.write(b"too late")
        assert len(await pair.read(16 * MIB + 1)) == 16 * MIB
        pair.client.close()
        await until(lambda: pair.answering.calls[-1] == "lost")

    run(work())


def test_bytes_right_after_the_handshake_reach_the_protocol_in_order(
    run: Run, tmp_path: Path
) -> None:
    async def work() -> None:
        pair = Pair(tmp_path)
        await pair.open(b"0123456789")
        await until(lambda: pair.answering.received == b"0123456789")
        pair.client.close()
        await until(lambda: "lost" in pair.answering.calls)

    run(work())
