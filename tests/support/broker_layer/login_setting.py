"""Connections of a listener with logins, in memory: bytes in, answers out.

Leaves the mechanisms to `quire.identity.sasl`, with the users of
`tests.support.security.sasl_parts`.

Invariant: like asyncio's own transports, the transport delivers nothing while reading is paused or
after a close, and the loop calls `connection_lost` once.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from typing_extensions import override  # `typing` has it from 3.12 on

from broker_layer.kafka.messages import (
    ApiMessage,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_response,
    encode_request,
)
from broker_layer.kafka.versions import SERVED, ApiKey
from broker_layer.server.access import ListenerAccess, LoginParts, Logins
from broker_layer.server.connections import BrokerConnection, ServerContext
from broker_layer.server.dispatch import FOR_BROKERS, Dispatcher
from broker_layer.server.exchange import Exchange, RawHandler, RequestTasks
from broker_layer.server.quotas import ClientQuotas
from broker_layer.server.server_limits import BrokerCounters, BrokerLimits
from metadata.security.quota_set import QuotaSet
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism
from quire.identity.sasl.mechanism import Mechanism, RunSlow, SaslClientExchange
from quire.identity.sasl.oauthbearer import VerifyToken
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.scram import ScramClient
from quire.identity.sasl.sessions import SaslAuthenticator, SaslParts
from quire.server.server_log import ServerLog
from tests.support.security.sasl_parts import CREDENTIALS, DECOYS, PASSWORD, USERS, run_here
from tests.until import until

LISTENER: Final = "OUTER"
OWN_APIS: Final = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.API_VERSIONS,
    *FOR_BROKERS,
)
"""APIs that `Dispatcher` serves or refuses itself."""
WALL_CLOCK_MS: Final = 1_800_000_000_000
_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhih")


class KafkaTransport(asyncio.Transport):
    """One end of a connection; `sent` is what the protocol sent."""

    def __init__(self, protocol: asyncio.BufferedProtocol, host: str = "192.0.2.7") -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_lost = False
        self._protocol = protocol
        self._host = host
        self._is_closing = False
        self._is_reading = True
        self._loop = asyncio.get_running_loop()

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.sent += data

    @override
    def is_closing(self) -> bool:
        return self._is_closing

    @override
    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose)

    @override
    def abort(self) -> None:
        self.close()

    @override
    def pause_reading(self) -> None:
        self._is_reading = False

    @override
    def resume_reading(self) -> None:
        self._is_reading = True

    @override
    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is None or high > 0

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._host, 4_711) if name == "peername" else default

    def deliver(self, data: bytes) -> int:
        """Deliver bytes while the protocol reads; return how many it took."""
        at = 0
        while at < len(data) and self.is_reading():
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            at += count
            self._protocol.buffer_updated(count)
        return at

    def take_answers(self) -> list[bytes]:
        """Remove the answers that were sent; return them without their lengths."""
        answers, at = list[bytes](), 0
        while at < len(self.sent):
            (size,) = _SIZE.unpack_from(self.sent, at)
            at += _SIZE.size
            answers.append(bytes(self.sent[at : at + size]))
            assert len(answers[-1]) == size, "answers are sent whole"
            at += size
        self.sent.clear()
        return answers

    def _lose(self) -> None:
        self.is_lost = True
        self._protocol.connection_lost(None)


def request_frame(api_key: int, version: int, body: bytes = b"", number: int = 7) -> bytes:
    """Return a request with its length."""
    served = SERVED.get(ApiKey(api_key)) if api_key in list(ApiKey) else None
    tags = b"\0" if served is not None and version >= served.flexible_from else b""
    data = _HEAD.pack(api_key, version, number, -1) + tags + body
    return _SIZE.pack(len(data)) + data


def handshake_frame(mechanism: str, version: int = 1) -> bytes:
    """Return a SaslHandshake."""
    body = encode_request(SaslHandshakeRequest(mechanism=mechanism), version)
    return request_frame(ApiKey.SASL_HANDSHAKE, version, bytes(body))


def authenticate_frame(message: bytes, version: int = 1) -> bytes:
    """Return a SaslAuthenticate."""
    body = encode_request(SaslAuthenticateRequest(auth_bytes=message), version)
    return request_frame(ApiKey.SASL_AUTHENTICATE, version, bytes(body))


@dataclass(slots=True)
class LoginClient:
    """A client of one connection."""

    connection: BrokerConnection
    transport: KafkaTransport

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closing()

    def send(self, data: bytes) -> None:
        self.transport.deliver(data)

    async def body(self) -> bytes:
        """Return the body of the one answer that comes next."""
        await until(lambda: bool(self.transport.sent) or self.transport.is_lost)
        (answer,) = self.transport.take_answers()
        return answer[4:]

    async def shake_hands(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        self.send(handshake_frame(mechanism, version))
        answer = decode_response(ApiKey.SASL_HANDSHAKE, version, memoryview(await self.body()))
        assert isinstance(answer, SaslHandshakeResponse)
        return answer

    async def authenticate(self, message: bytes, version: int = 1) -> SaslAuthenticateResponse:
        self.send(authenticate_frame(message, version))
        return await self.authenticated(version)

    async def authenticated(self, version: int = 1) -> SaslAuthenticateResponse:
        """Return the answer to a SaslAuthenticate that was sent."""
        body = (await self.body())[1 if version > 1 else 0 :]
        answer = decode_response(ApiKey.SASL_AUTHENTICATE, version, memoryview(body))
        assert isinstance(answer, SaslAuthenticateResponse)
        return answer

    async def log_in(
        self,
        mechanism: Mechanism = Mechanism.SCRAM_SHA_256,
        user: str = USERS[0],
        password: str = PASSWORD,
    ) -> SaslAuthenticateResponse:
        """Log in; return the last answer."""
        shaken = await self.shake_hands(mechanism.value)
        assert shaken.error_code == 0
        return await self.prove(client_exchange(mechanism, user, password))

    async def prove(self, exchange: SaslClientExchange) -> SaslAuthenticateResponse:
        """Exchange messages to the end, or to a refusal; return the last answer."""
        message: bytes | None = exchange.begin()
        while True:
            assert message is not None
            answer = await self.authenticate(message)
            if answer.error_code:
                return answer
            message = await exchange.respond(bytes(answer.auth_bytes))
            if message is None:
                return answer

    async def is_served(self, version: int = 1) -> bool:
        """Return whether another request is served."""
        self.send(request_frame(ApiKey.METADATA, version, b"\0\0\0\0"))
        await until(lambda: bool(self.transport.sent) or self.transport.is_lost)
        return bool(self.transport.take_answers())

    def lose(self) -> None:
        """Close the client's end."""
        self.transport.close()


