"""Fuzz target for connections of a bookie before and after a login: frames in any order.

Leaves the messages of the mechanisms to `tests.fuzz.sasl_target`, requests after a hello without a
login to `tests.fuzz.server_episode`, and damage to `tests.fuzz.mutations`.

A block is an episode: clients that each choose their frames at random, one after the other. They
send hellos of every kind, right and wrong proofs, proofs of other connections and of other users,
requests and batches, damaged frames, pieces of frames, and several frames at once. Passwords
change, and time passes.

Invariants checked: nothing but a hello and the messages of a login is answered to a client that did
not send the right proof, made for the exchange of this connection, and nothing of it is stored;
after one, the principal is the proved one. A session ends with its password. Nothing is raised out
of the protocol, or on the loop, and no request fails by an error of the bookie. After the end of a
connection no session is left.
"""

import asyncio
import random
from typing import Final

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.server.access import ServerAccess
from bookie.server.client_logins import ClientLogins, LoginMode
from bookie.server.connection import ClientConnection
from bookie.server.server_context import ServerContext
from bookie.server.server_limits import ServerCounters, ServerLimits
from bookie.wire.codec import decode_reply, encode_message
from bookie.wire.frames import Frame, FrameKind, frame_header
from bookie.wire.messages import (
    LOGIN_DUE,
    SASL_BYTES_MAX,
    BeginLogin,
    ContinueLogin,
    Hello,
    HelloReply,
    LoginReply,
    Refused,
    Request,
    Status,
)
from metadata.ids import BookieId
from metadata.security.user_store import UserStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.identity.errors import SaslError
from quire.identity.sasl.credentials import ScramMechanism, salted_password
from quire.identity.sasl.scram import ScramClient
from quire.identity.sasl.sessions import LOGIN_S_MAX
from tests.fuzz.episodes import EpisodeTarget, Visits
from tests.fuzz.findings import Tally, require
from tests.fuzz.login_target import SecretiveAudit
from tests.fuzz.memory_transport import MemoryTransport
from tests.fuzz.mutations import Mutator
from tests.fuzz.wire_targets import BATCHES, REQUESTS
from tests.simulation.loop import simulation_loop
from tests.support.bookie.manual_storage import ManualStorage
from tests.support.security.sasl_parts import CREDENTIALS, ITERATIONS, PASSWORD, SALT, USERS

BOOKIE: Final = BookieId("bookie-a")
CLIENTS_PER_EPISODE: Final = 48
MOVES_MAX: Final = 12
SETTLE_S: Final = 0.001
REFUSAL_S: Final = 0.2
SALTED: Final = {
    mechanism: salted_password(mechanism, PASSWORD, SALT, ITERATIONS)
    for mechanism in ScramMechanism
}
"""The slow part of the proofs, which is the same for each user of the tests."""


async def _no_key() -> bytes | None:
    return None


class _Episode(Visits):
    """One bookie, and its clients."""

    name = "bookie_login"
    visits = CLIENTS_PER_EPISODE

    def __init__(
        self, rng: random.Random, tally: Tally, block: str, data: bytes | None = None
    ) -> None:
        super().__init__(rng, tally, block, data)
        self.log.audit = SecretiveAudit(lambda: 0.0)
        self.mutator = Mutator(rng, [encode_message(request) for request in REQUESTS])
        self.recorded.append(b"n,,n=user,r=abc")
        self.storage: ManualStorage
        self.context: ServerContext
        self.logins: ClientLogins

    async def run(self) -> None:
        """Serve all clients."""
        loop, store = simulation_loop(), MemoryMetadataStore(MemoryMetadataServer())
        users = UserStore(store, self.rng)
        for name in USERS:
            await users.add(name, CREDENTIALS.values())
        self.storage = ManualStorage()
        self.logins = ClientLogins(store, self.rng, LoginMode.REQUIRED)
        await self.logins.start()
        access = ServerAccess(_no_key, loop.time, self.logins)
        limits, counters = ServerLimits(), ServerCounters()
        self.context = ServerContext(
            BOOKIE, self.storage, access, limits, counters, self.log, loop.time
        )
        await self.receive_visits()
        await self.logins.aclose()
        await store.aclose()

    @override
    async def visit(self, stream: bytearray) -> None:
        await _Talk(self, stream).run(self.data)


