"""A bookie that needs logins serves a client only once it has proved who it is (rule 12.6)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bookie.server import greeting
from bookie.server.client_logins import LOGIN_NEEDED, LoginMode
from bookie.wire.codec import encode_message
from bookie.wire.frames import FrameKind, frame_header
from bookie.wire.messages import (
    LOGIN_DUE,
    BeginLogin,
    ContinueLogin,
    LoginReply,
    Ping,
    Request,
    Status,
)
from quire.identity.sasl.mechanism import REFUSED, Mechanism
from quire.identity.sasl.sessions import REFUSAL_DELAY_S
from tests.support.bookie.login_world import (
    BEGIN,
    PASSWORD,
    SCRAM,
    LoginWorld,
    login_world,
    refused,
    stores,
)
from tests.support.bookie.running_server import BOOKIE
from tests.support.bookie.wire_client import batch_of, hello
from tests.until import until


@pytest.fixture
async def world() -> AsyncIterator[LoginWorld]:
    async with login_world() as made:
        yield made


@pytest.fixture
async def optional() -> AsyncIterator[LoginWorld]:
    async with login_world(LoginMode.OPTIONAL) as made:
        yield made


# -- who is served


@pytest.mark.parametrize("mechanism", [SCRAM, Mechanism.SCRAM_SHA_512])
async def test_a_user_logs_in_and_is_served(world: LoginWorld, mechanism: Mechanism) -> None:
    client, reply = await world.greet()
    assert (reply.status, reply.features) == (Status.OK, LOGIN_DUE)
    answer = await world.log_in(client, "alice", PASSWORD, mechanism)
    assert isinstance(answer, LoginReply)
    assert (answer.complete, answer.principal) == (True, "")
    assert await stores(client)


async def test_a_client_that_does_not_log_in_is_refused_with_what_to_do(world: LoginWorld) -> None:
    for features in (0, 2**64 - 1 - LOGIN_DUE):
        client, reply = await world.greet(features)
        assert (reply.status, reply.reason) == (Status.UNAUTHORIZED, LOGIN_NEEDED)
        assert "[sasl]" in reply.reason
        assert await client.is_closed_by_peer()
    assert world.served.counters.hellos_refused == 2


async def test_the_key_of_repair_is_no_login(world: LoginWorld) -> None:
    world.served.keys.key = bytes(32)
    _, reply = await world.greet(0, bytes(32))
    assert (reply.status, reply.reason) == (Status.UNAUTHORIZED, LOGIN_NEEDED)
    client, reply = await world.greet(LOGIN_DUE, bytes(32))
    assert reply.status is Status.OK
    client.send_request(Ping())
    assert await client.is_closed_by_peer()


async def test_a_bookie_with_optional_logins_serves_both(optional: LoginWorld) -> None:
    without, reply = await optional.greet(0)
    assert (reply.status, reply.features) == (Status.OK, 0)
    assert await stores(without)
    client = await optional.logged_in("alice")
    assert await stores(client, 1)
    promised, _ = await optional.greet()
    promised.send_request(Ping())
    assert await promised.is_closed_by_peer(), "a client that said that it logs in does"


async def test_a_bookie_without_logins_answers_so(world: LoginWorld) -> None:
    world.served.context.access.logins = None
    _, reply = await world.greet(0)
    assert (reply.status, reply.features) == (Status.OK, 0)
    client, reply = await world.greet(2**64 - 1)
    assert (reply.status, reply.features) == (Status.OK, 0)
    assert await stores(client)


# -- what is refused


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("mallory", PASSWORD), ("alice", "")]
)
async def test_wrong_passwords_and_unknown_users_are_refused_alike(
    world: LoginWorld, user: str, password: str
) -> None:
    client, _ = await world.greet()
    began_s = asyncio.get_running_loop().time()
    assert refused(await world.log_in(client, user, password)) == REFUSED
    assert asyncio.get_running_loop().time() - began_s >= REFUSAL_DELAY_S * 0.9
    assert await client.is_closed_by_peer()
    assert world.served.counters.logins_refused == 1


async def test_an_unknown_user_has_the_same_salt_each_time(world: LoginWorld) -> None:
    salts = set()
    for _ in range(2):
        client, _ = await world.greet()
        answer = await client.request(BeginLogin(SCRAM, b"n,,n=mallory,r=abc"))
        assert isinstance(answer, LoginReply)
        salts.add(answer.sasl_message.partition(b",")[2])
    assert len(salts) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "", "scram-sha-256"])
async def test_only_mechanisms_that_send_no_password_are_taken(
    world: LoginWorld, mechanism: str
) -> None:
    client, _ = await world.greet()
    answer = await client.request(BeginLogin(mechanism, b"\0alice\0pencil"))
    assert "SCRAM-SHA-512 or SCRAM-SHA-256" in refused(answer)
    assert await client.is_closed_by_peer()


async def test_a_nonce_of_the_clients_choice_is_refused(world: LoginWorld) -> None:
    client, _ = await world.greet()
    exchange = world.exchange("alice")
    answer = await client.request(BeginLogin(SCRAM, exchange.begin()))
    assert isinstance(answer, LoginReply)
    first, _, rest = answer.sasl_message.partition(b",")
    proof = await exchange.respond(first + b"x," + rest)
    assert proof is not None
    assert refused(await client.request(ContinueLogin(proof))) == REFUSED


async def test_a_proof_is_worth_nothing_on_another_connection(world: LoginWorld) -> None:
    first, _ = await world.greet()
    exchange = world.exchange("alice")
    begin = exchange.begin()
    answer = await first.request(BeginLogin(SCRAM, begin))
    assert isinstance(answer, LoginReply)
    proof = await exchange.respond(answer.sasl_message)
    assert proof is not None
    assert isinstance(await first.request(ContinueLogin(proof)), LoginReply)
    second, _ = await world.greet()
    assert isinstance(await second.request(BeginLogin(SCRAM, begin)), LoginReply)
    assert refused(await second.request(ContinueLogin(proof))) == REFUSED


@pytest.mark.parametrize("message", [b"", b"n,,n=alice", b"\xff", b"y" * 4_096])
async def test_a_message_of_a_wrong_form_is_refused(world: LoginWorld, message: bytes) -> None:
    client, _ = await world.greet()
    assert refused(await client.request(BeginLogin(SCRAM, message)))
    assert await client.is_closed_by_peer()


# -- order


@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize(
    "request_",
    [Ping(), hello(BOOKIE), ContinueLogin(b"c=biws"), BEGIN],
    ids=lambda each: type(each).__name__,
)
async def test_nothing_but_the_next_message_is_taken_before_the_login(
    world: LoginWorld, request_: Request, begun: int
) -> None:
    if isinstance(request_, BeginLogin if not begun else ContinueLogin):
        return  # it is the next one
    client, _ = await world.greet()
    if begun:
        assert isinstance(await client.request(BEGIN), LoginReply)
    client.send_request(request_)
    assert await client.is_closed_by_peer()
    assert not client.frames
    assert world.served.counters.bad_frames == 1


async def test_adds_before_the_login_are_not_stored(world: LoginWorld) -> None:
    client, _ = await world.greet()
    client.send_add(batch_of(7, 0))
    assert await client.is_closed_by_peer()
    assert not world.served.storage.add_count


@pytest.mark.parametrize("request_", [BEGIN, ContinueLogin(b"c=biws"), hello(BOOKIE)])
async def test_a_login_is_not_taken_twice(world: LoginWorld, request_: Request) -> None:
    client = await world.logged_in("alice")
    client.send_request(request_)
    assert await client.is_closed_by_peer()


async def test_a_login_that_is_not_due_is_not_taken(optional: LoginWorld) -> None:
    client, _ = await optional.greet(0)
    client.send_request(BEGIN)
    assert await client.is_closed_by_peer()
    client = await optional.connect()
    client.send_request(BEGIN)
    assert await client.is_closed_by_peer(), "before the hello"


async def test_a_message_must_wait_for_the_answer_to_the_one_before(world: LoginWorld) -> None:
    client, _ = await world.greet()
    bodies = [encode_message(each) for each in (BEGIN, ContinueLogin(b"c=biws"))]
    frames = [frame_header(FrameKind.REQUEST, 9, len(body)) + body for body in bodies]
    client.send(b"".join(frames))
    assert await client.is_closed_by_peer()
    assert world.served.counters.bad_frames == 1


async def test_nothing_is_taken_while_a_client_is_being_refused(
    world: LoginWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greeting, "REFUSAL_DELAY_S", 60.0)
    client, _ = await world.greet()
    client.send_request(BeginLogin("PLAIN", b""))
    await until(lambda: world.served.counters.logins_refused == 1)
    client.send_request(BEGIN)
    assert await client.is_closed_by_peer()
