"""Greeting of one client: its hello, and its login if one is due.

Leaves who may do what, and what all logins share, to `bookie.server.access`, and frames to
`bookie.server.connection`.

Invariants: a client is welcome once, after its hello was accepted and its login, if one is due, is
complete. Before that, it can send a hello, the first message of a login, and then the next ones,
each after the answer to the one before. A login ends within LOGIN_S_MAX. A refused login is
answered after a pause, and ends the connection. So does a change of the user's password.

Source: protocol rules 2.3, 12.1 and 12.6.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from bookie.server.access import ANONYMOUS, Principal
from bookie.server.client_logins import FRAME_BYTES_MAX, TOO_MANY
from bookie.server.request_runner import RequestRunner, refusal_frame, reply_frame
from bookie.server.server_context import ServerContext
from bookie.wire.batch import Buffer
from bookie.wire.messages import (
    LOGIN_DUE,
    BeginLogin,
    ContinueLogin,
    Hello,
    LoginReply,
    Request,
    Status,
)
from quire.identity.errors import SaslError, SaslMechanismError
from quire.identity.principal import Principal as ProvedPrincipal
from quire.identity.sasl.sessions import LOGIN_S_MAX, REFUSAL_DELAY_S, SaslSession

EVENT = "login"


@dataclass(frozen=True, slots=True)
class Guest:
    """Who a client is."""

    role: Principal
    """What the credentials of its hello prove."""
    principal: str
    """Principal of its login or certificate (rule 12.1)."""
    names_bookie: bool
    """Whether its hello named this bookie."""
    proved: ProvedPrincipal | None = None
    """What its login proved; None without a login."""


@dataclass(frozen=True, slots=True)
class Door:
    """What a greeting does with a connection."""

    send: Callable[[list[Buffer]], None]
    welcome: Callable[[Guest], None]
    """Takes the client's requests from now on."""
    allow: Callable[[int], None]
    """Takes frames of at most this size."""
    drop: Callable[[str, str], None]
    """Disconnects, with an event and a reason for the log."""
    close: Callable[[], None]
    """Disconnects after everything written was sent."""
    certified: Callable[[], str]
    """Returns the principal of the client's certificate."""
    peer: Callable[[], str]
    address: Callable[[], str]
    """Returns the client's address without the port."""


class _Step(Enum):
    HELLO = auto()
    CREDENTIALS = auto()
    """The hello waits for the check of its credentials."""
    LOGIN = auto()
    """The first message of a login is due."""
    PROOF = auto()
    """The next message of a login is due."""
    BUSY = auto()
    """A message of a login has not been answered, or the client is being refused."""
    OVER = auto()


