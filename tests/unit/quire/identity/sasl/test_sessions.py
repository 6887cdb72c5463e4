"""Sessions of clients that log in: their number, their ends, and logins that follow."""

from random import Random

import pytest

from quire.identity.errors import SaslError, SaslMechanismError
from quire.identity.principal import ANONYMOUS
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.mechanism import Mechanism, SaslClientExchange
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.scram import ScramClient
from quire.identity.sasl.sessions import (
    CHANGED,
    NOT_BEGUN,
    OTHER_PRINCIPAL,
    SaslAuthenticator,
    SaslParts,
    SaslSession,
    SaslSessions,
)
from tests.support.security.sasl_parts import DECOYS, PASSWORD, USERS, find, run_here

ALICE, _, BOB = USERS
SCRAM = Mechanism.SCRAM_SHA_256
ENABLED = (SCRAM, Mechanism.SCRAM_SHA_512, Mechanism.PLAIN)


class Clients:
    """Sessions, and why they ended."""

    def __init__(self, under_way_max: int = 9) -> None:
        parts = SaslParts(find, DECOYS, run_here, Random(1))
        self.sessions = SaslSessions(SaslAuthenticator(ENABLED, parts), under_way_max)
        self.ends: list[str] = []

    def begin(self, address: str = "10.0.0.1") -> SaslSession:
        session = self.sessions.begin(self.ends.append, address)
        assert session is not None
        return session

    async def logged_in(self, user: str = ALICE, mechanism: Mechanism = SCRAM) -> SaslSession:
        session = self.begin()
        await log_in(session, user, mechanism)
        return session


def exchange_of(user: str, mechanism: Mechanism = SCRAM) -> SaslClientExchange:
    if mechanism is Mechanism.PLAIN:
        return PlainClient(user, PASSWORD)
    return ScramClient(ScramMechanism(mechanism.value), user, PASSWORD, "abc", run_here)


async def log_in(session: SaslSession, user: str = ALICE, mechanism: Mechanism = SCRAM) -> None:
    session.begin(mechanism)
    exchange = exchange_of(user, mechanism)
    message: bytes | None = exchange.begin()
    while message is not None:
        step = await session.respond(message)
        message = await exchange.respond(step.challenge)
        assert step.is_complete == (message is None)


async def test_a_client_is_who_it_proved_to_be() -> None:
    clients = Clients()
    session = clients.begin()
    assert (session.principal, session.is_done, session.has_begun) == (ANONYMOUS, False, False)
    session.begin(SCRAM)
    assert session.has_begun
    await log_in(session)
    assert (session.principal.name, session.is_done, session.has_begun) == (ALICE, True, False)
    assert not clients.ends


async def test_a_client_that_proved_nothing_is_no_user_with_that_name() -> None:
    clients = Clients()
    session = clients.begin()
    clients.sessions.revoke(ANONYMOUS.name, [ScramMechanism.SHA_256])
    assert not clients.ends
    assert not session._revoked, "nothing is remembered outside of exchanges"


async def test_a_message_needs_an_exchange() -> None:
    with pytest.raises(SaslError, match=NOT_BEGUN):
        await Clients().begin().respond(b"n,,n=user,r=abc")


async def test_logins_under_way_are_limited() -> None:
    clients = Clients(2)
    first, second = clients.begin(), clients.begin()
    assert clients.sessions.begin(clients.ends.append, "10.0.0.2") is None
    await log_in(first)
    third = clients.begin()
    assert clients.sessions.begin(clients.ends.append, "10.0.0.2") is None
    second.forget()
    clients.begin()
    assert clients.sessions.count == 3
    first.forget()
    third.forget()
    assert clients.sessions.count == 1


@pytest.mark.parametrize("mechanism", [SCRAM, Mechanism.PLAIN])
async def test_a_session_ends_with_its_password(mechanism: Mechanism) -> None:
    clients = Clients()
    await clients.logged_in(ALICE, mechanism)
    clients.sessions.revoke(BOB, [ScramMechanism.SHA_256])
    assert not clients.ends
    clients.sessions.revoke(ALICE, [ScramMechanism.SHA_256])
    assert clients.ends == [f"the password of {ALICE!r} was changed or removed"]


async def test_a_session_outlives_the_password_of_another_mechanism() -> None:
    clients = Clients()
    await clients.logged_in()
    clients.sessions.revoke(ALICE, [ScramMechanism.SHA_512])
    assert not clients.ends


async def test_a_password_that_changes_during_the_login_proves_nothing() -> None:
    clients = Clients()
    session, exchange = clients.begin(), exchange_of(ALICE)
    session.begin(SCRAM)
    proof = await exchange.respond((await session.respond(exchange.begin())).challenge)
    clients.sessions.revoke(ALICE, [ScramMechanism.SHA_256])
    assert proof is not None
    with pytest.raises(SaslError, match=CHANGED):
        await session.respond(proof)
    assert not session.is_done
    await log_in(session)  # another exchange begins with the new password


async def test_a_client_that_logs_in_again_stays_who_it_is() -> None:
    session = await Clients().logged_in()
    await log_in(session)
    with pytest.raises(SaslError, match=OTHER_PRINCIPAL):
        await log_in(session, BOB)
    with pytest.raises(SaslMechanismError):
        session.begin(Mechanism.SCRAM_SHA_512)
    assert session.principal.name == ALICE


async def test_a_client_that_has_left_proves_nothing() -> None:
    clients = Clients()
    session, exchange = clients.begin(), exchange_of(ALICE)
    session.begin(SCRAM)
    proof = await exchange.respond((await session.respond(exchange.begin())).challenge)
    session.forget()
    assert proof is not None
    assert not (await session.respond(proof)).is_complete
    assert not session.is_done
    assert clients.sessions.count == 0


async def test_one_ipv6_network_leaves_room_for_others() -> None:
    clients = Clients(12)
    for number in range(3):
        clients.begin(f"2001:db8::{number}")
    assert clients.sessions.begin(clients.ends.append, "2001:db8::9") is None
    clients.begin("2001:db8:0:1::1").forget()


async def test_one_address_leaves_room_for_others() -> None:
    clients = Clients(12)
    of_one = [clients.begin() for _ in range(3)]
    assert clients.sessions.begin(clients.ends.append, "10.0.0.1") is None
    clients.begin("10.0.0.2")
    await log_in(of_one[0])
    clients.begin()
    assert clients.sessions.begin(clients.ends.append, "10.0.0.1") is None
    of_one[1].forget()
    of_one[1].forget()
    clients.begin()
    assert clients.sessions.begin(clients.ends.append, "10.0.0.1") is None
