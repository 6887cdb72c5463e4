"""Logins that follow on a connection, and the end of sessions."""

import logging

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import SaslAuthenticateResponse
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.access import SESSION_MS_MAX
from quire.identity.principal import Principal
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.oauthbearer import OAuthBearerClient
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.sessions import LOGIN_S_MAX
from tests.support.broker_layer.login_setting import (
    Gate,
    LoginClient,
    LoginSetting,
    authenticate_frame,
    handshake_frame,
    message_of,
    request_frame,
    turns,
)
from tests.support.broker_layer.login_tokens import with_tokens
from tests.support.security.sasl_parts import PASSWORD, USERS, credential
from tests.until import until

SCRAM = Mechanism.SCRAM_SHA_256
SHA_512 = Mechanism.SCRAM_SHA_512
PLAIN = Mechanism.PLAIN
BEARER = Mechanism.OAUTHBEARER
FETCH = request_frame(ApiKey.FETCH, 4)
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
NEW = credential(ScramMechanism.SHA_256, "a new password")


# -- who logs in again


@pytest.mark.parametrize("mechanism", [SHA_512, SCRAM, PLAIN])
async def test_a_client_logs_in_again_as_the_same(
    listener: LoginSetting, mechanism: Mechanism
) -> None:
    client = listener.connect()
    for _ in range(3):
        answer = await client.log_in(mechanism)
        assert answer.error_code == 0
        assert await client.is_served()
    assert client.connection._login is not None
    assert list(listener.logins.sessions._done) == [client.connection._login._session]


async def test_a_client_cannot_log_in_again_as_another(
    listener: LoginSetting, caplog: pytest.LogCaptureFixture
) -> None:
    client = listener.connect()
    await client.log_in(SCRAM, USERS[0])
    with caplog.at_level(logging.INFO, "quire.server.audit"):
        answer = await client.log_in(SCRAM, USERS[1])
    assert (answer.error_code, message_of(answer)) == (
        FAILED,
        "a client that logs in again must log in as before",
    )
    assert client.connection.principal == Principal(USERS[0])
    await until(lambda: client.transport.is_lost)
    fields = vars(caplog.records[0])["fields"]
    assert (fields["who"], fields["reason"]) == (
        "User:user",
        "User:al,ice= is not User:user",
    )


async def test_a_client_cannot_log_in_again_with_another_mechanism(listener: LoginSetting) -> None:
    """A downgrade, even to one that is enabled."""
    client = listener.connect()
    await client.log_in(SHA_512)
    answer = await client.shake_hands(SCRAM)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    await until(lambda: client.transport.is_lost)


