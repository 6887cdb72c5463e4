"""Passwords that change while their users log in or are connected."""

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import ApiKey
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.oauthbearer import OAuthBearerClient
from quire.identity.sasl.plain import PlainClient
from tests.support.broker_layer.login_setting import (
    Gate,
    LoginSetting,
    authenticate_frame,
    client_exchange,
    message_of,
    request_frame,
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


def _bearer(token: str) -> OAuthBearerClient:
    made = OAuthBearerClient("placeholder")
    made._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    return made


@pytest.mark.parametrize("mechanism", [SCRAM, SHA_512, PLAIN])
async def test_a_removed_user_is_disconnected(listener: LoginSetting, mechanism: Mechanism) -> None:
    client, other = listener.connect(), listener.connect()
    await client.log_in(mechanism)
    await other.log_in(mechanism, USERS[1])
    listener.change_password(USERS[0], None)
    assert client.is_closed
    assert await other.is_served()


async def test_only_sessions_of_the_mechanism_are_ended(listener: LoginSetting) -> None:
    """PLAIN takes a password that fits any credential, so it ends with each of them."""
    clients = {each: listener.connect() for each in (SCRAM, SHA_512, PLAIN)}
    for mechanism, client in clients.items():
        await client.log_in(mechanism)
    listener.logins.sessions.revoke(USERS[0], [ScramMechanism.SHA_256])
    assert [login_client.is_closed for login_client in clients.values()] == [True, False, True]


async def test_a_session_of_a_token_does_not_end_with_a_password() -> None:
    listener = with_tokens()
    client = listener.connect()
    await client.shake_hands(BEARER)
    await client.prove(_bearer(f"{USERS[0]}/300"))
    listener.change_password(USERS[0], None)
    assert await client.is_served()


async def test_a_token_is_taken_though_a_password_changes_meanwhile() -> None:
    listener = with_tokens()
    client = listener.connect()
    await client.shake_hands(BEARER)
    listener.change_password(USERS[0], None)
    answer = await client.prove(_bearer(f"{USERS[0]}/300"))
    assert answer.error_code == 0


async def test_a_password_that_changes_between_the_messages_is_refused(
    listener: LoginSetting,
) -> None:
    client = listener.connect()
    await client.shake_hands(SCRAM)
    exchange = client_exchange(SCRAM, USERS[0], PASSWORD)
    answer = await client.authenticate(exchange.begin())
    assert answer.session_lifetime_ms == 0
    listener.change_password(USERS[0], NEW)
    proof = await exchange.respond(bytes(answer.auth_bytes))
    assert proof is not None
    answer = await client.authenticate(proof)
    assert (answer.error_code, message_of(answer)) == (
        FAILED,
        "the password was changed during the login: try again",
    )
    await until(lambda: client.transport.is_lost)


async def test_a_password_that_changes_during_a_check_is_refused() -> None:
    gate = Gate()
    listener = LoginSetting(run_slow=gate.run)
    client = listener.connect()
    await client.shake_hands(PLAIN)
    client.send(authenticate_frame(PlainClient(USERS[0], PASSWORD).begin()))
    await until(lambda: gate.begun == 1)
    listener.change_password(USERS[0], None)
    assert not client.is_closed
    gate.is_open.set()
    assert (await client.authenticated()).error_code == FAILED


async def test_the_password_of_another_user_may_change_meanwhile(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.shake_hands(SCRAM)
    listener.change_password(USERS[1], None)
    answer = await client.prove(client_exchange(SCRAM, USERS[0], PASSWORD))
    assert answer.error_code == 0


async def test_another_handshake_takes_the_new_password(listener: LoginSetting) -> None:
    client = listener.connect()
    await client.shake_hands(SCRAM)
    listener.change_password(USERS[0], NEW)
    assert (await client.log_in(password="a new password")).error_code == 0


async def test_a_password_that_changes_during_the_next_login_ends_the_session(
    listener: LoginSetting,
) -> None:
    client = listener.connect()
    await client.log_in(SCRAM)
    await client.shake_hands(SCRAM)
    listener.change_password(USERS[0], NEW)
    assert client.is_closed


async def test_passwords_that_changed_in_a_session_do_not_matter_later(
    listener: LoginSetting,
) -> None:
    client = listener.connect()
    await client.log_in(SHA_512)
    listener.logins.sessions.revoke(USERS[0], [ScramMechanism.SHA_256])
    await client.shake_hands(SHA_512)
    assert client.connection._login is not None
    assert not client.connection._login._session._revoked
    answer = await client.prove(client_exchange(SHA_512, USERS[0], PASSWORD))
    assert answer.error_code == 0
    listener.logins.sessions.revoke(USERS[1], [ScramMechanism.SHA_256])
    assert not client.connection._login._session._revoked, "nothing is remembered outside of logins"


async def test_a_user_with_the_name_of_those_that_proved_nothing_is_not_they(
    listener: LoginSetting,
) -> None:
    client = listener.connect()
    await client.shake_hands(SCRAM)
    listener.logins.sessions.revoke("ANONYMOUS", [ScramMechanism.SHA_256])
    answer = await client.prove(client_exchange(SCRAM, USERS[0], PASSWORD))
    assert answer.error_code == 0
