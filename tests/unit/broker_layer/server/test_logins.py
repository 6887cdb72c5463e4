"""First logins over connections in memory: what is served before, and what is refused."""

import asyncio
import logging

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import SERVED, ApiKey
from broker_layer.server.access import NO_MECHANISM
from quire.identity.sasl.mechanism import REFUSED, Mechanism
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.sessions import REFUSAL_DELAY_S
from tests.support.broker_layer.login_setting import (
    LoginSetting,
    authenticate_frame,
    client_exchange,
    handshake_frame,
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


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_512, SCRAM, PLAIN])
async def test_a_client_is_served_as_who_it_proved_to_be(
    listener: LoginSetting, mechanism: Mechanism
) -> None:
    client = listener.connect()
    answer = await client.log_in(mechanism, USERS[1])
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    client.send(request_frame(ApiKey.METADATA, 1))
    assert await client.body() == f"User:{USERS[1]}".encode()


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_of_authenticate_is_answered(
    listener: LoginSetting, version: int
) -> None:
    client = listener.connect()
    await client.shake_hands(PLAIN)
    answer = await client.authenticate(PLAIN_MESSAGE, version)
    assert answer.error_code == 0
    assert await client.is_served()


async def test_versions_are_answered_before_during_and_after_a_login(
    listener: LoginSetting,
) -> None:
    client = listener.connect()
    for step in (client.shake_hands(SCRAM), client.log_in(), client.is_served()):
        client.send(VERSIONS)
        assert (await client.body())[:2] == b"\0\0"
        await step
    assert not client.is_closed


@pytest.mark.parametrize("api_key", [0, 1, 2, 3, 10, 19, 22, 27, 50, 51, 60, 75])
@pytest.mark.parametrize("is_shaken", [False, True])
async def test_nothing_else_is_served_before_the_login(
    listener: LoginSetting, api_key: int, *, is_shaken: bool
) -> None:
    client = listener.connect()
    if is_shaken:
        await client.shake_hands(SCRAM)
    client.send(request_frame(api_key, 4 if api_key == ApiKey.FETCH else 1, bytes(40)))
    await until(lambda: client.transport.is_lost)
    assert not client.transport.sent
    assert not listener.served


async def test_a_request_behind_the_last_message_of_a_login_is_not_served(
    listener: LoginSetting,
) -> None:
    client = listener.connect()
    await client.shake_hands(PLAIN)
    client.send(PLAIN_FRAME + request_frame(ApiKey.METADATA, 1, bytes(4)))
    await until(lambda: client.transport.is_lost)
    await turns()
    assert not listener.served


@pytest.mark.parametrize(
    "frames",
    [
        VERSIONS * 2,
        VERSIONS + handshake_frame(SCRAM),
        handshake_frame(SCRAM) * 2,
        handshake_frame(PLAIN) + PLAIN_FRAME,
        handshake_frame(PLAIN) + VERSIONS,
    ],
)
async def test_requests_before_the_login_come_one_at_a_time(
    listener: LoginSetting, frames: bytes
) -> None:
    """Without this rule the answers to 256 KiB of ApiVersions take 9 MB, for anyone."""
    client = listener.connect()
    client.send(frames)
    await until(lambda: client.transport.is_lost)
    assert not client.transport.sent


async def test_unread_versions_of_a_flood_take_no_memory(listener: LoginSetting) -> None:
    client = listener.connect()
    client.send(VERSIONS * 15_000)
    await until(lambda: client.transport.is_lost)
    assert len(client.transport.sent) < 10_000
    assert listener.context.budget.used_bytes == 0


