"""Fuzz target for connections of a broker before and after a login: frames in any order.

Leaves the messages of the mechanisms to `tests.fuzz.sasl_target`, and damage to
`tests.fuzz.mutations`.

A block is an episode: clients that each choose their frames at random, one after the other. They
send right and wrong handshakes, proofs, proofs of other connections and of other users, requests of
every API, damaged frames, pieces of frames, and several frames at once. Passwords change, and time
passes.

Invariants checked: no API but ApiVersions is served to a client that did not send the right proof,
made for the exchange of this connection; after one, the principal is the proved one. Nothing is
raised out of the protocol, or on the loop, and no request fails by an error of the broker. Answers
before a login, and requests that wait, are bounded. After the end of a connection no login, task
or byte of it is left.
"""

import asyncio
import contextlib
import random
import re
from typing import Final

from typing_extensions import override  # `typing` has it from 3.12 on

from broker_layer.kafka.messages import SaslAuthenticateResponse, decode_response
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.exchange import Exchange
from quire.identity.errors import SaslError
from quire.identity.sasl.credentials import ScramMechanism, salted_password
from quire.identity.sasl.mechanism import Mechanism, SaslClientExchange
from quire.identity.sasl.plain import PlainClient, parse_plain
from quire.identity.sasl.scram import ScramClient
from quire.identity.sasl.sessions import LOGIN_S_MAX
from tests.fuzz.episodes import EpisodeTarget, QuietAudit, Visits
from tests.fuzz.findings import Tally, require
from tests.fuzz.kafka_targets import request_samples
from tests.fuzz.mutations import Mutator
from tests.support.broker_layer.login_setting import (
    KafkaTransport,
    LoginClient,
    LoginSetting,
    authenticate_frame,
    handshake_frame,
    request_frame,
)
from tests.support.security.sasl_parts import ITERATIONS, PASSWORD, SALT, USERS

CLIENTS_PER_EPISODE: Final = 64
MOVES_MAX: Final = 24
TURNS: Final = 5
"""Turns of the loop in which a frame is answered, except a refusal."""
REFUSAL_S: Final = 0.2
SENT_BYTES_MAX: Final = 4 * 1024
"""Bound of the answers to one delivery before a login."""
SESSION_MS: Final = 60_000
PLAIN_SHARE: Final = 0.04
"""Part of right proofs that use PLAIN: the check of a password takes 4 ms."""
SCRAM: Final = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
VERSIONS: Final = request_frame(ApiKey.API_VERSIONS, 0)
REQUESTS: Final = tuple(len(sample).to_bytes(4) + sample for sample in request_samples())
SALTED: Final = {
    mechanism.value: salted_password(ScramMechanism(mechanism.value), PASSWORD, SALT, ITERATIONS)
    for mechanism in SCRAM
}
"""The slow part of the proofs, which is the same for each user of the tests."""


QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")


class SecretiveAudit(QuietAudit):
    """Checks that no secret would be written."""

    @override
    def refused(self, act: str, *, who: str, peer: str, **values: object) -> None:
        super().refused(act, who=who, peer=peer, **values)
        # A damaged message may have the password in the place of the user's name, which is quoted.
        logged = QUOTED.sub("", f"{values.get('reason')}")
        require(PASSWORD not in logged, "no secret is logged")


class _Episode(Visits):
    """One broker, and its clients."""

    name = "login"
    visits = CLIENTS_PER_EPISODE

    def __init__(
        self, rng: random.Random, tally: Tally, block: str, data: bytes | None = None
    ) -> None:
        super().__init__(rng, tally, block, data)
        self.log.audit = SecretiveAudit(lambda: 0.0)
        self.setting = LoginSetting(session_ms_max=SESSION_MS, log=self.log)
        self.setting.on_served = self._check_served
        self.mutator = Mutator(rng, (*REQUESTS, VERSIONS, handshake_frame(SCRAM[0])))
        self.talks: dict[int, _Talk] = {}

    async def run(self) -> None:
        """Serve all clients."""
        await self.receive_visits()

    @override
    async def visit(self, stream: bytearray) -> None:
        await _Talk(self, stream).run(self.data)
        self.talks.clear()

    def _check_served(self, exchange: Exchange) -> None:
        talk = self.talks[exchange.requester.connection_id]
        require(talk.proved, "an API is served without a login")
        require(exchange.requester.principal.name == talk.proved, "the principal is the proved one")
        require(self.setting.now_s < talk.ends_s, "an API is served after the end of a session")
        require(talk.proved not in talk.revoked, "an API is served after the password has changed")


