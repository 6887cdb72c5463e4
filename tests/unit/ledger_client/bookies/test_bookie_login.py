"""Logins of a client at bookies: messages, refusals, and what is tried again (rule 12.6)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bookie.server.client_logins import LoginMode
from bookie.wire.messages import (
    LOGIN_DUE,
    BeginLogin,
    ContinueLogin,
    Hello,
    HelloReply,
    LoginReply,
    Status,
)
from ledger_client.bookies import pool_link
from ledger_client.bookies.bookie_login import MESSAGES_MAX, log_in
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.bookies.pool_link import BookieAddress
from ledger_client.config import ClientConfig
from metadata.ids import BookieId
from quire.identity.sasl.mechanism import Mechanism, RunSlow
from quire.identity.sasl_access import SaslAccess
from quire.server.overriding import override
from tests.support.bookie.login_world import PASSWORD, LoginWorld, login_world
from tests.support.bookie.roles_setting import RolesSetting
from tests.support.bookie.running_server import BOOKIE
from tests.support.ledger_client.scripted_bookie import ScriptedAddresses, ScriptedBookie
from tests.until import until

LONG_S = 20.0
FAST = ClientConfig(reconnect_delay_max_s=0.05)
FIRST = b"r=%s,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096"


def access_of(
    directory: Path,
    password: str = PASSWORD,
    mechanism: Mechanism = Mechanism.SCRAM_SHA_512,
    user: str = "alice",
) -> SaslAccess:
    path = directory / "password"
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_text(f"{password}\n")
    return SaslAccess(mechanism, user, str(path))


class Addresses(ScriptedAddresses):
    """Address of a bookie of a `LoginWorld`."""

    def __init__(self, world: LoginWorld) -> None:
        super().__init__()
        address = BookieAddress(*world.served.address, is_tls=False, offers_tls=False)
        self.known = {BOOKIE: address}


@asynccontextmanager
async def pool_of(
    addresses: ScriptedAddresses, access: SaslAccess | None, config: ClientConfig = FAST
) -> AsyncIterator[BookiePool]:
    pool = BookiePool(addresses, config=config, rng=Random(1), sasl=access, client_name="test")
    try:
        yield pool
    finally:
        await pool.aclose()


async def failure_of(pool: BookiePool, bookie_id: BookieId = BOOKIE) -> BookieCallError:
    with pytest.raises(BookieCallError) as caught:
        await pool.ping(bookie_id, timeout_s=LONG_S)
    return caught.value


# -- at a real bookie


@pytest.mark.parametrize("mode", [LoginMode.REQUIRED, LoginMode.OPTIONAL])
@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512])
async def test_a_client_logs_in_once_and_calls(
    tmp_path: Path, mode: LoginMode, mechanism: Mechanism
) -> None:
    async with (
        login_world(mode) as world,
        pool_of(Addresses(world), access_of(tmp_path, mechanism=mechanism)) as pool,
    ):
        for _ in range(3):
            assert (await pool.ping(BOOKIE, timeout_s=LONG_S)).writable
        assert world.served.counters.connections_accepted == 1
        sessions = world.logins._sessions
        assert sessions is not None
        assert [session.principal.name for session in sessions._done] == ["alice"]


async def test_a_wrong_password_says_what_to_do(tmp_path: Path) -> None:
    async with (
        login_world() as world,
        pool_of(Addresses(world), access_of(tmp_path, "wrong")) as pool,
    ):
        error = await failure_of(pool)
        assert (error.failure, error.status) == (CallFailure.REFUSED, Status.UNAUTHORIZED)
        assert "it refuses the login of the user 'alice'" in str(error)
        assert "check the user and the password" in str(error)
        assert "wrong" not in str(error)


async def test_a_refused_login_is_tried_again_after_a_pause_that_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_link, "RECONNECT_DELAY_MIN_S", 60.0)
    monkeypatch.setattr(pool_link, "REFUSED_DELAY_MAX_S", 120.0)
    access = access_of(tmp_path, "wrong")
    async with login_world() as world, pool_of(Addresses(world), access) as pool:
        why = str(await failure_of(pool))
        for _ in range(5):
            assert str(await failure_of(pool)) == why, "the reason is not lost"
        assert world.served.counters.connections_accepted == 1
        access_of(tmp_path)
        pool._links[BOOKIE]._not_before = 0.0
        assert (await pool.ping(BOOKIE, timeout_s=LONG_S)).writable, "the file is read again"


async def test_the_pause_after_a_refusal_is_longer_than_after_a_lost_connection(
    tmp_path: Path,
) -> None:
    access = access_of(tmp_path, "wrong")
    async with login_world() as world, pool_of(Addresses(world), access) as pool:
        await failure_of(pool)
        link = pool._links[BOOKIE]
        for _ in range(2):
            link._not_before = 0.0
            await failure_of(pool)
        pause_s = link._not_before - asyncio.get_running_loop().time()
        assert pause_s > FAST.reconnect_delay_max_s


async def test_a_client_without_a_login_learns_what_to_set() -> None:
    async with login_world() as world, pool_of(Addresses(world), None) as pool:
        error = await failure_of(pool)
        assert error.status is Status.UNAUTHORIZED
        assert "this bookie needs a login: write mechanism, user and password_file" in str(error)


async def test_a_client_with_a_login_uses_a_bookie_that_takes_none(tmp_path: Path) -> None:
    async with login_world() as world, pool_of(Addresses(world), access_of(tmp_path)) as pool:
        world.served.context.access.logins = None
        assert (await pool.ping(BOOKIE, timeout_s=LONG_S)).writable


async def test_plain_is_not_sent(tmp_path: Path) -> None:
    access = access_of(tmp_path, mechanism=Mechanism.PLAIN)
    async with login_world() as world, pool_of(Addresses(world), access) as pool:
        error = await failure_of(pool)
        assert 'mechanism = "SCRAM-SHA-512"' in str(error)
        assert world.served.counters.requests == 1, "the hello alone was sent"


async def test_a_password_file_that_is_missing_is_named(tmp_path: Path) -> None:
    access = SaslAccess(Mechanism.SCRAM_SHA_512, "alice", str(tmp_path / "missing"))
    async with login_world() as world, pool_of(Addresses(world), access) as pool:
        assert "missing" in str(await failure_of(pool))
        await until(lambda: not world.served.context.connections)


async def test_a_session_that_ends_is_made_again_with_the_new_password(tmp_path: Path) -> None:
    access = access_of(tmp_path)
    async with login_world() as world, pool_of(Addresses(world), access) as pool:
        await pool.ping(BOOKIE, timeout_s=LONG_S)
        access_of(tmp_path, "another")
        await world.change_password("alice", "another")
        async with asyncio.timeout(LONG_S):
            while world.served.counters.connections_accepted < 2:
                try:
                    await pool.ping(BOOKIE, timeout_s=LONG_S)
                except BookieCallError:
                    await asyncio.sleep(0.01)
        assert (await pool.ping(BOOKIE, timeout_s=LONG_S)).writable


# -- at a bookie that does what a test says


def accept(bookie: ScriptedBookie, features: int) -> None:
    def answer(_: Hello) -> HelloReply:
        return HelloReply(Status.OK, bookie.id, 1, features, 1_000, 1_000, "", "User:certified")

    bookie.hello = answer


async def test_a_client_that_logs_in_says_so(bookie: ScriptedBookie, tmp_path: Path) -> None:
    accept(bookie, 0)
    async with pool_of(ScriptedAddresses(bookie), access_of(tmp_path)) as pool:
        await pool.ping(bookie.id, timeout_s=LONG_S)
    sent = bookie.requests[0]
    assert isinstance(sent, Hello)
    assert sent.features == LOGIN_DUE


async def test_a_client_without_a_login_offers_no_features(bookie: ScriptedBookie) -> None:
    async with pool_of(ScriptedAddresses(bookie), None) as pool:
        await pool.ping(bookie.id, timeout_s=LONG_S)
        assert pool.principals == {bookie.id: ""}
    sent = bookie.requests[0]
    assert isinstance(sent, Hello)
    assert sent.features == 0


async def test_a_bookie_chooses_no_feature_that_was_not_offered(bookie: ScriptedBookie) -> None:
    accept(bookie, LOGIN_DUE)
    async with pool_of(ScriptedAddresses(bookie), None) as pool:
        assert (await failure_of(pool, bookie.id)).failure is CallFailure.PROTOCOL


async def test_a_bookie_that_does_not_know_the_password_is_not_used(
    bookie: ScriptedBookie, tmp_path: Path
) -> None:
    def answer(request: object) -> LoginReply:
        if isinstance(request, BeginLogin):
            nonce = request.sasl_message.partition(b"r=")[2]
            return LoginReply(FIRST % (nonce + b"more"), complete=False, principal="")
        assert isinstance(request, ContinueLogin)
        return LoginReply(b"v=AAAA", complete=True, principal="User:alice")

    accept(bookie, LOGIN_DUE)
    bookie.answer = answer
    async with pool_of(ScriptedAddresses(bookie), access_of(tmp_path)) as pool:
        error = await failure_of(pool, bookie.id)
        assert "the server does not know this user's password" in str(error)
        assert not pool.principals
    names = [type(each).__name__ for each in bookie.requests]
    assert names == ["Hello", "BeginLogin", "ContinueLogin"]


async def test_the_principal_of_a_login_replaces_that_of_the_hello(tmp_path: Path) -> None:
    roles = RolesSetting()
    await roles.authorizer.start()
    roles.authorizer.next_principal = "User:of the certificate"
    access = access_of(tmp_path)
    async with (
        login_world(authorizer=roles.authorizer) as world,
        pool_of(Addresses(world), access) as pool,
    ):
        await pool.ping(BOOKIE, timeout_s=LONG_S)
        assert pool.principals == {BOOKIE: "User:alice"}
    await roles.authorizer.aclose()


async def test_a_silent_login_is_not_tested_with_a_ping(
    bookie: ScriptedBookie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger_client.bookies.connection.PING_AFTER_S", 0.0)
    accept(bookie, LOGIN_DUE)
    bookie.answer = lambda _: None
    config = ClientConfig(connect_timeout_s=1.0)
    async with pool_of(ScriptedAddresses(bookie), access_of(tmp_path), config) as pool:
        assert (await failure_of(pool, bookie.id)).failure is CallFailure.TIMEOUT
    assert [type(request).__name__ for request in bookie.requests] == ["Hello", "BeginLogin"]


# -- messages alone

Ask = Callable[[BeginLogin | ContinueLogin], Awaitable[LoginReply]]
ACCEPTED = HelloReply(Status.OK, "b", 1, LOGIN_DUE, 1_000, 1_000, "", "")


async def reason(access: SaslAccess, ask: Ask) -> BookieCallError:
    with pytest.raises(BookieCallError) as caught:
        await log_in(BookieId("b"), ACCEPTED, access, ask)
    return caught.value


@pytest.mark.parametrize("complete", [True, False])
async def test_a_login_that_the_bookie_ends_at_once_is_none(
    tmp_path: Path, *, complete: bool
) -> None:
    async def ask(request: BeginLogin | ContinueLogin) -> LoginReply:
        if isinstance(request, BeginLogin):
            nonce = request.sasl_message.partition(b"r=")[2]
            first = FIRST % (nonce + b"more")
            return LoginReply(first, complete=complete, principal="User:alice")
        raise BookieCallError(BookieId("b"), "no such user", status=Status.UNKNOWN)

    error = await reason(access_of(tmp_path), ask)
    assert ("ends the login at another message" in str(error)) == complete
    assert error.status is (None if complete else Status.UNAUTHORIZED)


class EndlessExchange:
    """A mechanism that has another message after each answer."""

    is_complete = False

    def begin(self) -> bytes:
        return b"first"

    async def respond(self, message: bytes) -> bytes | None:
        return message + b"+"


class EndlessAccess(SaslAccess):
    """A login that does not end."""

    @override
    def begin(self, run_slow: RunSlow, nonce: Callable[[], str] = str) -> EndlessExchange:
        return EndlessExchange()


async def test_a_login_that_does_not_end_fails() -> None:
    sent: list[bytes] = []

    async def ask(request: BeginLogin | ContinueLogin) -> LoginReply:
        sent.append(request.sasl_message)
        return LoginReply(request.sasl_message, complete=False, principal="")

    access = EndlessAccess(Mechanism.SCRAM_SHA_512, "alice", "")
    error = await reason(access, ask)
    assert error.failure is CallFailure.REFUSED
    assert "does not end after 8 messages" in str(error)
    assert sent == [b"first" + b"+" * number for number in range(MESSAGES_MAX)]


async def test_without_a_login_the_principal_is_that_of_the_hello(tmp_path: Path) -> None:
    async def ask(_: object) -> LoginReply:
        raise AssertionError("no login is due")

    access = access_of(tmp_path)
    reply = replace(ACCEPTED, features=0, principal="User:certified")
    assert await log_in(BookieId("b"), reply, access, ask) == "User:certified"


async def test_a_lost_connection_is_no_refusal(tmp_path: Path) -> None:
    async def ask(_: object) -> LoginReply:
        raise BookieCallError(BookieId("b"), "gone", failure=CallFailure.LOST)

    error = await reason(access_of(tmp_path), ask)
    assert (error.failure, error.status) == (CallFailure.LOST, None)