async def test_another_handshake_begins_another_exchange(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.shake_hands(SCRAM)
    stale = client_exchange(SCRAM, USERS[0], PASSWORD)
    first = await client.authenticate(stale.begin())
    proof = await stale.respond(bytes(first.auth_bytes))
    assert proof is not None
    await client.shake_hands(SCRAM)
    answer = await client.authenticate(proof)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await until(lambda: client.transport.is_lost)


async def test_a_proof_of_another_connection_is_refused(listener: LoginSetting) -> None:
    """A replay: both messages of a login that was accepted."""
    first, second = listener.connect(), listener.connect()
    exchange = client_exchange(SCRAM, USERS[0], PASSWORD)
    messages = [exchange.begin()]
    await first.shake_hands(SCRAM)
    answer = await first.authenticate(messages[0])
    proof = await exchange.respond(bytes(answer.auth_bytes))
    assert proof is not None
    assert (await first.authenticate(proof)).error_code == 0
    await second.shake_hands(SCRAM)
    assert (await second.authenticate(messages[0])).error_code == 0
    assert (await second.authenticate(proof)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_the_last_handshake_decides_the_mechanism(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.shake_hands(SCRAM)
    await client.shake_hands(PLAIN)
    assert (await client.authenticate(PLAIN_MESSAGE)).error_code == 0


async def test_authenticate_without_a_handshake_is_refused(
    listener: LoginSetting, caplog: pytest.LogCaptureFixture
) -> None:
    client = listener.connect()
    with caplog.at_level(logging.INFO, "quire.server.audit"):
        answer = await client.authenticate(PLAIN_MESSAGE)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "SaslHandshake must come first" in message_of(answer)
    await until(lambda: client.transport.is_lost)
    (record,) = caplog.records
    assert vars(record)["fields"]["reason"] == "SaslHandshake must come first"


async def test_a_handshake_of_version_0_is_refused(
    listener: LoginSetting, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens without headers would follow it. It is advertised: older librdkafka needs it."""
    assert SERVED[ApiKey.SASL_HANDSHAKE].serves(0)
    client = listener.connect()
    with caplog.at_level(logging.INFO, "quire.server.audit"):
        answer = await client.shake_hands(SCRAM, version=0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    await until(lambda: client.transport.is_lost)
    (record,) = caplog.records
    assert "use a client of Kafka 1.0 or later" in vars(record)["fields"]["reason"]


async def test_another_mechanism_is_refused_with_the_enabled_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = LoginSetting(mechanisms=[Mechanism.SCRAM_SHA_512, SCRAM])
    client = listener.connect()
    with caplog.at_level(logging.INFO, "quire.server.audit"):
        answer = await client.shake_hands(PLAIN)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    await until(lambda: client.transport.is_lost)
    assert vars(caplog.records[0])["fields"] == {
        "act": "login",
        "result": "refused",
        "who": "unknown",
        "peer": "192.0.2.7",
        "reason": "the server does not offer this SASL mechanism: use SCRAM-SHA-512 or"
        " SCRAM-SHA-256",
    }


async def test_refused_logins_are_counted_by_the_mechanism(listener: LoginSetting) -> None:
    await listener.connect().log_in()
    wrong = listener.connect()
    await wrong.shake_hands(PLAIN)
    await wrong.authenticate(PlainClient(USERS[0], "wrong").begin())
    unknown = listener.connect()
    unknown.send(handshake_frame("GSSAPI"))
    await until(lambda: unknown.transport.is_lost)
    early = listener.connect()
    await early.authenticate(PLAIN_MESSAGE)
    counts = listener.context.counters.refused_logins_by_mechanism
    assert counts == {PLAIN: 1, NO_MECHANISM: 2}


async def test_a_refusal_comes_after_a_pause(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.shake_hands(PLAIN)
    began_s = asyncio.get_running_loop().time()
    answer = await client.authenticate(b"\0user\0wrong")
    assert asyncio.get_running_loop().time() - began_s >= REFUSAL_DELAY_S * 0.9
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.session_lifetime_ms == 0
    await until(lambda: client.transport.is_lost)


async def test_requests_after_a_refusal_are_not_served(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.shake_hands(PLAIN)
    client.send(authenticate_frame(b"\0user\0wrong"))
    client.send(handshake_frame(PLAIN))
    await until(lambda: client.transport.is_lost)
    assert not client.transport.sent


@pytest.mark.parametrize("mechanism", [SCRAM, PLAIN])
async def test_an_unknown_user_takes_the_steps_of_a_known_one(
    listener: LoginSetting, mechanism: Mechanism, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []
    for user in ("user", "resu"):  # of the same length, as the answers repeat nothing of it
        client = listener.connect()
        await client.shake_hands(mechanism)
        exchange, steps = client_exchange(mechanism, user, "wrong"), []
        message: bytes | None = exchange.begin()
        while message is not None:
            answer = await client.authenticate(message)
            made = bytes(answer.auth_bytes)
            iterations = made.partition(b",i=")[2]
            steps.append((answer.error_code, message_of(answer), len(made), iterations))
            message = None if answer.error_code else await exchange.respond(made)
        await until(lambda client=client: client.transport.is_lost)  # type: ignore[misc]
        seen.append(steps)
    assert seen[0] == seen[1]
    assert seen[0][-1][:2] == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)


async def test_no_user_is_known_before_the_table_is_read(listener: LoginSetting) -> None:
    listener.credentials.clear()
    client = listener.connect()
    answer = await client.log_in()
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        REFUSED,
    )
