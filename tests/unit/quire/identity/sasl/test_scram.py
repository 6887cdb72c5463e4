"""The server's side of SCRAM: RFC 7677's example, and every message that is refused."""

import base64
import hashlib
import hmac
import pickle
from dataclasses import replace

import pytest

from quire.identity.errors import SaslError
from quire.identity.principal import Principal
from quire.identity.sasl.credentials import (
    ScramCredential,
    ScramMechanism,
    client_key,
    credential_of,
    salted_password,
)
from quire.identity.sasl.mechanism import ENDED, REFUSED
from quire.identity.sasl.scram import MESSAGE_BYTES_MAX, ScramClient, ScramServer
from tests.support.security.sasl_parts import (
    CREDENTIALS,
    DECOYS,
    PASSWORD,
    USERS,
    authenticate,
    failure,
    find,
    run_here,
)

SHA_256, SHA_512 = ScramMechanism
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
NONCE = f"rOprNGfwEbeRWgbNEkqO{SERVER_NONCE}"
RFC_FINAL = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()


def server(mechanism: ScramMechanism = SHA_256, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(mechanism, find, DECOYS, nonce)


def final(
    first: bytes,
    challenge: bytes,
    *,
    start: str = "c=biws",
    mechanism: ScramMechanism = SHA_256,
    password: str = PASSWORD,
    extension: str = "",
    nonce: str = "",
) -> bytes:
    """Return a client's last message, made here again from the RFC's definitions; `nonce` replaces
    the one of the challenge.
    """
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    key = client_key(mechanism, salted_password(mechanism, password, salt, iterations))
    bare = first.decode().split(",", 2)[2]
    without_proof = f"{start},r={nonce or fields['r']}{extension}"
    signed = f"{bare},{challenge.decode()},{without_proof}".encode()
    name = mechanism.hash_name
    mask = hmac.digest(hashlib.new(name, key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(key, mask, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


async def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password(SHA_256, "pencil", salt, 4_096)
    stored = credential_of(SHA_256, salted, salt, 4_096)
    exchange = ScramServer(SHA_256, lambda _user, _mechanism: stored, DECOYS, SERVER_NONCE)
    challenge = await exchange.respond(FIRST)
    assert challenge == f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert not exchange.is_complete
    answer = await exchange.respond(RFC_FINAL)
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.is_complete
    assert exchange.principal == Principal("user")
    assert exchange.expires_at_s is None


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("user", USERS)
async def test_every_user_is_accepted_with_the_password(
    mechanism: ScramMechanism, user: str
) -> None:
    exchange = server(mechanism)
    await authenticate(ScramClient(mechanism, user, PASSWORD, "abc", run_here), exchange)
    assert exchange.principal == Principal(user)


@pytest.mark.parametrize(
    ("first", "start"),
    [
        (b"n,,n=user,r=abc", "c=biws"),
        (b"y,,n=user,r=abc", "c=eSws"),
        (b"n,a=user,n=user,r=abc", "c=bixhPXVzZXIs"),
        (b"n,,n=user,r=abc,tokenauth=true", "c=biws"),
        (b"n,,n=al=2Cice=3D,r=abc,x=1,y=a=b", "c=biws"),
    ],
)
async def test_other_forms_of_the_first_message_are_accepted(first: bytes, start: str) -> None:
    exchange = server()
    challenge = await exchange.respond(first)
    answer = await exchange.respond(final(first, challenge, start=start))
    assert answer.startswith(b"v=")
    assert exchange.is_complete


async def test_extensions_of_the_last_message_are_signed_and_ignored() -> None:
    exchange = server()
    challenge = await exchange.respond(FIRST)
    await exchange.respond(final(FIRST, challenge, extension=",x=1,y=2"))
    assert exchange.is_complete
    other = server()
    made = final(FIRST, await other.respond(FIRST))
    changed = made.replace(b",p=", b",x=1,p=")
    assert (await failure(other, changed)).text == REFUSED


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (b"", "fields"),
        (b"n,,n=user", "fields"),
        (b"x,,n=user,r=abc", "begin with n"),
        (b"N,,n=user,r=abc", "begin with n"),
        (b"n, ,n=user,r=abc", "a= is not at its place"),
        (b"n,b=user,n=user,r=abc", "a= is not at its place"),
        (b"p=tls-unique,,n=user,r=abc", "no channel binding"),
        (b"n,,m=1,n=user,r=abc", "mandatory extension"),
        (b"n,,n=user,r=abc,m=1", "mandatory extension"),
        (b"n,,r=abc,n=user", "n= is not at its place"),
        (b"n,,n=user,x=1,r=abc", "r= is not at its place"),
        (b"n,,n=,r=abc", "is empty"),
        (b"n,,n=us=er,r=abc", "=3D"),
        (b"n,,n=us=2cer,r=abc", "=3D"),
        (b"n,,n=user=,r=abc", "=3D"),
        (b"n,a=other,n=user,r=abc", "authorization identity"),
        (b"n,a=o=ther,n=user,r=abc", "=3D"),
        (b"n,,n=us\0er,r=abc", "control characters"),
        (b"n,,n=us\ner,r=abc", "control characters"),
        (b"n,,n=user,r=", "nonce"),
        (b"n,,n=user,r=a b", "nonce"),
        ("n,,n=user,r=ä".encode(), "nonce"),
        (b"n,,n=user,r=abc,", "extension"),
        (b"n,,n=user,r=abc,1=x", "extension"),
        (b"n,,n=user,r=abc,x=", "extension"),
        (b"n,,n=\xff,r=abc", "UTF-8"),
        (b"n,,n=user,r=" + b"a" * MESSAGE_BYTES_MAX, "at most 4096 B"),
        (b"n,,n=" + b"u" * 256 + b",r=abc", "more than 255 characters"),
    ],
)
async def test_first_messages_that_are_refused(message: bytes, what: str) -> None:
    exchange = server()
    error = await failure(exchange, message)
    assert what in error.text
    assert (await failure(exchange, FIRST)).text == ENDED


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("", "fields"),
        ("c=biws,r={nonce}", "fields"),
        ("c=biws,p={proof},r={nonce}", "r= is not at its place"),
        ("r={nonce},c=biws,p={proof}", "c= is not at its place"),
        ("p={proof},c=biws,r={nonce}", "c= is not at its place"),
        ("c=biws,r={nonce},p={proof},x=1", "p= is not at its place"),
        ("c=biws,r={nonce},p={proof},p={proof}", "password"),
        ("c=biws,m=1,r={nonce},p={proof}", "mandatory extension"),
        ("c=biws,r={nonce},m=1,p={proof}", "mandatory extension"),
        ("c=biw,r={nonce},p={proof}", "base64"),
        ("c=,r={nonce},p={proof}", "password"),
        ("c=eSws,r={nonce},p={proof}", "password"),
        ("c=biws,r={nonce},p={cut}", "base64"),
        ("c=biws,r={nonce},p=", "password"),
        ("c=biws,r={nonce},p=AAAA", "password"),
        ("c=biws,r={nonce},p={proof}AAAA", "base64"),
        ("c=biws,r={nonce},p= {proof}", "base64"),
        ("c=biws,r={nonce},p=ä", "base64"),
        ("c=biws,r={client},p={proof}", "password"),
        ("c=biws,r={server},p={proof}", "password"),
        ("c=biws,r=x{server},p={proof}", "password"),
        ("c=biws,r={nonce}x,p={proof}", "password"),
        ("c=biws,r=,p={proof}", "nonce"),
    ],
)
async def test_last_messages_that_are_refused(message: str, what: str) -> None:
    exchange = server()
    challenge = await exchange.respond(FIRST)
    right = final(FIRST, challenge)
    proof = right.decode().split(",p=")[1]
    made = message.format(
        nonce=NONCE,
        proof=proof,
        cut=proof[:-2],
        client=NONCE.removesuffix(SERVER_NONCE),
        server=SERVER_NONCE,
    )
    assert what in (await failure(exchange, made.encode())).text
    assert (await failure(exchange, right)).text == ENDED