class Greeting:
    """Greeting of one client, from its connection to its first request."""

    def __init__(self, context: ServerContext, runner: RequestRunner, door: Door) -> None:
        self._context = context
        self._runner = runner
        self._door = door
        self._step = _Step.HELLO
        self._guest = Guest(ANONYMOUS, "", names_bookie=False)
        self._session: SaslSession | None = None
        self._began_s = 0.0

    def take(self, request_id: int, request: Request) -> str | None:
        """Serve a hello or a message of a login; return why anything else may not be sent now."""
        step = self._step
        match request:
            case Hello() if step is _Step.HELLO:
                self._greet(request_id, request)
            case BeginLogin() if step is _Step.LOGIN:
                self._begin(request_id, request)
            case ContinueLogin() if step is _Step.PROOF:
                self._respond(request_id, request.sasl_message)
            case Hello():
                return "a second hello"
            case BeginLogin() | ContinueLogin() if step in (_Step.LOGIN, _Step.PROOF, _Step.BUSY):
                return "a message of a login came out of turn"
            case BeginLogin() | ContinueLogin():
                return "a message of a login came, and no login is due"
            case _ if step in (_Step.HELLO, _Step.CREDENTIALS):
                return f"{type(request).__name__} before the hello"
            case _:
                return f"{type(request).__name__} before the login"
        return None

    def overdue(self, waited_s: float) -> str | None:
        """Return what the client should have done, or None; `waited_s` is the time since it sent
        something.
        """
        match self._step:
            case _Step.HELLO | _Step.CREDENTIALS:
                return "no hello" if waited_s > self._context.limits.hello_deadline_s else None
            case _Step.LOGIN | _Step.PROOF | _Step.BUSY:
                is_late = self._context.now() - self._began_s > LOGIN_S_MAX
                return f"no login within {LOGIN_S_MAX:g} s" if is_late else None
            case _Step.OVER:
                return None

    def forget(self) -> None:
        """Note that the connection is closed."""
        if self._session is not None:
            self._session.forget()

    # -- the hello

    def _greet(self, request_id: int, hello: Hello) -> None:
        if self._context.access.authenticate(hello.credentials) is None:
            self._step = _Step.CREDENTIALS
            self._runner.submit(request_id, 0, partial(self._learn_and_answer, request_id, hello))
        else:
            self._answer_hello(request_id, hello)

    async def _learn_and_answer(self, request_id: int, hello: Hello) -> list[Buffer]:
        await self._context.access.learn()
        self._answer_hello(request_id, hello)
        return []  # the answer is sent

    def _answer_hello(self, request_id: int, hello: Hello) -> None:
        context, certified = self._context, self._door.certified()
        reply, role = context.answer_hello(hello, certified)
        if role is not None and reply.features & LOGIN_DUE:
            logins = context.access.logins
            assert logins is not None, "otherwise no login is due"
            self._session = logins.begin(partial(self._door.drop, EVENT), self._door.address())
            if self._session is None:
                reply, role = context.refuse_hello(hello, Status.UNKNOWN, TOO_MANY), None
        self._door.send([reply_frame(request_id, reply)])
        if role is None:
            self._step = _Step.OVER
            context.counters.hellos_refused += 1
            client, reason = hello.client_name, reply.reason
            audit = context.log.audit
            audit.refused(
                "hello", who="unknown", peer=self._door.peer(), client=client, reason=reason
            )
            self._door.close()
            return
        self._guest = Guest(role, certified, names_bookie=bool(hello.bookie_id))
        if self._session is None:
            self._welcome(self._guest)
        else:
            self._step, self._began_s = _Step.LOGIN, context.now()
            self._door.allow(FRAME_BYTES_MAX)

    def _welcome(self, guest: Guest) -> None:
        self._step = _Step.OVER
        self._door.allow(self._context.limits.frame_bytes_max)
        self._door.welcome(guest)

    # -- the login

    def _begin(self, request_id: int, request: BeginLogin) -> None:
        assert self._session is not None, "a login is due"
        try:
            self._session.begin(request.mechanism)
        except SaslMechanismError as error:
            self._step = _Step.BUSY
            refusing = partial(self._refuse, request_id, str(error), str(error))
            self._runner.submit(request_id, 0, refusing)
        else:
            self._respond(request_id, request.sasl_message)

    def _respond(self, request_id: int, message: bytes) -> None:
        self._step = _Step.BUSY
        self._runner.submit(request_id, 0, partial(self._prove, request_id, message))

    async def _prove(self, request_id: int, message: bytes) -> list[Buffer]:
        session = self._session
        assert session is not None, "a login is due"
        try:
            step = await session.respond(message)
        except SaslError as error:
            return await self._refuse(request_id, error.text, error.why)
        if session.is_gone:
            return []
        if not step.is_complete:
            self._step = _Step.PROOF
            return [
                reply_frame(request_id, LoginReply(step.challenge, complete=False, principal=""))
            ]
        principal = self._context.usable_principal(session.principal)
        reply = LoginReply(step.challenge, complete=True, principal=principal)
        self._door.send([reply_frame(request_id, reply)])
        role, names_bookie = self._guest.role, self._guest.names_bookie
        self._welcome(Guest(role, principal, names_bookie, session.principal))
        return []  # the answer is sent

    async def _refuse(self, request_id: int, text: str, why: str) -> list[Buffer]:
        """Refuse a login after a pause; `why` is for the audit log alone."""
        context = self._context
        context.counters.logins_refused += 1
        context.log.audit.refused(EVENT, who="unknown", peer=self._door.peer(), reason=why)
        await asyncio.sleep(REFUSAL_DELAY_S)
        self._door.send([refusal_frame(request_id, Status.UNAUTHORIZED, text)])
        self._door.close()
        return []  # the answer is sent
