"""PLAIN: passwords that are accepted, and messages that are refused."""

from collections.abc import Callable
from unittest.mock import patch

import pytest

from quire.identity.errors import SaslError
from quire.identity.principal import Principal
from quire.identity.sasl import plain
from quire.identity.sasl.credentials import (
    ITERATIONS_MAX,
    Decoys,
    ScramCredential,
    ScramMechanism,
    salted_password,
)
from quire.identity.sasl.mechanism import ENDED, NAME_CHARACTERS_MAX, REFUSED, Answer
from quire.identity.sasl.plain import MESSAGE_BYTES_MAX, PlainClient, PlainServer
from tests.support.security.sasl_parts import (
    CREDENTIALS,
    DECOYS,
    ITERATIONS,
    PASSWORD,
    USERS,
    authenticate,
    credential,
    failure,
    find,
    run_here,
)


def server() -> PlainServer:
    return PlainServer(find, DECOYS, run_here)


@pytest.mark.parametrize("user", USERS)
async def test_every_user_is_accepted_with_the_password(user: str) -> None:
    exchange = server()
    messages = await authenticate(PlainClient(user, PASSWORD), exchange)
    assert messages == [f"\0{user}\0{PASSWORD}".encode(), b""]
    assert exchange.principal == Principal(user)
    assert exchange.expires_at_s is None


async def test_an_authorization_identity_may_be_the_user() -> None:
    exchange = server()
    assert await exchange.respond(b"user\0user\0pencil") == b""
    assert exchange.is_complete


@pytest.mark.parametrize("character", ["u", "\u8a9e", "\U0001f511", "=", ","])
async def test_the_longest_names_are_accepted(character: str) -> None:
    name = character * NAME_CHARACTERS_MAX
    stored = CREDENTIALS
    exchange = PlainServer(lambda _, mechanism: stored[mechanism], DECOYS, run_here)
    assert await exchange.respond(f"{name}\0{name}\0pencil".encode()) == b""
    assert exchange.principal == Principal(name)


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
async def test_a_credential_of_one_mechanism_is_enough(mechanism: ScramMechanism) -> None:
    def find_one(_user: str, asked: ScramMechanism) -> ScramCredential | None:
        return CREDENTIALS[asked] if asked is mechanism else None

    exchange = PlainServer(find_one, DECOYS, run_here)
    assert await exchange.respond(b"\0user\0pencil") == b""


async def test_either_password_of_a_user_with_two_is_accepted() -> None:
    stored = {
        ScramMechanism.SHA_256: credential(ScramMechanism.SHA_256, "old"),
        ScramMechanism.SHA_512: credential(ScramMechanism.SHA_512, "new"),
    }
    for password in (b"old", b"new"):
        exchange = PlainServer(lambda _, asked: stored[asked], DECOYS, run_here)
        assert await exchange.respond(b"\0user\0" + password) == b""


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (b"", "1 fields"),
        (b"user\0pencil", "2 fields"),
        (b"\0user\0pencil\0", "4 fields"),
        (b"\0user\0pen\0cil", "4 fields"),
        (b"\0user\0", "password is empty"),
        (b"\0\0pencil", "name of the user is empty"),
        (b"other\0user\0pencil", "authorization identity"),
        (b"\0us\ner\0pencil", "control characters"),
        ("\0us\u2028er\0pencil".encode(), "control characters"),
        (b"\0\xff\0pencil", "UTF-8"),
        (b"\0user\0" + bytes(MESSAGE_BYTES_MAX), "at most 4096 B"),
        (b"\0user\0wrong", "check the user and the password"),
        (b"\0user\0pencil ", "check the user and the password"),
        (b"\0USER\0pencil", "check the user and the password"),
        (b"\0mallory\0pencil", "check the user and the password"),
    ],
)
async def test_messages_that_are_refused(message: bytes, what: str) -> None:
    exchange = server()
    error = await failure(exchange, message)
    assert what in error.text
    assert "pencil" not in repr(error) + error.why
    assert (await failure(exchange, b"\0user\0pencil")).text == ENDED


def counted_decoy(
    done: list[tuple[ScramMechanism, int]],
) -> Callable[[Decoys, str, ScramMechanism, ScramCredential | None], ScramCredential]:
    """Return a method that makes decoys and counts them as work without iterations."""
    make = Decoys.credential

    def credential(
        self: Decoys, user: str, mechanism: ScramMechanism, other: ScramCredential | None
    ) -> ScramCredential:
        done.append((mechanism, 0))
        return make(self, user, mechanism, other)

    return credential


async def test_an_unknown_user_costs_the_same_work() -> None:
    """The work is counted in calls of the functions that take the time."""
    costs = {}
    for user in ("user", "mallory"):
        done: list[tuple[ScramMechanism, int]] = []

        def count(
            mechanism: ScramMechanism,
            password: str,
            salt: bytes,
            iterations: int,
            done: list[tuple[ScramMechanism, int]] = done,
        ) -> bytes:
            done.append((mechanism, iterations))
            return salted_password(mechanism, password, salt, iterations)

        with (
            patch.object(plain, "salted_password", count),
            patch.object(Decoys, "credential", counted_decoy(done)),
        ):
            error = await failure(server(), f"\0{user}\0wrong".encode())
        assert error.text == REFUSED
        costs[user] = done
    work = [(scram_mechanism, 0) for scram_mechanism in ScramMechanism]
    for scram_mechanism in ScramMechanism:
        work += [(scram_mechanism, ITERATIONS), (scram_mechanism, ITERATIONS_MAX - ITERATIONS)]
    assert costs["user"] == costs["mallory"] == work


async def test_the_slow_part_runs_where_the_caller_wants() -> None:
    runs = 0

    async def run_elsewhere(slow: Callable[[], Answer]) -> Answer:
        nonlocal runs
        runs += 1
        with patch.object(plain, "salted_password", salted_password):
            return slow()

    with patch.object(plain, "salted_password", None):
        exchange = PlainServer(find, DECOYS, run_elsewhere)
        await exchange.respond(b"\0user\0pencil")
    assert (runs, exchange.is_complete) == (1, True)


async def test_nothing_is_accepted_while_a_password_is_checked() -> None:
    exchange = server()

    async def ask_again(slow: Callable[[], Answer]) -> Answer:
        assert (await failure(exchange, b"\0user\0pencil")).text == ENDED
        return slow()

    exchange = PlainServer(find, DECOYS, ask_again)
    await exchange.respond(b"\0user\0pencil")
    assert exchange.is_complete


async def test_a_decoy_is_never_accepted() -> None:
    with patch.object(plain, "_fits", lambda _credential, _password: True):
        assert (await failure(server(), b"\0mallory\0pencil")).text == REFUSED


@pytest.mark.parametrize(
    ("user", "password"), [("", "x"), ("a\0b", "x"), ("\ud800", "x"), ("a", ""), ("a", "\0")]
)
def test_a_client_refuses_what_cannot_be_sent(user: str, password: str) -> None:
    with pytest.raises(SaslError):
        PlainClient(user, password)


async def test_a_client_refuses_an_answer_that_is_not_empty() -> None:
    client = PlainClient("user", "pencil")
    with pytest.raises(SaslError, match="not empty"):
        await client.respond(b"x")
    with pytest.raises(SaslError, match="has ended"):
        await client.respond(b"")
