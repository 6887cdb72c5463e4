"""Steps of a greeting: what is taken at each, deadlines, and what the connection learns (12.6)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from bookie.server import client_logins
from bookie.server.access import ANONYMOUS, REPAIR
from bookie.server.client_logins import FRAME_BYTES_MAX as LOGIN_BYTES_MAX
from bookie.server.client_logins import TOO_MANY, LoginMode, make_logins
from bookie.server.greeting import Door, Greeting, Guest
from bookie.server.request_runner import RequestRunner
from bookie.server.server_context import ServerContext
from bookie.wire.batch import Buffer
from bookie.wire.codec import decode_reply
from bookie.wire.frames import FRAME_BYTES_MAX, FrameAssembler
from bookie.wire.messages import (
    LOGIN_DUE,
    BeginLogin,
    ContinueLogin,
    HelloReply,
    LoginReply,
    Ping,
    Refused,
    Reply,
    Request,
    Status,
)
from quire.identity.sasl.sessions import LOGIN_S_MAX
from tests.support.bookie.login_world import BEGIN, SCRAM, LoginWorld, login_world
from tests.support.bookie.roles_setting import RolesSetting
from tests.support.bookie.running_server import BOOKIE
from tests.support.bookie.wire_client import hello
from tests.until import until

NEXT = ContinueLogin(b"c=biws")
HELLO = hello(BOOKIE, features=LOGIN_DUE)
LEARNING = hello(BOOKIE, features=LOGIN_DUE, credentials=bytes(32))


@dataclass
class Entrance:
    """A greeting without a socket, and what it did with its connection."""

    world: LoginWorld
    now_s: float = 100.0
    sent: list[Reply] = field(default_factory=list)
    done: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        of = self.world.served.context
        parts = of.bookie_id, of.storage, of.access, of.limits, of.counters, of.log
        context = ServerContext(*parts, lambda: self.now_s, of.authorizer)
        room = context.room_for(lambda: "client")
        self._runner = RequestRunner(
            context.limits, context.log, context.counters, lambda sent, _: self._send(sent), room
        )
        door = Door(
            self._send,
            self.done.append,
            self.done.append,
            lambda event, reason: self.done.append((event, reason)),
            lambda: self.done.append("closed"),
            lambda: "User:certified",
            lambda: "peer:1",
            lambda: "peer",
        )
        self.greeting = Greeting(context, self._runner, door)

    def _send(self, frames: list[Buffer]) -> None:
        assembler, data = FrameAssembler(FRAME_BYTES_MAX), b"".join(map(bytes, frames))
        while data:
            room = assembler.get_buffer()
            count = min(len(room), len(data))
            room[:count], data = data[:count], data[count:]
            found = assembler.buffer_updated(count)
            self.sent += [decode_reply(frame.body) for frame in found]

    async def answer(self, request: Request) -> Reply:
        """Send a message and wait for its answer."""
        before = len(self.sent)
        assert self.greeting.take(1, request) is None
        await until(lambda: len(self.sent) > before)
        return self.sent[-1]

    async def log_in(self) -> None:
        """Log in as alice after the hello."""
        exchange = self.world.exchange("alice")
        reply = await self.answer(BeginLogin(SCRAM, exchange.begin()))
        assert isinstance(reply, LoginReply)
        proof = await exchange.respond(reply.sasl_message)
        assert proof is not None
        assert isinstance(await self.answer(ContinueLogin(proof)), LoginReply)


@pytest.fixture
async def world() -> AsyncIterator[LoginWorld]:
    async with login_world() as made:
        yield made


@asynccontextmanager
async def at(step: str, world: LoginWorld) -> AsyncIterator[Entrance]:
    """Return a greeting that is at a step."""
    entrance = Entrance(world)
    greeting = entrance.greeting
    if step == "credentials":
        world.served.keys.answers.clear()
        greeting.take(1, LEARNING)
    elif step != "hello":
        greeting.take(1, HELLO)
    if step == "busy":
        greeting.take(1, BEGIN)
    elif step == "proof":
        await entrance.answer(BEGIN)
    elif step == "over":
        await entrance.log_in()
    yield entrance
    world.served.keys.answers.set()
    entrance._runner.cancel()


# -- what is taken

OUT_OF_TURN = "a message of a login came out of turn"
NOT_DUE = "a message of a login came, and no login is due"
REVOKED = "the password of 'alice' was changed or removed"
BEFORE_HELLO = "Ping before the hello"
BEFORE_LOGIN = "Ping before the login"
SECOND = "a second hello"
TAKEN = {
    "hello": (None, NOT_DUE, NOT_DUE, BEFORE_HELLO),
    "credentials": (SECOND, NOT_DUE, NOT_DUE, BEFORE_HELLO),
    "login": (SECOND, None, OUT_OF_TURN, BEFORE_LOGIN),
    "proof": (SECOND, OUT_OF_TURN, None, BEFORE_LOGIN),
    "busy": (SECOND, OUT_OF_TURN, OUT_OF_TURN, BEFORE_LOGIN),
    "over": (SECOND, NOT_DUE, NOT_DUE, BEFORE_LOGIN),
}


@pytest.mark.parametrize("number", range(4), ids=["hello", "begin", "next", "ping"])
@pytest.mark.parametrize("step", TAKEN)
async def test_only_the_next_message_is_taken(world: LoginWorld, step: str, number: int) -> None:
    async with at(step, world) as entrance:
        message = (HELLO, BEGIN, NEXT, Ping())[number]
        assert entrance.greeting.take(2, message) == TAKEN[step][number]


# -- deadlines


@pytest.mark.parametrize("step", TAKEN)
async def test_each_step_has_its_deadline(world: LoginWorld, step: str) -> None:
    hello_s = world.served.context.limits.hello_deadline_s
    async with at(step, world) as entrance:
        overdue = entrance.greeting.overdue
        of_hello = "no hello" if step in ("hello", "credentials") else None
        assert overdue(hello_s) is None
        assert overdue(hello_s + 1.0) == of_hello
        entrance.now_s += LOGIN_S_MAX
        assert overdue(0.0) is None
        entrance.now_s += 0.5
        of_login = (
            f"no login within {LOGIN_S_MAX:g} s" if step in ("login", "proof", "busy") else None
        )
        assert overdue(0.0) == of_login


# -- what the connection learns


async def test_a_login_changes_the_largest_frame_and_names_the_user() -> None:
    roles = RolesSetting()
    await roles.authorizer.start()
    async with (
        login_world(authorizer=roles.authorizer) as world,
        at("over", world) as entrance,
    ):
        *allowed, guest = entrance.done
        assert allowed == [LOGIN_BYTES_MAX, world.served.context.limits.frame_bytes_max]
        assert isinstance(guest, Guest)
        assert (guest.role, guest.principal, guest.names_bookie) == (ANONYMOUS, "User:alice", True)
        assert guest.proved is not None
        assert guest.proved.name == "alice"
        first, challenge, last = entrance.sent
        assert isinstance(first, HelloReply)
        assert isinstance(challenge, LoginReply)
        assert isinstance(last, LoginReply)
        assert (challenge.complete, challenge.principal) == (False, "")
        assert (last.complete, last.principal) == (True, "User:alice")
    await roles.authorizer.aclose()


@pytest.mark.parametrize("bookie_id", [BOOKIE, ""])
async def test_a_client_without_a_login_is_welcome_after_its_hello(bookie_id: str) -> None:
    async with login_world(LoginMode.OPTIONAL) as world, at("hello", world) as entrance:
        await entrance.answer(hello(bookie_id))
        frame_bytes_max = world.served.context.limits.frame_bytes_max
        guest = Guest(ANONYMOUS, "User:certified", names_bookie=bool(bookie_id))
        assert entrance.done == [frame_bytes_max, guest]


async def test_credentials_are_learned_before_the_answer(world: LoginWorld) -> None:
    world.served.keys.key = bytes(32)
    async with at("credentials", world) as entrance:
        assert not entrance.sent
        world.served.keys.answers.set()
        await until(lambda: bool(entrance.sent))
        await entrance.log_in()
        guest = entrance.done[-1]
        assert isinstance(guest, Guest)
        assert guest.role is REPAIR


async def test_a_refused_hello_closes_and_begins_nothing(world: LoginWorld) -> None:
    async with at("hello", world) as entrance:
        reply = await entrance.answer(hello("another", features=LOGIN_DUE))
        assert isinstance(reply, HelloReply)
        assert reply.status is Status.WRONG_BOOKIE
        assert entrance.done == ["closed"]
        assert world.served.counters.hellos_refused == 1
        assert entrance.greeting.take(2, HELLO) == SECOND
        sessions = world.logins._sessions
        assert sessions is not None
        assert not sessions.count


async def test_too_many_logins_refuse_the_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_logins, "UNDER_WAY_MAX", 1)
    async with login_world() as world, at("login", world) as first, at("login", world) as second:
        reply = second.sent[-1]
        assert isinstance(reply, HelloReply)
        assert (reply.status, reply.reason) == (Status.UNKNOWN, TOO_MANY)
        assert second.done == ["closed"]
        first.greeting.forget()
        async with at("login", world) as third:
            assert third.done == [LOGIN_BYTES_MAX]


# -- refusals and ends


@pytest.mark.parametrize("begin", [BeginLogin("PLAIN", b""), BeginLogin(SCRAM, b"")])
async def test_a_refused_login_is_answered_once_and_closes(
    world: LoginWorld, begin: BeginLogin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookie.server.greeting.REFUSAL_DELAY_S", 0.01)
    async with at("login", world) as entrance:
        assert entrance.greeting.take(1, begin) is None
        assert entrance.greeting.take(2, BEGIN) == OUT_OF_TURN
        await until(lambda: "closed" in entrance.done)
        reply = entrance.sent[-1]
        assert isinstance(reply, Refused)
        assert reply.status is Status.UNAUTHORIZED
        assert entrance.done == [LOGIN_BYTES_MAX, "closed"]
        assert len(entrance.sent) == 2
        assert world.served.counters.logins_refused == 1


@pytest.mark.parametrize("step", TAKEN)
async def test_no_session_is_left_of_a_closed_connection(world: LoginWorld, step: str) -> None:
    sessions = world.logins._sessions
    assert sessions is not None
    async with at(step, world) as entrance:
        entrance.greeting.forget()
        assert not sessions.count


async def test_a_closed_connection_gets_no_answer(world: LoginWorld) -> None:
    async with at("login", world) as entrance:
        entrance.greeting.take(1, BEGIN)
        entrance.greeting.forget()
        await until(lambda: entrance._runner.is_idle)
        assert len(entrance.sent) == 1, "the answer to the hello"


async def test_the_end_of_a_user_ends_its_connection_with_the_reason(world: LoginWorld) -> None:
    async with at("over", world) as entrance:
        count = len(entrance.done)
        await world.users.remove("alice")
        await until(lambda: len(entrance.done) > count)
        assert entrance.done[count:] == [
            ("login", "the password of 'alice' was changed or removed")
        ]


async def test_closed_logins_do_not_follow_the_users(world: LoginWorld) -> None:
    users = world.logins._users
    async with at("over", world) as entrance:
        count = len(entrance.done)
        await world.logins.aclose()
        await world.users.remove("alice")
        for _ in range(20):
            await asyncio.sleep(0)
        assert "alice" in users.users
        users._callbacks.notify("alice", users.users["alice"], None)
        assert entrance.done[count:] == []


async def test_only_a_bookie_with_logins_makes_them(world: LoginWorld) -> None:
    store, rng = world.logins._store, world.logins._rng
    assert make_logins(store, rng, LoginMode.OFF) is None
    for mode in (LoginMode.OPTIONAL, LoginMode.REQUIRED):
        made = make_logins(store, rng, mode)
        assert made is not None
        assert made.is_required == (mode is LoginMode.REQUIRED)