async def test_a_last_message_that_is_not_utf_8_is_refused() -> None:
    assert "UTF-8" in (await failure(server(), FIRST, b"c=biws,r=\xff,p=AAAA")).text


async def test_a_message_of_another_exchange_is_refused() -> None:
    first, second = server(), server(nonce="another")
    answer = final(FIRST, await first.respond(FIRST))
    await first.respond(answer)
    assert first.is_complete
    error = await failure(second, FIRST, answer)
    assert error.text == REFUSED
    assert "nonce" in error.why


async def test_a_proof_for_a_nonce_that_ends_with_the_servers_is_refused() -> None:
    """The proof fits what is signed, but the client's part is not that of its first message."""
    exchange = server()
    challenge = await exchange.respond(FIRST)
    made = final(FIRST, challenge, nonce=f"other{SERVER_NONCE}")
    error = await failure(exchange, made)
    assert error.text == REFUSED
    assert "nonce" in error.why


async def test_a_channel_binding_that_is_taken_out_of_the_first_message_is_noticed() -> None:
    exchange = server()
    challenge = await exchange.respond(FIRST)
    made = final(FIRST, challenge, start="c=eSws")
    error = await failure(exchange, made)
    assert error.text == REFUSED
    assert "binding" in error.why


async def test_a_complete_exchange_takes_no_message() -> None:
    exchange = server()
    made = final(FIRST, await exchange.respond(FIRST))
    await exchange.respond(made)
    with pytest.raises(SaslError, match="has ended"):
        await exchange.respond(made)


