"""An address with TLS: handshakes within limits, and connections without TLS if they may be."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop
from cryptography import x509

from quire.identity.tls import (
    ClientCertificates,
    RefusedCertificates,
    ServerTls,
    TlsFiles,
    client_context,
)
from quire.local.development_certificates import DevelopmentAuthority
from quire.server.overriding import override
from quire.server.server_log import AUDIT_LOGGER, ServerLog
from quire.server.tls_listening import TlsCounters, TlsLimits, TlsListener, TlsListening
from tests.until import until, within

HOST, OTHER_HOST = "127.0.0.1", "127.0.0.2"
LIMITS = TlsLimits()


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    transport: asyncio.Transport
    paused = 0
    repeat = 1

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self.transport.write(data * Echo.repeat)

    @override
    def pause_writing(self) -> None:
        Echo.paused += 1


class Served:
    """One address with its certificate."""

    def __init__(self, directory: Path, clients: ClientCertificates) -> None:
        self.authority = DevelopmentAuthority(directory)
        own = self.authority.issue("server")
        self.files = TlsFiles(
            str(own.certificate), str(own.key), str(self.authority.files.certificate)
        )
        self.refused_file = directory / "refused.txt"
        self.refused_file.write_text("# none yet\n")
        self.tls = ServerTls(self.files, clients, RefusedCertificates(str(self.refused_file)))
        self.counters = TlsCounters()
        self.listener: TlsListener | None = None
        self.port = 0

    async def open(
        self, host: str = HOST, *, is_required: bool = True, limits: TlsLimits = LIMITS
    ) -> None:
        log = ServerLog(asyncio.get_running_loop().time)
        listening = TlsListening(
            lambda: self.tls.context,
            log,
            self.counters,
            is_required=is_required,
            limits=limits,
            refused=self.tls.refused,
        )
        self.listener = TlsListener(listening, Echo)
        _, self.port = await self.listener.open(host, 0, 100)
        self.listener.start_serving()

    def client(self, name: str = "") -> ssl.SSLContext:
        own = self.authority.issue(name, ()) if name else None
        authorities = str(self.authority.files.certificate)
        if own is None:
            return client_context(TlsFiles(authorities=authorities))
        return client_context(TlsFiles(str(own.certificate), str(own.key), authorities))

    async def echo(self, context: ssl.SSLContext | None, host: str = HOST) -> bytes:
        reader, writer = await asyncio.open_connection(
            host, self.port, ssl=context, server_hostname=HOST if context else None
        )
        try:
            writer.write(b"hello")
            return await reader.readexactly(5)
        finally:
            writer.close()


Serve = Callable[[ClientCertificates], Served]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    made: list[Served] = []

    def make(clients: ClientCertificates) -> Served:
        made.append(Served(tmp_path / str(len(made)), clients))
        return made[-1]

    yield make
    for served in made:
        assert served.listener is not None
        served.listener.close()
    await asyncio.sleep(0.01)


async def test_a_connection_with_tls_is_served(serve: Serve) -> None:
    served = serve(ClientCertificates.NONE)
    await served.open()
    assert await served.echo(served.client()) == b"hello"
    assert served.counters == TlsCounters(handshakes=1)


async def test_all_addresses_of_a_host_are_served(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_: object, **__: object) -> list[object]:
        hosts = (HOST, "192.0.2.1", OTHER_HOST)  # this machine does not have the second one
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    served = serve(ClientCertificates.NONE)
    await served.open()
    monkeypatch.undo()
    for host in (HOST, OTHER_HOST):
        assert await served.echo(served.client(), host) == b"hello"


async def test_a_host_without_an_address_of_this_machine_is_refused(serve: Serve) -> None:
    served = serve(ClientCertificates.NONE)
    with pytest.raises(OSError, match=r"192\.0\.2\.1"):
        await served.open("192.0.2.1")


def number_of(directory: Path, name: str) -> str:
    """Return the line with which `openssl x509 -noout -serial` shows a certificate."""
    decoded = x509.load_pem_x509_certificate((directory / f"{name}.pem").read_bytes())
    return f"serial={decoded.serial_number:X}  # {name}, whose key was stolen\n"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_refused_certificate_begins_no_connection_and_loses_open_ones(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        served = Served(tmp_path, ClientCertificates.REQUIRED)
        await served.open()
        contexts = {name: served.client(name) for name in ("alice", "bob")}
        ends = {}
        for name, context in contexts.items():
            ends[name] = await asyncio.open_connection(HOST, served.port, ssl=context)
            ends[name][1].write(b"hello")
            assert await ends[name][0].readexactly(5) == b"hello"
        served.refused_file.write_text(number_of(tmp_path, "bob"))
        assert served.tls.reload()
        with contextlib.suppress(ConnectionError):
            assert await within(ends["bob"][0].read(1)) == b""
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await served.echo(contexts["bob"])
        assert await served.echo(contexts["alice"]) == b"hello"
        ends["alice"][1].write(b"hello")
        assert await ends["alice"][0].readexactly(5) == b"hello", "it is not cut"
        served.refused_file.write_text("unreadable")
        assert served.tls.reload()
        assert "line 1" in served.tls.failure
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await served.echo(contexts["bob"])
        for _, writer in ends.values():
            writer.close()
        assert served.listener is not None
        served.listener.close()
        await asyncio.sleep(0.01)

    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())
    refused = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert any("refuses the certificate" in each["reason"] for each in refused)


async def test_one_answer_that_is_not_read_pauses_its_connection(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, before = serve(ClientCertificates.NONE), Echo.paused
    monkeypatch.setattr(Echo, "repeat", 4 * 2**20)
    await served.open()
    _, writer = await asyncio.open_connection(HOST, served.port, ssl=served.client())
    writer.write(b"hello")
    await until(lambda: Echo.paused > before)
    writer.transport.abort()


async def test_a_connection_without_tls_is_refused(serve: Serve) -> None:
    served = serve(ClientCertificates.NONE)
    await served.open()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await served.echo(None)
    assert served.counters.handshakes_failed == 1
    assert await served.echo(served.client()) == b"hello", "the others are served"


async def test_a_refused_handshake_is_in_the_audit_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve(ClientCertificates.REQUIRED)
    await served.open()
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        for context in (None, served.client()):
            with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                await served.echo(context)
        await until(lambda: served.counters.handshakes_failed == 2)
    fields = [vars(record)["fields"] for record in caplog.records if record.name == AUDIT_LOGGER]
    found = [(field["act"], field["result"], field["who"], field["peer"]) for field in fields]
    assert found == [("handshake", "refused", "unknown", HOST)] * 2
    assert all(field["reason"] for field in fields)


async def test_an_address_can_take_both(serve: Serve) -> None:
    served = serve(ClientCertificates.NONE)
    await served.open(is_required=False)
    assert await served.echo(None) == b"hello"
    assert await served.echo(served.client()) == b"hello"
    assert served.counters == TlsCounters(handshakes=1)


async def test_a_client_must_have_a_certificate_of_the_authority(
    serve: Serve, tmp_path: Path
) -> None:
    served = serve(ClientCertificates.REQUIRED)
    await served.open()
    assert await served.echo(served.client("alice")) == b"hello"
    unknown = DevelopmentAuthority(tmp_path / "other").issue("alice", ())
    authorities = str(served.authority.files.certificate)
    other = client_context(TlsFiles(str(unknown.certificate), str(unknown.key), authorities))
    for context in (served.client(), other):
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await served.echo(context)
    assert served.counters.handshakes_failed == 2


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_without_a_certificate_receives_the_reason(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Each event loop closes the connection of a failed handshake without the alert of TLS."""

    async def refused() -> str:
        served = Served(tmp_path, ClientCertificates.REQUIRED)
        await served.open()
        assert served.listener is not None
        try:
            with pytest.raises(ssl.SSLError) as found:
                await asyncio.to_thread(ask, served.port, served.client())
            return str(found.value)
        finally:
            served.listener.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        assert "certificate required" in runner.run(refused())


