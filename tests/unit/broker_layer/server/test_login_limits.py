"""Limits of first logins, over connections in memory, and logins that end in the middle."""

import gc
import logging
import struct
import weakref

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.access import FRAME_BYTES_MAX
from broker_layer.server.connections import BrokerConnection
from broker_layer.server.server_limits import BrokerLimits
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.sessions import LOGIN_S_MAX, SaslSession
from quire.identity.shares import Shares
from tests.support.broker_layer.login_setting import (
    Gate,
    LoginSetting,
    authenticate_frame,
    message_of,
    request_frame,
    turns,
)
from tests.support.security.sasl_parts import PASSWORD, USERS
from tests.until import until

SCRAM = Mechanism.SCRAM_SHA_256
PLAIN = Mechanism.PLAIN
VERSIONS = request_frame(ApiKey.API_VERSIONS, 0)
PLAIN_MESSAGE = PlainClient(USERS[0], PASSWORD).begin()
PLAIN_FRAME = authenticate_frame(PLAIN_MESSAGE)


async def test_a_large_frame_is_refused_before_the_login_and_taken_after_it(
    listener: LoginSetting,
) -> None:
    client = listener.connect()
    client.send(struct.pack(">i", FRAME_BYTES_MAX + 1))
    await until(lambda: client.transport.is_lost)
    assert listener.context.counters.bad_frames == 1
    client = listener.connect()
    await client.log_in()
    client.send(request_frame(ApiKey.METADATA, 1, bytes(FRAME_BYTES_MAX)))
    assert await client.body() == b"User:user"


async def test_the_largest_frame_before_the_login_is_taken(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.shake_hands(PLAIN)
    head = len(authenticate_frame(b"")) - 4
    client.send(authenticate_frame(bytes(FRAME_BYTES_MAX - head)))
    answer = await client.authenticated()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "4096 B" in message_of(answer)


async def test_the_limit_of_the_broker_holds_if_it_is_lower() -> None:
    listener = LoginSetting(limits=BrokerLimits(frame_bytes_max=1_000))
    client = listener.connect()
    client.send(struct.pack(">i", 1_001))
    await until(lambda: client.transport.is_lost)


@pytest.mark.parametrize(
    "frame",
    [
        request_frame(ApiKey.SASL_HANDSHAKE, 2, b"\0\5PLAIN"),
        request_frame(ApiKey.SASL_AUTHENTICATE, 9, b"\0\0\0\0"),
        request_frame(ApiKey.SASL_AUTHENTICATE, -1, b"\0\0\0\0"),
        request_frame(ApiKey.SASL_HANDSHAKE, 1, b"\0\5PL"),
        request_frame(ApiKey.SASL_HANDSHAKE, 1, b"\0\1\xff"),
        request_frame(ApiKey.SASL_AUTHENTICATE, 1, b"\0\0\0\7ab"),
        request_frame(9_999, 1),
        b"\0\0\0\5\0\x11\0\1\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
@pytest.mark.parametrize("is_shaken", [False, True])
async def test_a_damaged_or_unserved_request_closes_the_connection(
    listener: LoginSetting, frame: bytes, *, is_shaken: bool
) -> None:
    client = listener.connect()
    if is_shaken:
        await client.shake_hands(PLAIN)
    client.send(frame)
    await until(lambda: client.transport.is_lost)
    assert not client.transport.sent
    assert listener.context.counters.bad_frames == 1
    assert listener.context.counters.requests_failed == 0
    assert listener.context.budget.used_bytes == 0


async def test_a_client_that_does_not_log_in_is_disconnected(listener: LoginSetting) -> None:
    slow, quick = listener.connect(), listener.connect()
    await slow.shake_hands(SCRAM)
    await quick.log_in()
    listener.now_s += LOGIN_S_MAX
    for client in (slow, quick):
        client.connection.check_deadlines(listener.now_s)
    assert not slow.is_closed
    listener.now_s += 0.001
    for client in (slow, quick):
        client.connection.check_deadlines(listener.now_s)
    assert slow.is_closed
    assert not quick.is_closed
    assert listener.context.counters.peers_dropped == 1


async def test_logins_under_way_are_limited(
    listener: LoginSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener.logins.sessions, "_places", Shares(2, 2))
    first, second, third = (listener.connect() for _ in range(3))
    assert third.is_closed
    assert not first.is_closed
    assert not second.is_closed
    await first.log_in()
    fourth = listener.connect()
    assert not fourth.is_closed
    assert listener.connect().is_closed
    second.lose()
    await turns()
    assert not listener.connect().is_closed


async def test_a_connection_beyond_the_limit_is_never_served(
    listener: LoginSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by a transport that delivers something after the end."""
    monkeypatch.setattr(listener.logins.sessions, "_places", Shares(0, 0))
    monkeypatch.setattr(BrokerConnection, "drop", lambda *_: None)
    client = listener.connect()
    client.send(request_frame(ApiKey.METADATA, 1, bytes(4)))
    await turns()
    assert not client.transport.sent
    assert not listener.served


# -- ends in the middle


async def test_a_client_that_is_gone_is_not_logged_in() -> None:
    gate = Gate()
    listener = LoginSetting(run_slow=gate.run)
    client = listener.connect()
    await client.shake_hands(PLAIN)
    client.send(PLAIN_FRAME)
    await until(lambda: gate.begun == 1)
    client.lose()
    await turns()
    gate.is_open.set()
    await turns()
    assert not listener.logins.sessions._done
    assert not listener.logins.sessions._under_way
    assert listener.context.counters.requests_failed == 0


@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
async def test_no_login_stays_in_memory(password: str) -> None:
    gate = Gate()
    listener = LoginSetting(run_slow=gate.run)
    logged_in, shaken, fresh, busy = (listener.connect() for _ in range(4))
    await logged_in.log_in()
    await shaken.shake_hands(SCRAM)
    await busy.shake_hands(PLAIN)
    busy.send(authenticate_frame(b"\0user\0" + password.encode()))
    await until(lambda: gate.begun == 1)
    clients = [logged_in, shaken, fresh, busy]
    known = [
        weakref.ref(session)
        for session in (*listener.logins.sessions._under_way, *listener.logins.sessions._done)
    ]
    assert len(known) == 4
    assert all(isinstance(reference_type(), SaslSession) for reference_type in known)
    for client in clients:
        client.lose()
    await turns()
    gate.is_open.set()
    await until(lambda: not listener.tasks._tasks)
    await turns()
    del client, logged_in, shaken, fresh, busy
    clients.clear()
    gc.collect()
    assert [reference_type() for reference_type in known] == [None] * 4


async def test_a_broker_that_closes_ends_logins(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    listener = LoginSetting(run_slow=gate.run)
    working, refused = listener.connect(), listener.connect()
    for client in (working, refused):
        await client.shake_hands(PLAIN)
    working.send(PLAIN_FRAME)
    refused.send(authenticate_frame(b"no such form"))
    await until(lambda: gate.begun == 1)
    with caplog.at_level(logging.ERROR):
        await listener.aclose()
        await turns()
    assert working.transport.is_lost
    assert refused.transport.is_lost
    assert all(record.levelno < logging.ERROR for record in caplog.records)