async def test_a_credential_of_another_mechanism_is_not_used() -> None:
    other = CREDENTIALS[SHA_512]
    exchange = ScramServer(SHA_256, lambda _user, _mechanism: other, DECOYS, SERVER_NONCE)
    challenge = await exchange.respond(FIRST)
    made = final(FIRST, challenge)
    error = await failure(exchange, made)
    assert error.text == REFUSED
    assert "SCRAM-SHA-256" in error.why


async def test_a_password_of_another_mechanism_is_refused() -> None:
    exchange = server(SHA_512)
    challenge = await exchange.respond(FIRST)
    assert (await failure(exchange, final(FIRST, challenge))).text == REFUSED


# Unknown users


async def both(user: str, password: str) -> tuple[bytes, SaslError]:
    exchange = server()
    first = f"n,,n={user},r=abc".encode()
    challenge = await exchange.respond(first)
    return challenge, await failure(exchange, final(first, challenge, password=password))


async def test_an_unknown_user_fails_as_one_with_a_wrong_password_does() -> None:
    known, wrong = await both("user", "wrong")
    unknown, missing = await both("mallory", PASSWORD)
    assert (wrong.text, str(wrong)) == (missing.text, str(missing)) == (REFUSED, REFUSED)
    assert len(known) == len(unknown)
    assert known.split(b",i=")[1] == unknown.split(b",i=")[1]
    assert "wrong" in wrong.why
    assert "no password" in missing.why


async def test_a_decoy_is_made_for_every_name() -> None:
    """Otherwise the time of the first answer shows which names are users."""
    names = []

    class CountedDecoys:
        def credential(self, user: str, mechanism: ScramMechanism, _: object) -> ScramCredential:
            names.append(user)
            return CREDENTIALS[mechanism]

    for user in ("user", "mallory"):
        found = CREDENTIALS[SHA_256] if user == "user" else None
        exchange = ScramServer(SHA_256, lambda _u, _m, f=found: f, CountedDecoys(), "xyz")  # type: ignore[arg-type,misc]
        first = f"n,,n={user},r=abc".encode()
        challenge = await exchange.respond(first)
        await failure(exchange, final(first, challenge, password="wrong"))
    assert names == ["user", "mallory"]


async def test_a_user_with_one_mechanism_shows_one_form_for_both() -> None:
    own = replace(CREDENTIALS[SHA_512], salt=bytes(24), iterations=8_192)

    def find(_: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return own if mechanism is SHA_512 else None

    exchange = ScramServer(SHA_256, find, DECOYS, "xyz")
    challenge = await exchange.respond(FIRST)
    salt = challenge.split(b",s=")[1].split(b",")[0]
    assert (len(base64.b64decode(salt)), challenge.split(b",i=")[1]) == (24, b"8192")
    assert (await failure(exchange, final(FIRST, challenge))).text == REFUSED


async def test_the_salt_of_an_unknown_user_stays_the_same() -> None:
    (one, _), (again, _) = await both("mallory", "a"), await both("mallory", "b")
    other, _ = await both("trudy", "a")
    assert one == again
    assert one != other


async def test_a_proof_that_fits_a_decoy_is_refused() -> None:
    """The credential that the decoys give has a known password here."""

    class KnownDecoys:
        def credential(self, _user: str, mechanism: ScramMechanism, _: object) -> ScramCredential:
            return CREDENTIALS[mechanism]

    exchange = ScramServer(SHA_256, lambda _u, _m: None, KnownDecoys(), "xyz")  # type: ignore[arg-type]
    challenge = await exchange.respond(FIRST)
    assert (await failure(exchange, final(FIRST, challenge))).text == REFUSED


async def test_errors_hold_no_secret_and_are_copied_whole() -> None:
    _, error = await both("user", "hunter2")
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.text, copied.why) == (error.text, error.why)
    assert "hunter2" not in repr(error) + error.why