class _Talk:
    """One client of an episode."""

    def __init__(self, episode: _Episode, stream: bytearray) -> None:
        self._episode = episode
        self._rng = episode.rng
        self._setting = episode.setting
        self._client: LoginClient = episode.setting.connect()
        self.stream = stream
        self.proved = ""
        """The user whose right proof was sent."""
        self.ends_s = 0.0
        self.revoked: dict[str, None] = {}
        """Users whose password changed since the last handshake, or since the login."""
        self._mechanism = ""
        episode.talks[self._client.connection.connection_id] = self

    @property
    def _transport(self) -> KafkaTransport:
        return self._client.transport

    async def run(self, data: bytes | None) -> None:
        """Talk until the connection ends, or the client leaves."""
        if data is not None:
            await self._send(data, 1)
        else:
            for _ in range(1 + int(self._rng.random() * MOVES_MAX)):
                if self._client.is_closed:
                    break
                await self._move()
        await self._leave()

    async def _move(self) -> None:
        chance = self._rng.random()
        if chance < 0.4:
            await self._log_in()
        elif chance < 0.5:
            await self._send(VERSIONS, 1)
        elif chance < 0.6:
            await self._shake_hands()
        elif chance < 0.7:
            await self._authenticate()
        elif chance < (0.94 if self.proved else 0.8):
            await self._ask()
        else:
            await self._disturb()

    async def _log_in(self) -> None:
        """Log in, with a mistake in every third login."""
        rng, user = self._rng, USERS[int(self._rng.random() * len(USERS))]
        name = rng.choice(SCRAM)
        if rng.random() < PLAIN_SHARE:
            name = Mechanism.PLAIN
        mistake = int(rng.random() * 12)
        await self._shake(name.value)
        exchange = self._exchange(name, user if mistake else "mallory")
        message: bytes | None = exchange.begin()
        while message is not None and not self._client.is_closed:
            is_last = name is Mechanism.PLAIN or message.startswith(b"c=")
            right = message
            if mistake == 1 and is_last:
                message = bytes(self._episode.mutator.mutate(message))
            elif mistake == 2 and is_last and self._episode.recorded:
                message = rng.choice(self._episode.recorded)
            elif mistake == 3 and is_last:
                await self._shake(rng.choice(SCRAM).value)  # the proof belongs to another exchange
            if is_last and mistake not in (0, 3) and message == right:
                self._note_proof(user)
            self._note_plain(message)
            self._episode.record(message)
            message = await self._next(exchange, message)

    async def _next(self, exchange: SaslClientExchange, message: bytes) -> bytes | None:
        """Send a message; return the next one, None at the end."""
        answer = await self._answered(authenticate_frame(message))
        if answer is None:
            return None
        self._episode.tally.accepted += 1
        try:
            return await exchange.respond(bytes(answer.auth_bytes))
        except SaslError:
            return None  # it is the answer to a message that was damaged

    def _note_proof(self, user: str) -> None:
        """Note that a right proof is sent. A client that is logged in stays who it is."""
        if not self.proved:
            self.proved = user
        if self.proved == user:
            self.ends_s = self._setting.now_s + SESSION_MS / 1_000

    def _note_plain(self, message: bytes) -> None:
        """Note a message of PLAIN with a right password: it may be sent again by design."""
        with contextlib.suppress(SaslError):
            user, password = parse_plain(message)
            if self._mechanism == Mechanism.PLAIN and user in USERS and password == PASSWORD:
                self._note_proof(user)

    async def _shake_hands(self) -> None:
        name = self._rng.choice((*SCRAM, Mechanism.PLAIN, Mechanism.OAUTHBEARER, "", "GSSAPI"))
        await self._shake(str(name))

    async def _shake(self, name: str) -> None:
        if not self.proved:
            self.revoked.clear()
        self._mechanism = name
        await self._send(handshake_frame(name), 1)

    async def _authenticate(self) -> None:
        """Send any message of a login."""
        recorded = self._episode.recorded or [b"n,,n=user,r=abc"]
        message = self._rng.choice(recorded)
        if self._rng.random() < 0.7:
            message = bytes(self._episode.mutator.mutate(message))
        if message.count(b"\0") > 1 and self._rng.random() > PLAIN_SHARE:
            message = message.replace(b"\0", b"")
        self._note_plain(message)
        await self._send(authenticate_frame(message, int(self._rng.random() * 3)), 1)

    async def _ask(self) -> None:
        """Send requests of any API, several at once after a login."""
        count = 1 + int(self._rng.random() * 4)
        frames = [self._rng.choice(REQUESTS) for _ in range(count)]
        await self._send(b"".join(frames), count)

    async def _disturb(self) -> None:
        rng, setting = self._rng, self._setting
        match int(rng.random() * 8):
            case 0:
                user = USERS[int(rng.random() * len(USERS))]
                kept = dict(setting.credentials)
                setting.change_password(user, None)
                setting.credentials.update(kept)
                self.revoked[user] = None
                if self.proved == user and self._client.connection.principal.name == user:
                    require(self._client.is_closed, "a session ends with its password")
            case 1:
                setting.now_s += rng.random() * LOGIN_S_MAX
                self._client.connection.check_deadlines(setting.now_s)
            case 2:
                await self._send(rng.randbytes(1 + int(rng.random() * 60)), 1)
            case 3:
                size = rng.choice((0, 7, 8, 2**19, 2**19 + 1, 2**31 - 1, 2**32 - 1))
                await self._send(size.to_bytes(4) + rng.randbytes(9), 1)
            case 4:
                frame = rng.choice((VERSIONS, handshake_frame(SCRAM[0])))
                await self._send(frame[: int(rng.random() * len(frame))], 1)
            case 5:
                count = 2 + int(rng.random() * 40)
                await self._send(VERSIONS * count, count)
            case _:
                await self._send(bytes(self._episode.mutator.mutate(rng.choice(REQUESTS))), 1)

    def _exchange(self, name: Mechanism, user: str) -> SaslClientExchange:
        if name is Mechanism.PLAIN:
            return PlainClient(user, PASSWORD)

        async def known(_slow: object) -> bytes:
            return SALTED[name.value]

        nonce = f"{self._rng.getrandbits(64):x}"
        return ScramClient(ScramMechanism(name.value), user, PASSWORD, nonce, known)  # type: ignore[arg-type]

    async def _answered(self, frame: bytes) -> SaslAuthenticateResponse | None:
        """Send a message of a login; return the answer if it is one without an error."""
        answers = await self._send(frame, 1)
        if len(answers) != 1:
            return None
        body = memoryview(answers[0])[4:]
        try:
            answer = decode_response(ApiKey.SASL_AUTHENTICATE, 1, body)
        except Exception:  # noqa: BLE001 - it is the answer to an earlier, damaged frame
            return None
        assert isinstance(answer, SaslAuthenticateResponse)
        return None if answer.error_code else answer

    async def _send(self, data: bytes, frame_count: int) -> list[bytes]:
        """Deliver bytes, in one piece or two; return the answers."""
        self._episode.tally.frames += frame_count
        self.stream += data
        cut = int(self._rng.random() * len(data)) if self._rng.random() < 0.1 else 0
        was_proved = bool(self.proved)
        for piece in (data[:cut], data[cut:]) if cut else (data,):
            self._transport.deliver(piece)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        login = self._client.connection._login
        if login is not None and login._is_busy and not self._client.is_closed:
            await asyncio.sleep(REFUSAL_S)
        require(was_proved or len(self._transport.sent) <= SENT_BYTES_MAX, "answers are bounded")
        require(self._client.connection._bytes <= len(self.stream), "bytes are counted once")
        return self._transport.take_answers()

    async def _leave(self) -> None:
        context = self._setting.context
        self._client.lose()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if self._setting.tasks._tasks:
            await asyncio.sleep(REFUSAL_S)
        self._setting.held.clear()
        sessions = self._setting.logins.sessions
        require(self._transport.is_lost, "the connection ends")
        require(not sessions.count, "a login is left")
        require(not self._setting.tasks._tasks, "a task is left")
        require(not context.budget.used_bytes, "bytes are left in the budget")
        require(not context.announced.used_bytes, "announced bytes are left")
        require(not context.connections, "a connection is left")
        require(not context.counters.requests_failed, "no request fails by our own error")


LOGIN: Final = EpisodeTarget(_Episode.name, 0.25, _Episode)