class _Talk:
    """One client of an episode."""

    def __init__(self, episode: _Episode, stream: bytearray) -> None:
        self._episode = episode
        self._rng = episode.rng
        self._connection = ClientConnection(episode.context)
        self._transport = MemoryTransport(self._connection)
        self._connection.connection_made(self._transport)
        self.stream = stream
        self._last_id = 0
        self._proved = ""
        """The user whose right proof was sent."""

    async def run(self, data: bytes | None) -> None:
        """Talk until the connection ends, or the client leaves."""
        if data is not None:
            await self._send(data)
        else:
            await self._greet()
            for _ in range(1 + int(self._rng.random() * MOVES_MAX)):
                if self._transport.is_closing():
                    break
                await self._move()
        await self._leave()

    async def _move(self) -> None:
        chance = self._rng.random()
        if chance < 0.4 and not self._proved:
            await self._log_in()
        elif chance < 0.5:
            await self._send(self._frame(self._login_message()))
        elif chance < (0.9 if self._proved else 0.6):
            await self._ask()
        else:
            await self._disturb()

    async def _greet(self) -> None:
        """Send a hello, mostly one of a client that logs in."""
        if self._rng.random() < 0.9:
            hello = Hello(BOOKIE, 1, 1, LOGIN_DUE, b"", "client")
        else:
            features = self._rng.choice((0, 1, 2, 3, 2**64 - 1))
            bookie, credentials = self._rng.choice(("", BOOKIE)), self._rng.choice((b"", b"key"))
            hello = Hello(bookie, 1, 1, features, credentials, "client")
        await self._send(self._frame(hello))

    async def _log_in(self) -> None:
        """Log in, with a mistake in every third login."""
        rng, mistake = self._rng, int(self._rng.random() * 12)
        user = rng.choice(USERS) if mistake else "mallory"
        mechanism = rng.choice(tuple(ScramMechanism))

        async def known(_slow: object) -> bytes:
            return SALTED[mechanism]

        nonce = f"{rng.getrandbits(64):x}"
        exchange = ScramClient(mechanism, user, PASSWORD, nonce, known)  # type: ignore[arg-type]
        begin = exchange.begin()
        answer = await self._answered(BeginLogin(mechanism.value, begin))
        self._episode.record(begin)
        if answer is None:
            return
        try:
            right = await exchange.respond(answer.sasl_message)
        except SaslError:
            return  # it is the answer to an earlier message
        assert right is not None
        message = right
        if mistake == 1:
            message = bytes(self._episode.mutator.mutate(right))[:SASL_BYTES_MAX]
        elif mistake == 2:
            message = rng.choice(self._episode.recorded)
        elif mistake == 3:
            self._revoke(user)
        self._episode.record(right)
        if message == right and mistake not in (0, 3):
            self._proved = self._proved or user
        self._episode.tally.accepted += 1
        await self._answered(ContinueLogin(message))

    def _login_message(self) -> Request:
        """Return any message of a login."""
        rng = self._rng
        message = rng.choice(self._episode.recorded)
        if rng.random() < 0.7:
            message = bytes(self._episode.mutator.mutate(message))[:SASL_BYTES_MAX]
        if rng.random() < 0.5:
            return ContinueLogin(message)
        names = (
            *(mechanism.value for mechanism in ScramMechanism),
            "PLAIN",
            "OAUTHBEARER",
            "",
            "x" * 1_024,
        )
        return BeginLogin(rng.choice(names), message)

    async def _ask(self) -> None:
        """Send requests and batches, several at once."""
        frames = []
        for _ in range(1 + int(self._rng.random() * 3)):
            if self._rng.random() < 0.3:
                body = self._rng.choice(BATCHES)
                frames.append(frame_header(FrameKind.ADD, self._next_id(), len(body)) + body)
            else:
                frames.append(self._frame(self._rng.choice(REQUESTS)))
        await self._send(b"".join(frames))

    async def _disturb(self) -> None:
        rng = self._rng
        match int(rng.random() * 6):
            case 0:
                self._revoke(rng.choice(USERS))
            case 1:
                await asyncio.sleep(rng.random() * LOGIN_S_MAX)
                self._connection.check_deadlines(simulation_loop().time())
            case 2:
                await self._send(rng.randbytes(1 + int(rng.random() * 60)))
            case 3:
                size = rng.choice((0, 8 * 1024, 8 * 1024 + 1, 2**16, 2**24, 2**32 - 1))
                header = bytearray(frame_header(FrameKind.REQUEST, self._next_id(), 0))
                header[8:12] = size.to_bytes(4, "little")
                await self._send(bytes(header) + rng.randbytes(9))
            case 4:
                frame = self._frame(self._login_message())
                await self._send(frame[: int(rng.random() * len(frame))])
            case _:
                body = bytes(self._episode.mutator.mutate(encode_message(self._login_message())))
                await self._send(frame_header(FrameKind.REQUEST, 9, len(body)) + body)

    def _revoke(self, user: str) -> None:
        """Report that the password of a user changed, as the table of users does."""
        sessions, session = self._episode.logins._sessions, self._connection._greeting._session
        assert sessions is not None
        is_own = session is not None and session.is_done and session.principal.name == user
        sessions.revoke(user, [mechanism.value for mechanism in ScramMechanism])
        require(not is_own or self._transport.is_closing(), "a session ends with its password")

    def _frame(self, request: Request) -> bytes:
        body = encode_message(request)
        return frame_header(FrameKind.REQUEST, self._next_id(), len(body)) + body

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def _answered(self, request: Request) -> LoginReply | None:
        """Send a message of a login; return its answer if it is accepted."""
        for frame in await self._send(self._frame(request)):
            if frame.request_id == self._last_id and frame.kind is FrameKind.REPLY:
                reply = decode_reply(frame.body)
                return reply if isinstance(reply, LoginReply) else None
        return None

    async def _send(self, data: bytes) -> list[Frame]:
        """Deliver bytes in pieces; check and return the answers."""
        self.stream += data
        self._episode.tally.frames += 1
        stored = self._episode.storage.add_count
        await self._transport.deliver(data, self._rng)
        await asyncio.sleep(SETTLE_S if self._proved else REFUSAL_S)
        frames = list(self._transport.frames)
        self._transport.frames.clear()
        for frame in frames:
            self._check(frame)
        is_silent = self._episode.storage.add_count == stored
        require(self._proved or is_silent, "an add is stored without a login")
        return frames

    def _check(self, frame: Frame) -> None:
        """Check an answer against what the client has proved."""
        reply = decode_reply(frame.body) if frame.kind is FrameKind.REPLY else None
        match reply:
            case HelloReply(status=status, features=features):
                is_due = bool(features & LOGIN_DUE)
                require(status is not Status.OK or is_due, "a hello without a login is accepted")
            case LoginReply(complete=complete):
                require(not complete or self._proved, "a login is complete without a proof")
            case Refused(status=Status.UNAUTHORIZED):
                return
            case _:
                require(self._proved, "a request is served without a login")
        session = self._connection._greeting._session
        if self._proved and session is not None and session.is_done:
            require(session.principal.name == self._proved, "the principal is the proved one")

    async def _leave(self) -> None:
        context, sessions = self._episode.context, self._episode.logins._sessions
        self._transport.close()
        await asyncio.sleep(REFUSAL_S)
        assert sessions is not None
        require(self._transport.is_lost, "the connection ends")
        require(not sessions.count, "a session is left")
        require(not context.connections, "a connection is left")
        require(not context.counters.requests_failed, "no request fails by our own error")


BOOKIE_LOGIN: Final = EpisodeTarget(_Episode.name, 0.25, _Episode)
