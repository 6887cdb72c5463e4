"""Logins at a bookie: limits, users that change, roles of users, and the audit log (12.6)."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bookie.server import client_logins, greeting
from bookie.server.client_logins import FRAME_BYTES_MAX
from bookie.wire.frames import FrameKind, frame_header
from bookie.wire.messages import (
    BeginLogin,
    ContinueLogin,
    LoginReply,
    Refused,
    Status,
)
from quire.identity.sasl.mechanism import REFUSED
from quire.identity.sasl.sessions import CHANGED
from quire.server.server_log import AUDIT_LOGGER, JsonFormatter
from tests.support.bookie.login_world import (
    BEGIN,
    PATIENT,
    SCRAM,
    LoginWorld,
    login_world,
    refused,
    stores,
)
from tests.support.bookie.roles_setting import RolesSetting
from tests.support.bookie.wire_client import batch_of
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.support.sample_ledgers import open_ledger
from tests.until import until


@pytest.fixture
async def world() -> AsyncIterator[LoginWorld]:
    async with login_world() as made:
        yield made


# -- limits


async def test_a_large_frame_is_refused_before_the_login_and_taken_after_it(
    world: LoginWorld,
) -> None:
    client, _ = await world.greet()
    client.send(frame_header(FrameKind.REQUEST, 5, FRAME_BYTES_MAX + 1))
    assert await client.is_closed_by_peer()
    assert world.served.counters.bad_frames == 1
    client = await world.logged_in("alice")
    client.attach(7)
    assert await client.add(batch_of(7, 0, [bytes(2**20)])) is Status.OK


async def test_a_login_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "LOGIN_S_MAX", 0.2)
    async with login_world() as world:
        done = await world.logged_in("alice")
        silent, begun = (await world.greet())[0], (await world.greet())[0]
        await begun.request(BEGIN)
        assert await silent.is_closed_by_peer()
        assert await begun.is_closed_by_peer()
        assert await done.is_offered()


async def test_the_number_of_logins_under_way_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_logins, "UNDER_WAY_MAX", 2)
    async with login_world() as world:
        sessions = world.logins._sessions
        assert sessions is not None
        (first, _), (second, _) = await world.greet(), await world.greet()
        third, reply = await world.greet()
        assert reply.status is Status.UNKNOWN
        assert "try again" in reply.reason
        assert await third.is_closed_by_peer()
        await world.log_in(first, "alice")
        second.abort()
        await until(lambda: sessions.count == 1)
        assert await stores(await world.logged_in("bob"))


async def test_one_address_does_not_use_all_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_logins, "UNDER_WAY_MAX", 12)
    async with login_world() as world:
        replies = [(await world.greet())[1] for _ in range(4)]
        assert [reply.status for reply in replies] == [Status.OK] * 3 + [Status.UNKNOWN]


async def test_no_session_is_left_behind(world: LoginWorld) -> None:
    sessions = world.logins._sessions
    assert sessions is not None
    done, (begun, _), (wrong, _) = (
        await world.logged_in("alice"),
        await world.greet(),
        await world.greet(),
    )
    await begun.request(BEGIN)
    await world.log_in(wrong, "alice", "wrong")
    for client in (done, begun, wrong):
        client.abort()
    await until(lambda: not sessions.count)


# -- users that change


async def test_a_session_ends_with_its_user(world: LoginWorld) -> None:
    alice, bob = await world.logged_in("alice"), await world.logged_in("bob")
    await world.users.remove("alice")
    assert await alice.is_closed_by_peer()
    assert await bob.is_offered()
    client, _ = await world.greet()
    assert refused(await world.log_in(client, "alice")) == REFUSED


async def test_a_session_ends_with_its_password(world: LoginWorld) -> None:
    alice = await world.logged_in("alice")
    await world.change_password("alice", "another")
    assert await alice.is_closed_by_peer()
    await world.logged_in("alice", "another")


async def test_a_password_that_changes_during_the_login_proves_nothing(world: LoginWorld) -> None:
    client, _ = await world.greet()
    exchange = world.exchange("alice")
    answer = await client.request(BeginLogin(SCRAM, exchange.begin()))
    assert isinstance(answer, LoginReply)
    await world.change_password("alice", "another")
    proof = await exchange.respond(answer.sasl_message)
    assert proof is not None
    assert refused(await client.request(ContinueLogin(proof))) == CHANGED


async def test_the_last_known_users_hold_while_the_metadata_service_is_away() -> None:
    faults = ScriptedFaults()
    async with login_world(faults=faults) as world:
        faults.is_away = True
        assert await stores(await world.logged_in("alice"))
        client, _ = await world.greet()
        assert refused(await world.log_in(client, "alice", "wrong")) == REFUSED
        faults.is_away = False


# -- roles


async def test_the_user_of_a_login_has_its_roles() -> None:
    roles = RolesSetting()
    await roles.create(replace(open_ledger("abc"), owner="User:alice"))
    await roles.create(replace(open_ledger("abc", ledger_id=8), owner="User:bob"))
    await roles.authorizer.start()
    roles.authorizer.next_principal = "User:bob"  # of the certificate, which the login replaces
    async with login_world(authorizer=roles.authorizer) as world:
        client, reply = await world.greet()
        assert reply.principal == ""
        answer = await world.log_in(client, "alice")
        assert isinstance(answer, LoginReply)
        assert answer.principal == "User:alice"
        assert await stores(client)
        client.attach(8)
        request_id = client.send_add(batch_of(8, 0))
        refusal = await client.answer(request_id)
        assert isinstance(refusal, Refused)
        assert "User:alice may not append to ledger 8" in refusal.reason
    await roles.authorizer.aclose()


async def test_a_user_that_is_named_as_those_that_proved_nothing_has_no_principal() -> None:
    roles = RolesSetting()
    await roles.authorizer.start()
    async with login_world(authorizer=roles.authorizer) as world:
        await world.add_user("ANONYMOUS")
        client, _ = await world.greet()
        answer = await world.log_in(client, "ANONYMOUS")
        assert isinstance(answer, LoginReply)
        assert (answer.complete, answer.principal) == (True, "")
    await roles.authorizer.aclose()


# -- what operators see


async def test_refusals_are_in_the_audit_log(
    world: LoginWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        client, _ = await world.greet()
        await world.log_in(client, "alice", "guess")
        client, _ = await world.greet()
        await client.request(BeginLogin("PLAIN", b"\0alice\0guess"))
        await world.greet(0)
    lines = [
        JsonFormatter().format(record) for record in caplog.records if record.name == AUDIT_LOGGER
    ]
    found = [(each["act"], each["result"], each["who"]) for each in map(json.loads, lines)]
    assert found == [
        ("login", "refused", "unknown"),
        ("login", "refused", "unknown"),
        ("hello", "refused", "unknown"),
    ]
    assert "the password of 'alice' is wrong" in lines[0]
    assert "guess" not in "".join(lines)


async def test_a_closing_bookie_does_not_wait_for_logins() -> None:
    async with login_world(limits=replace(PATIENT, drain_timeout_s=30.0)) as world:
        client, _ = await world.greet()
        assert isinstance(await client.request(BEGIN), LoginReply)
        began_s = asyncio.get_running_loop().time()
        await world.served.server.close()
        assert asyncio.get_running_loop().time() - began_s < 15.0