async def test_authenticate_alone_does_not_log_in_again(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.log_in(PLAIN)
    answer = await client.authenticate(PlainClient(USERS[0], PASSWORD).begin())
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    await until(lambda: client.transport.is_lost)


async def test_a_wrong_password_ends_a_session(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.log_in()
    answer = await client.log_in(password="wrong")
    assert answer.error_code == FAILED
    await until(lambda: client.transport.is_lost)


# -- other requests meanwhile


async def test_requests_in_flight_are_answered_before_those_of_the_login(
    listener: LoginSetting,
) -> None:
    client = listener.connect()
    await client.log_in(PLAIN)
    client.send(FETCH)
    client.send(handshake_frame(PLAIN))
    await turns()
    assert not client.transport.sent
    listener.answer()
    await until(lambda: bool(client.transport.sent))
    first, _ = client.transport.take_answers()
    assert first[4:] == b"fetched"
    client.send(FETCH)
    assert (await _authenticated_behind(listener, client)).error_code == 0


async def _authenticated_behind(
    listener: LoginSetting, client: LoginClient
) -> SaslAuthenticateResponse:
    client.send(authenticate_frame(PlainClient(USERS[0], PASSWORD).begin()))
    await turns()
    assert not client.transport.sent
    listener.answer()
    await until(lambda: bool(client.transport.sent))
    data = bytes(client.transport.sent)
    size = 4 + int.from_bytes(data[:4], "big")
    client.transport.sent[:] = data[size:]
    return await client.authenticated()


async def test_a_refusal_waits_for_the_requests_before_it(listener: LoginSetting) -> None:
    """Before this was so, the connection was closed without any of the answers."""
    client = listener.connect()
    await client.log_in(SCRAM)
    client.send(FETCH)
    client.send(handshake_frame(PLAIN))
    await turns()
    assert not client.is_closed
    listener.answer()
    await until(lambda: client.transport.is_lost)
    fetched, refused = client.transport.take_answers()
    assert fetched[4:] == b"fetched"
    assert refused[4:6] == ErrorCode.UNSUPPORTED_SASL_MECHANISM.to_bytes(2)


async def test_a_refused_proof_waits_for_the_requests_before_it(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.log_in(PLAIN)
    await client.shake_hands(PLAIN)
    client.send(FETCH)
    client.send(authenticate_frame(b"\0user\0wrong"))
    await until(lambda: client.connection._exchanges[-1].deferred is not None)
    listener.answer()
    await until(lambda: client.transport.is_lost)
    fetched, refused = client.transport.take_answers()
    assert fetched[4:] == b"fetched"
    assert refused[4:6] == FAILED.to_bytes(2)


async def test_a_refusal_does_not_wait_for_ever(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.log_in(SCRAM)
    client.send(FETCH)
    client.send(handshake_frame(PLAIN))
    listener.now_s += LOGIN_S_MAX
    client.connection.check_deadlines(listener.now_s)
    assert not client.is_closed
    listener.now_s += 0.001
    client.connection.check_deadlines(listener.now_s)
    assert client.is_closed


async def test_nothing_is_served_after_a_refusal_that_waits(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.log_in(SCRAM)
    client.send(FETCH)
    client.send(handshake_frame(PLAIN))
    client.send(FETCH)
    await until(lambda: client.transport.is_lost)
    assert listener.served == [ApiKey.FETCH]


async def test_a_request_during_a_check_ends_the_connection() -> None:
    gate = Gate()
    listener = LoginSetting(run_slow=gate.run)
    client = listener.connect()
    await client.log_in(SCRAM)
    client.lose()
    gate.is_open.set()
    other = listener.connect()
    await other.log_in(PLAIN)
    gate.is_open.clear()
    await other.shake_hands(PLAIN)
    assert await other.is_served(), "between two messages of a login others may come"
    other.send(authenticate_frame(PlainClient(USERS[0], PASSWORD).begin()))
    await until(lambda: gate.begun == 2)
    other.send(FETCH)
    await until(lambda: other.transport.is_lost)
    gate.is_open.set()
    await turns()
    assert ApiKey.FETCH not in listener.served
    assert not listener.logins.sessions._done


# -- ends of sessions


async def test_a_session_ends_after_its_time() -> None:
    listener = LoginSetting(session_ms_max=60_000)
    client = listener.connect()
    assert (await client.log_in()).session_lifetime_ms == 60_000
    listener.now_s += 59.999
    assert await client.is_served()
    listener.now_s += 0.001
    assert not await client.is_served()
    assert client.transport.is_lost


async def test_a_session_goes_on_after_another_login() -> None:
    listener = LoginSetting(session_ms_max=60_000)
    client = listener.connect()
    await client.log_in()
    listener.now_s += 61
    client.send(request_frame(ApiKey.API_VERSIONS, 0))
    assert await client.body(), "versions are not secret"
    assert (await client.log_in()).session_lifetime_ms == 60_000
    listener.now_s += 59
    assert await client.is_served()
    listener.now_s += 1
    assert not await client.is_served()


@pytest.mark.parametrize(
    ("seconds", "session_ms_max", "lifetime_ms"),
    [
        ("300", 0, 300_000),
        ("300", 60_000, 60_000),
        ("30", 60_000, 30_000),
        ("0.25", 0, 250),
        ("0", 0, 1),
        ("-29", 60_000, 1),
        ("1e30", 0, SESSION_MS_MAX),
    ],
)
async def test_a_session_ends_with_its_token(
    seconds: str, session_ms_max: int, lifetime_ms: int
) -> None:
    """A token in the leeway of clocks is accepted, and must be replaced at once."""
    listener = with_tokens(session_ms_max)
    client = listener.connect()
    await client.shake_hands(BEARER)
    answer = await client.prove(_bearer(f"alice/{seconds}"))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, lifetime_ms)
    assert await client.is_served()
    listener.now_s += lifetime_ms / 1_000
    assert not await client.is_served()


def _bearer(token: str) -> OAuthBearerClient:
    made = OAuthBearerClient("placeholder")
    made._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    return made


async def test_a_refused_token_is_answered_and_then_ends_the_connection() -> None:
    listener = with_tokens()
    client = listener.connect()
    await client.shake_hands(BEARER)
    answer = await client.prove(_bearer("nonsense"))
    assert answer.error_code == FAILED
    assert "not a token" not in message_of(answer)
    await until(lambda: client.transport.is_lost)