def ask(port: int, context: ssl.SSLContext) -> None:
    with (
        socket.create_connection((HOST, port), 10) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connection,
    ):
        connection.sendall(b"hello")
        connection.recv(5)


async def test_a_client_does_not_talk_to_a_server_of_another_authority(
    serve: Serve, tmp_path: Path
) -> None:
    served = serve(ClientCertificates.NONE)
    await served.open()
    other = DevelopmentAuthority(tmp_path / "other").files.certificate
    with pytest.raises(ssl.SSLCertVerificationError):
        await served.echo(client_context(TlsFiles(authorities=str(other))))


async def test_handshakes_that_do_not_end_are_cut_and_bounded(serve: Serve) -> None:
    served = serve(ClientCertificates.NONE)
    await served.open(is_required=False, limits=TlsLimits(handshakes_max=2, handshake_s=0.3))
    silent = [await asyncio.open_connection(HOST, served.port) for _ in range(3)]
    reader, _ = silent[2]
    assert await reader.read() == b"", "it is closed at once"
    assert served.counters.handshakes_refused == 1
    for reader, _ in silent[:2]:
        assert await reader.read() == b"", "it is closed after 0.3 s"
    assert await served.echo(served.client()) == b"hello"
    await close_all(silent)


async def test_the_rate_of_handshakes_is_bounded(serve: Serve) -> None:
    served = serve(ClientCertificates.NONE)
    await served.open(limits=TlsLimits(handshakes_per_s=1))
    context = served.client()
    results = await asyncio.gather(
        *(served.echo(context) for _ in range(10)), return_exceptions=True
    )
    assert results.count(b"hello") <= 3
    assert served.counters.handshakes_refused >= 7
    await asyncio.sleep(1.1)
    assert await served.echo(context) == b"hello"


