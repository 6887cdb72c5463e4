"""The client's side of SCRAM: RFC 7677's example, and servers that it refuses."""

import base64

import pytest

from quire.identity.errors import SaslError
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.scram import ScramClient, ScramServer
from tests.support.security.sasl_parts import DECOYS, authenticate, find, run_here

SHA_256 = ScramMechanism.SHA_256
NONCE = "rOprNGfwEbeRWgbNEkqO"
BOTH = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={BOTH},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(user: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(SHA_256, user, password, NONCE, run_here)


async def test_the_example_of_rfc_7677() -> None:
    exchange = client()
    assert exchange.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert await exchange.respond(SERVER_FIRST) == f"c=biws,r={BOTH},p={proof}".encode()
    assert not exchange.is_complete
    assert await exchange.respond(SERVER_FINAL) is None
    assert exchange.is_complete


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "fields"),
        (SERVER_FIRST.replace(b"r=r", b"r=x"), "does not begin with this client's part"),
        (f"r={NONCE},s=AAAA,i=4096".encode(), "does not begin with this client's part"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4096 to 16384"),
        (SERVER_FIRST.replace(b"i=4096", b"i=16385"), "4096 to 16384"),
        (SERVER_FIRST.replace(b"i=4096", b"i=999999999"), "4096 to 16384"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 4_000), "not a number"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-1"), "not a number"),
        (SERVER_FIRST.replace(b"i=4096", "i=４０９６".encode()), "not a number"),
        (SERVER_FIRST.replace(b"i=4096", b""), "i= is not at its place"),
        (SERVER_FIRST.replace(b"gQ==", b"gQ="), "base64"),
        (SERVER_FIRST.replace(b"gQ==", b"gR=="), "base64"),
        (f"r={BOTH},s=,i=4096".encode(), "a salt has 1 to 1024 B"),
        (f"s=AAAA,r={BOTH},i=4096".encode(), "r= is not at its place"),
        (b"m=1," + SERVER_FIRST, "mandatory extension"),
        (SERVER_FIRST + b",m=1", "mandatory extension"),
        (b"e=unknown-user,x=1,y=2", "r= is not at its place"),
        (b"\xff", "UTF-8"),
        (bytes(5_000), "at most 4096 B"),
    ],
)
async def test_servers_that_are_refused_before_the_password_is_used(
    message: bytes, why: str
) -> None:
    exchange = client()
    exchange.begin()
    with pytest.raises(SaslError, match=why):
        await exchange.respond(message)
    with pytest.raises(SaslError, match="has ended"):
        await exchange.respond(SERVER_FIRST)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "does not know this user's password"),
        (b"v=", "does not know this user's password"),
        (SERVER_FINAL[:-1], "base64"),
        (b"e=invalid-proof", "refuses the authentication: 'invalid-proof'"),
        (b"", "v= is not at its place"),
    ],
)
async def test_a_server_that_does_not_know_the_password_is_refused(
    message: bytes, why: str
) -> None:
    exchange = client()
    exchange.begin()
    await exchange.respond(SERVER_FIRST)
    with pytest.raises(SaslError, match=why):
        await exchange.respond(message)
    assert not exchange.is_complete


async def test_extensions_of_the_server_are_ignored() -> None:
    exchange = client()
    exchange.begin()
    await exchange.respond(SERVER_FIRST + b",x=1")
    with pytest.raises(SaslError, match="does not know"):
        await exchange.respond(SERVER_FINAL + b",x=1")


async def test_a_wrong_password_is_refused_by_the_server() -> None:
    with pytest.raises(SaslError, match="check the user and the password"):
        await authenticate(client(password="wrong"), ScramServer(SHA_256, find, DECOYS, "server"))


@pytest.mark.parametrize("user", ["", "a\0b", "u" * 600])
def test_a_name_that_no_server_takes_is_refused_at_once(user: str) -> None:
    with pytest.raises(SaslError, match="name of the user"):
        client(user=user)
