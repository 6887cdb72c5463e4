"""Logins of a broker at another: over real sockets, at a listener with logins."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker_layer import peer
from broker_layer.peer import (
    LOGIN_FRAME_BYTES_MAX,
    SHOWN_CHARACTERS,
    PeerAddress,
    PeerError,
    log_in,
)
from quire.identity.errors import SaslError, SecretError
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl_access import SaslAccess
from tests.support.broker_layer.login_setting import LoginSetting
from tests.support.broker_layer.peer_logins import SCRAM, access_of, ask, listening, peers_of
from tests.support.security.sasl_parts import PASSWORD, USERS, credential
from tests.until import until


@pytest.mark.parametrize("mechanism", [SCRAM, Mechanism.SCRAM_SHA_256])
async def test_a_broker_logs_in_once_and_calls(tmp_path: Path, mechanism: Mechanism) -> None:
    setting = LoginSetting()
    async with (
        listening(setting) as address,
        peers_of(access_of(tmp_path, mechanism=mechanism)) as peers,
    ):
        assert [await ask(peers, address) for _ in range(3)] == [b"User:user"] * 3
        assert setting.context.counters.connections_accepted == 1


async def test_a_wrong_password_says_what_to_do_and_is_not_tried_at_once(tmp_path: Path) -> None:
    setting = LoginSetting()
    async with listening(setting) as address, peers_of(access_of(tmp_path, "wrong")) as peers:
        with pytest.raises(PeerError) as caught:
            await ask(peers, address)
        why = str(caught.value)
        assert "the broker refuses the user 'user': authentication failed" in why
        assert "check the user and the password" in why
        assert "wrong" not in why
        for _ in range(5):
            with pytest.raises(PeerError) as again:
                await ask(peers, address)
            assert str(again.value).startswith(why), "the reason is not lost"
            assert "just now" in str(again.value)
        assert setting.context.counters.connections_accepted == 1


async def test_a_password_that_was_corrected_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = LoginSetting()
    access = access_of(tmp_path, "wrong")
    async with listening(setting) as address, peers_of(access) as peers:
        with pytest.raises(PeerError):
            await ask(peers, address)
        access_of(tmp_path, PASSWORD)
        peers._links[7][1].retry_at = 0.0
        assert await ask(peers, address) == b"User:user"


async def test_a_password_file_that_is_missing_is_named(tmp_path: Path) -> None:
    setting = LoginSetting()
    access = SaslAccess(SCRAM, "user", str(tmp_path / "missing"))
    async with listening(setting) as address, peers_of(access) as peers:
        with pytest.raises(PeerError, match="missing") as caught:
            await ask(peers, address)
        assert isinstance(caught.value.__cause__, SecretError)
        await until(lambda: not setting.context.connections)


async def test_a_mechanism_that_is_not_taken_is_named_with_those_that_are(tmp_path: Path) -> None:
    setting = LoginSetting(mechanisms=[Mechanism.SCRAM_SHA_256])
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        with pytest.raises(PeerError, match="does not take SCRAM-SHA-512: it takes SCRAM-SHA-256"):
            await ask(peers, address)


async def test_plain_is_not_sent_without_tls(tmp_path: Path) -> None:
    setting = LoginSetting()
    access = access_of(tmp_path, mechanism=Mechanism.PLAIN)
    async with listening(setting) as address, peers_of(access) as peers:
        with pytest.raises(PeerError, match="this connection has no TLS: use SCRAM-SHA-512"):
            await ask(peers, address)
        assert setting.context.counters.bytes_received == 0


async def test_a_broker_that_does_not_answer_is_named_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "CONNECT_TIMEOUT_S", 0.05)
    async with _answering(b"") as address, peers_of(access_of(tmp_path)) as peers:
        with pytest.raises(PeerError, match=r"cannot be reached: no answer within 0\.05 s"):
            await ask(peers, address)


# -- a broker that is none


@asynccontextmanager
async def _answering(*answers: bytes) -> AsyncIterator[PeerAddress]:
    """Answer each request with the next bytes, whatever it is."""
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        for answer in answers:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
            writer.write(answer)
        if answers != (b"",):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield PeerAddress(7, *server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(
            *(stream_writer.wait_closed() for stream_writer in writers), return_exceptions=True
        )


def _answer(body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), 0) + body


def _authenticated(code: int, text: bytes, data: bytes) -> bytes:
    head = struct.pack(">hh", code, len(text)) + text + struct.pack(">i", len(data)) + data
    return _answer(head + bytes(8))


SHAKEN = _answer(b"\0\0" + struct.pack(">i", 0))


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([struct.pack(">i", LOGIN_FRAME_BYTES_MAX + 1)], "has a length of 65537 B"),
        ([struct.pack(">i", 4) + bytes(4)], "has a length of 4 B"),
        ([_answer(b"\0")], "cannot be reached"),
        ([_answer(b"\0\x21" + struct.pack(">i", 0))], "it takes none"),
        ([SHAKEN, _authenticated(0, b"", b"e=other-error")], "cannot be used"),
        ([SHAKEN, _authenticated(0, b"", b"\xff\xfe")], "cannot be used"),
        ([SHAKEN, _authenticated(58, b"", b"")], "refuses the user 'user': error 58"),
        ([SHAKEN], "cannot be reached"),
        ([_answer(b"\0\x21" + struct.pack(">ih", 1, 9_000) + b"x" * 9_000)], "it takes xxx"),
    ],
)
async def test_another_server_is_not_believed(
    tmp_path: Path, answers: list[bytes], why: str
) -> None:
    async with _answering(*answers) as address, peers_of(access_of(tmp_path)) as peers:
        with pytest.raises(PeerError, match=why) as caught:
            await ask(peers, address)
        assert len(str(caught.value)) < SHOWN_CHARACTERS + 200
        assert PASSWORD not in str(caught.value)


async def test_a_broker_without_the_password_is_not_believed(tmp_path: Path) -> None:
    """It accepts whatever the client proves, and cannot prove that it knows the user."""
    setting = LoginSetting()
    made = setting.credentials[USERS[0], ScramMechanism.SHA_512]
    other = credential(ScramMechanism.SHA_512, "guessed")
    false = type(made)(
        made.mechanism, made.salt, made.stored_key, other.server_key, made.iterations
    )
    setting.credentials[USERS[0], ScramMechanism.SHA_512] = false
    async with listening(setting) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        with pytest.raises(SaslError, match="does not know this user's password"):
            await log_in(reader, writer, access_of(tmp_path))
        writer.close()
