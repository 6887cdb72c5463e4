"""OAUTHBEARER: messages, and the three steps of a failure."""

import pytest

from quire.identity.errors import JwksError, SaslError, SecurityError, TokenError
from quire.identity.principal import Principal
from quire.identity.sasl.mechanism import ENDED, REFUSED
from quire.identity.sasl.oauthbearer import (
    INVALID_TOKEN,
    MESSAGE_BYTES_MAX,
    OAuthBearerClient,
    OAuthBearerServer,
    VerifiedToken,
)
from tests.support.security.sasl_parts import authenticate, failure

TOKEN = "aGVhZA.cGF5.c2ln"
MESSAGE = f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()


def server(error: SecurityError | None = None) -> OAuthBearerServer:
    async def verify(token: str) -> VerifiedToken:
        if error is not None:
            raise error
        assert token == TOKEN
        return VerifiedToken(Principal("alice"), 1_000.0)

    return OAuthBearerServer(verify)


async def test_a_right_token_is_accepted_until_its_end() -> None:
    exchange = server()
    assert await authenticate(OAuthBearerClient(TOKEN), exchange) == [MESSAGE, b""]
    assert exchange.principal == Principal("alice")
    assert exchange.expires_at_s == 1_000.0


@pytest.mark.parametrize(
    "message",
    [
        f"y,,\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,a=alice,\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,a=,\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,,\x01auth=bearer  {TOKEN}\x01\x01",
        f"n,,\x01host=a.example\x01port=9092\x01auth=Bearer {TOKEN}\x01x=\x01\x01",
    ],
)
async def test_other_forms_of_the_message_are_accepted(message: str) -> None:
    assert await server().respond(message.encode()) == b""


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (b"", "begin with n,,"),
        (b"\x01", "begin with n,,"),
        (b"p=tls,,\x01auth=Bearer a\x01\x01", "begin with n,,"),
        (b"n\x01auth=Bearer a\x01\x01", "begin with n,,"),
        (b"n,b=a,\x01auth=Bearer a\x01\x01", "begin with n,,"),
        (b"n,,\n\x01auth=Bearer a\x01\x01", "begin with n,,"),
        (b"n,,", "two bytes 1"),
        (b"n,,\x01", "two bytes 1"),
        (b"n,,\x01auth=Bearer a", "two bytes 1"),
        (b"n,,\x01auth=Bearer a\x01", "two bytes 1"),
        (b"n,,\x01\x01", "no field auth"),
        (b"n,,\x01x=1\x01\x01", "no field auth"),
        (b"n,,\x01auth=\x01\x01", "no field auth"),
        (b"n,,\x01auth=Bearer \x01\x01", "no field auth"),
        (b"n,,\x01auth=Bearera\x01\x01", "no field auth"),
        (b"n,,\x01auth=Basic a\x01\x01", "no field auth"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "no field auth"),
        (b"n,,\x01auth=Bearer a\n\x01\x01", "no field auth"),
        (b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", "there twice"),
        (b"n,,\x01auth=Bearer a\x01AUTH=Bearer b\x01\x01", "there twice"),
        (b"n,,\x01auth=Bearer a\x01\x01\x01", "key=value"),
        (b"n,,\x01auth=Bearer a\x011=x\x01\x01", "key=value"),
        (b"n,,\x01auth=Bearer a\x01x=\x00\x01\x01", "key=value"),
        (b"n,,\x01auth=Bearer \xff\x01\x01", "UTF-8"),
        (b"n,,\x01auth=Bearer " + b"a" * MESSAGE_BYTES_MAX + b"\x01\x01", "at most 32768 B"),
        (b"n,a=bob,\x01auth=Bearer aGVhZA.cGF5.c2ln\x01\x01", "authorization identity"),
    ],
)
async def test_messages_that_are_refused(message: bytes, what: str) -> None:
    exchange = server()
    assert what in (await failure(exchange, message)).text
    assert (await failure(exchange, MESSAGE)).text == ENDED


@pytest.mark.parametrize("error", [TokenError("it expired"), JwksError("the issuer is away")])
@pytest.mark.parametrize("answer", [b"\x01", b"", MESSAGE, bytes(100_000)])
async def test_a_wrong_token_fails_after_the_clients_answer(
    error: SecurityError, answer: bytes
) -> None:
    exchange = server(error)
    assert await exchange.respond(MESSAGE) == INVALID_TOKEN
    assert not exchange.is_complete
    refused = await failure(exchange, answer)
    assert (refused.text, refused.why) == (REFUSED, str(error))
    assert (await failure(exchange, MESSAGE)).text == ENDED


async def test_a_client_learns_the_status_and_answers() -> None:
    client = OAuthBearerClient(TOKEN)
    assert client.begin() == MESSAGE
    assert await client.respond(INVALID_TOKEN) == b"\x01"
    with pytest.raises(SaslError, match="the server refuses the token: 'invalid_token'"):
        await client.respond(b"")
    assert not client.is_complete


@pytest.mark.parametrize("answer", [b"{", b"[]", b"{}", b'{"status":5}', b"[" * 9_000, b"\xff"])
async def test_a_client_refuses_other_answers(answer: bytes) -> None:
    client = OAuthBearerClient(TOKEN)
    with pytest.raises(SaslError, match="the server's answer"):
        await client.respond(answer)
    with pytest.raises(SaslError, match="has ended"):
        await client.respond(b"")


@pytest.mark.parametrize("token", ["", "a b", "a\x01host=b", "ä", "a" * MESSAGE_BYTES_MAX])
def test_a_client_refuses_a_token_that_cannot_be_sent(token: str) -> None:
    with pytest.raises(SaslError):
        OAuthBearerClient(token)