def client_exchange(mechanism: Mechanism, user: str, password: str) -> SaslClientExchange:
    """Return the client's side of an exchange."""
    if mechanism is Mechanism.PLAIN:
        return PlainClient(user, password)
    return ScramClient(ScramMechanism(mechanism.value), user, password, "abc", run_here)


@dataclass
class LoginSetting:
    """A listener with logins. Create it in the event loop; call `aclose` once."""

    mechanisms: Sequence[Mechanism] = (
        Mechanism.SCRAM_SHA_512,
        Mechanism.SCRAM_SHA_256,
        Mechanism.PLAIN,
    )
    run_slow: RunSlow = run_here
    session_ms_max: int = 0
    verify_token: VerifyToken | None = None
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    now_s: float = 100.0
    credentials: dict[tuple[str, ScramMechanism], ScramCredential] = field(default_factory=dict)
    served: list[int] = field(default_factory=list)
    """APIs that were served, other than those of logins and ApiVersions."""
    held: list[Exchange] = field(default_factory=list)
    """Fetches, which wait for `answer`."""
    log: ServerLog | None = None
    on_served: Callable[[Exchange], None] = lambda _: None
    """Called for each request that is served, before it is."""

    def __post_init__(self) -> None:
        for user in USERS:
            for mechanism, credential in CREDENTIALS.items():
                self.credentials[user, mechanism] = credential
        counters = BrokerCounters()
        log = self.log = self.log or ServerLog(self._now)
        self.tasks = RequestTasks(counters, log)
        handled: dict[int, RawHandler] = dict.fromkeys(ApiKey, self._note)
        handled[ApiKey.FETCH] = self._hold
        for api_key in OWN_APIS:
            del handled[api_key]
        dispatcher = Dispatcher(
            handled,
            {},
            self.tasks,
            counters,
            ClientQuotas(QuotaSet(), self.limits, counters, self._now),
            "INNER",
            is_guarded=False,
        )
        self.context = ServerContext(self.limits, counters, log, self._now, dispatcher.serve)
        sasl = SaslParts(self._find, DECOYS, self.run_slow, Random(3), self.verify_token)
        self.parts = LoginParts(
            self.tasks,
            counters,
            log.audit,
            self._now,
            lambda: WALL_CLOCK_MS,
            self.session_ms_max,
        )
        self.use(Logins(SaslAuthenticator(self.mechanisms, sasl), self.parts))

    def use(self, logins: Logins) -> None:
        """Use other logins for new connections."""
        self.logins = logins
        self.access = ListenerAccess(LISTENER, None, (), logins)

    def connect(self, host: str = "192.0.2.7") -> LoginClient:
        """Return a new connection."""
        connection = BrokerConnection(self.context, self.access)
        transport = KafkaTransport(connection, host)
        connection.connection_made(transport)
        return LoginClient(connection, transport)

    def change_password(self, user: str, password: ScramCredential | None) -> None:
        """Replace a credential, or remove it with all others of the user."""
        gone = [key for key in self.credentials if key[0] == user]
        for key in gone:
            del self.credentials[key]
        if password is not None:
            self.credentials[user, password.mechanism] = password
        self.logins.sessions.revoke(user, [mechanism for _, mechanism in gone])

    def answer(self) -> None:
        """Answer the oldest Fetch."""
        self.held.pop(0).answer([b"fetched"])

    async def aclose(self) -> None:
        await self.tasks.close()

    def _find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self.credentials.get((user, mechanism))

    def _now(self) -> float:
        return self.now_s

    def _hold(self, exchange: Exchange) -> None:
        self._count(exchange)
        self.held.append(exchange)

    def _count(self, exchange: Exchange) -> None:
        self.on_served(exchange)
        self.served.append(exchange.api_key)

    def _note(self, exchange: Exchange) -> None:
        self._count(exchange)
        exchange.answer([exchange.requester.principal.text.encode()])


@dataclass
class Gate:
    """Slow work that ends when a test says so."""

    begun: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, slow: Callable[[], Any], /) -> Any:
        self.begun += 1
        made = slow()
        await self.is_open.wait()
        return made


def message_of(answer: ApiMessage) -> str:
    """Return the text of an error."""
    return str(getattr(answer, "error_message", ""))


async def turns(count: int = 20) -> None:
    """Give the loop's ready callbacks their turns."""
    for _ in range(count):
        await asyncio.sleep(0)