async def close_all(ends: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    for _, writer in ends:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.real_time
async def test_silent_handshakes_of_one_address_keep_no_other_out(serve: Serve) -> None:
    served = serve(ClientCertificates.NONE)
    await served.open(limits=TlsLimits(handshakes_max=4, handshakes_of_address_max=2))
    silent = []
    for _ in range(6):
        own = ("127.0.0.2", 0)
        silent.append(await asyncio.open_connection(HOST, served.port, local_addr=own))
    await until(lambda: served.counters.handshakes_refused == 4)
    assert await served.echo(served.client()) == b"hello"
    await close_all(silent)


@pytest.mark.real_time
async def test_fast_handshakes_of_one_address_keep_no_other_out(serve: Serve) -> None:
    served = serve(ClientCertificates.NONE)
    limits = TlsLimits(handshakes_per_s=1_000, handshakes_of_address_per_s=1)
    await served.open(limits=limits)
    fast = []
    for _ in range(20):
        own = ("127.0.0.2", 0)
        fast.append(await asyncio.open_connection(HOST, served.port, local_addr=own))
    await until(lambda: served.counters.handshakes_refused >= 18)
    assert await served.echo(served.client()) == b"hello"
    await close_all(fast)


async def test_new_files_are_used_for_new_connections(serve: Serve, tmp_path: Path) -> None:
    served = serve(ClientCertificates.NONE)
    await served.open()
    old = served.client()
    reader, writer = await asyncio.open_connection(HOST, served.port, ssl=old)
    assert not served.tls.reload(), "nothing changed"
    new = DevelopmentAuthority(tmp_path / "new")
    files = new.issue("server")
    Path(served.files.key).write_bytes(files.key.read_bytes())
    assert served.tls.reload()
    assert "cannot be used" in served.tls.failure, "the key does not fit"
    assert await served.echo(old) == b"hello", "the old context stays"
    Path(served.files.certificate).write_bytes(files.certificate.read_bytes())
    assert served.tls.reload()
    assert served.tls.failure == ""
    with pytest.raises(ssl.SSLCertVerificationError):
        await served.echo(old)
    trusted = TlsFiles(authorities=str(new.files.certificate))
    assert await served.echo(client_context(trusted)) == b"hello"
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello", "open connections stay"
    writer.close()
