"""A listener with logins serves a client only while it has proved who it is, over real sockets."""

import asyncio
import json
import logging
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    encode_request,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.server import access as logins_module
from broker_layer.server.access import (
    FRAME_BYTES_MAX,
    ListenerAccess,
    LoginParts,
    Logins,
)
from broker_layer.server.broker_services import BrokerServices, ServiceParts
from broker_layer.server.connections import BrokerServer
from broker_layer.server.listeners import ListenerAddress
from broker_layer.server.server_limits import BrokerLimits
from quire.identity.principal import Principal
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.mechanism import Mechanism, SaslClientExchange
from quire.identity.sasl.oauthbearer import OAuthBearerClient, VerifiedToken
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.scram import ScramClient
from quire.identity.sasl.sessions import LOGIN_S_MAX, SaslAuthenticator, SaslParts
from quire.server.server_log import AUDIT_LOGGER, JsonFormatter, ServerLog
from tests.support.broker_layer.memory_topics import MemoryTopics
from tests.support.broker_layer.served_broker import Client
from tests.support.security.sasl_parts import DECOYS, PASSWORD, USERS, find, run_here

if TYPE_CHECKING:
    from broker_layer.handlers import Handler

LISTENER: Final = ListenerAddress("OUTER", "127.0.0.1", 0)
ALICE, BOB = USERS[0], USERS[2]
WALL_CLOCK_MS: Final = 1_800_000_000_000
TOKEN_MS: Final = 5_000
SESSION_MS: Final = 10_000


@dataclass
class GuardedServer:
    """A server with one listener, whose clients log in."""

    address: ListenerAddress
    services: BrokerServices
    logins: Logins
    clock: list[float]
    """The time, in seconds; the only item changes."""
    served: list[str]
    """Principals whose Metadata was served."""
    clients: list[Client]

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        self.clients.append(Client(reader, writer))
        return self.clients[-1]

    def check_deadlines(self) -> None:
        """Check all connections, as the server does each second."""
        for connection in list(self.services.context.connections):
            connection.check_deadlines(self.clock[0])


async def _token(_: str) -> VerifiedToken:
    return VerifiedToken(Principal(ALICE), (WALL_CLOCK_MS + TOKEN_MS) / 1_000)


@asynccontextmanager
async def guarded(
    session_ms_max: int = 0, enabled: Sequence[Mechanism] = tuple(Mechanism)
) -> AsyncIterator[GuardedServer]:
    clock, served = [100.0], list[str]()

    async def metadata(_: ApiMessage, context: RequestContext) -> ApiMessage:
        served.append(context.principal.name)
        return MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=[])

    topics, log = MemoryTopics({}), ServerLog(lambda: clock[0])
    handlers: dict[int, Handler] = {ApiKey.METADATA: metadata}
    services = BrokerServices(
        ServiceParts(1, topics, topics, topics, handlers, "INNER"),
        BrokerLimits(drain_timeout_s=1.0),
        log,
        Random(5),
        lambda: clock[0],
    )
    authenticator = SaslAuthenticator(enabled, SaslParts(find, DECOYS, run_here, Random(3), _token))
    parts = LoginParts(
        services.tasks,
        services.counters,
        log.audit,
        lambda: clock[0],
        lambda: WALL_CLOCK_MS,
        session_ms_max,
    )
    logins = Logins(authenticator, parts)
    server = BrokerServer(services.context)
    access = {LISTENER.name: ListenerAccess(LISTENER.name, None, (), logins)}
    (address,) = await server.bind((LISTENER,), access)
    await server.serve()
    guarded_server = GuardedServer(address, services, logins, clock, served, [])
    try:
        yield guarded_server
    finally:
        for client in guarded_server.clients:
            client.writer.close()
        await server.close()
        await services.close()


def scram(user: str = ALICE, password: str = PASSWORD) -> ScramClient:
    return ScramClient(ScramMechanism.SHA_256, user, password, "abc", run_here)


async def shake_hands(client: Client, mechanism: Mechanism = Mechanism.SCRAM_SHA_256) -> int:
    request = SaslHandshakeRequest(mechanism=mechanism.value)
    answer = await client.ask(ApiKey.SASL_HANDSHAKE, request, 1)
    assert isinstance(answer, SaslHandshakeResponse)
    return answer.error_code


async def authenticate(client: Client, message: bytes) -> SaslAuthenticateResponse:
    request = SaslAuthenticateRequest(auth_bytes=message)
    answer = await client.ask(ApiKey.SASL_AUTHENTICATE, request, 1)
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


async def log_in(
    client: Client,
    exchange: SaslClientExchange | None = None,
    mechanism: Mechanism = Mechanism.SCRAM_SHA_256,
) -> SaslAuthenticateResponse:
    """Log in; return the last answer, which may be a refusal."""
    exchange = exchange or scram()
    assert await shake_hands(client, mechanism) == ErrorCode.NONE
    message: bytes | None = exchange.begin()
    while True:
        assert message is not None
        answer = await authenticate(client, message)
        if answer.error_code:
            return answer
        message = await exchange.respond(bytes(answer.auth_bytes))
        if message is None:
            return answer


async def is_answered(client: Client, api_key: ApiKey = ApiKey.METADATA) -> bool:
    """Return whether a request is answered; otherwise its connection is closed."""
    request: ApiMessage = (
        MetadataRequest(topics=[]) if api_key is ApiKey.METADATA else ApiVersionsRequest()
    )
    client.send(api_key, 1, encode_request(request, 1))
    try:
        await client.body()
    except (EOFError, ConnectionError):
        return False
    return True


async def test_nothing_but_versions_is_served_before_the_login() -> None:
    async with guarded() as server:
        client = await server.connect()
        assert await is_answered(client, ApiKey.API_VERSIONS)
        assert not await is_answered(client)
        client = await server.connect()
        assert await shake_hands(client) == ErrorCode.NONE
        assert not await is_answered(client), "an exchange has begun"
        client = await server.connect()
        await shake_hands(client)
        assert (await authenticate(client, scram().begin())).error_code == ErrorCode.NONE
        assert not await is_answered(client), "a message of two was right"
        assert server.served == []


async def test_a_client_is_served_as_the_user_of_its_login() -> None:
    async with guarded() as server:
        for exchange, mechanism in (
            (scram(BOB), Mechanism.SCRAM_SHA_256),
            (PlainClient(ALICE, PASSWORD), Mechanism.PLAIN),
        ):
            client = await server.connect()
            assert (await log_in(client, exchange, mechanism)).error_code == ErrorCode.NONE
            assert await is_answered(client)
        assert server.served == [BOB, ALICE]


async def test_a_client_logs_in_again_only_as_the_same_user() -> None:
    async with guarded() as server:
        client = await server.connect()
        await log_in(client)
        assert (await log_in(client)).error_code == ErrorCode.NONE
        assert await is_answered(client)
        answer = await log_in(client, scram(BOB))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await is_answered(client)
        assert server.served == [ALICE]


async def test_a_session_ends_unless_its_client_logs_in_again() -> None:
    async with guarded(SESSION_MS) as server:
        client = await server.connect()
        assert (await log_in(client)).session_lifetime_ms == SESSION_MS
        server.clock[0] += SESSION_MS / 1_000 - 1
        assert await is_answered(client)
        await log_in(client)
        server.clock[0] += SESSION_MS / 1_000 - 1
        assert await is_answered(client)
        server.clock[0] += 1
        assert not await is_answered(client)


async def test_the_earlier_end_of_token_and_session_counts() -> None:
    for session_ms_max, lifetime_ms in ((SESSION_MS, TOKEN_MS), (1_000, 1_000), (0, TOKEN_MS)):
        async with guarded(session_ms_max) as server:
            client = await server.connect()
            answer = await log_in(client, OAuthBearerClient("token"), Mechanism.OAUTHBEARER)
            assert answer.session_lifetime_ms == lifetime_ms
            server.clock[0] += lifetime_ms / 1_000
            assert not await is_answered(client)


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.PLAIN])
async def test_a_connection_ends_with_its_users_password(mechanism: Mechanism) -> None:
    async with guarded() as server:
        client, other = await server.connect(), await server.connect()
        exchange = scram() if mechanism is not Mechanism.PLAIN else PlainClient(ALICE, PASSWORD)
        await log_in(client, exchange, mechanism)
        await log_in(other, scram(BOB))
        server.logins.sessions.revoke(ALICE, [ScramMechanism.SHA_256])
        assert not await is_answered(client)
        assert await is_answered(other)


async def test_a_password_that_is_removed_during_the_login_proves_nothing() -> None:
    async with guarded() as server:
        client, exchange = await server.connect(), scram()
        await shake_hands(client)
        challenge = await authenticate(client, exchange.begin())
        server.logins.sessions.revoke(ALICE, [ScramMechanism.SHA_256])
        proof = await exchange.respond(bytes(challenge.auth_bytes))
        assert proof is not None
        answer = await authenticate(client, proof)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await is_answered(client)


async def test_a_login_has_a_deadline() -> None:
    async with guarded() as server:
        silent, begun, proving, done = [await server.connect() for _ in range(4)]
        assert await is_answered(silent, ApiKey.API_VERSIONS)
        await shake_hands(begun)
        await shake_hands(proving)
        await authenticate(proving, scram().begin())
        await log_in(done)
        server.clock[0] += LOGIN_S_MAX + 1
        server.check_deadlines()
        for client in (silent, begun, proving):
            assert not await is_answered(client, ApiKey.API_VERSIONS)
        assert await is_answered(done)


async def test_frames_before_the_login_are_small() -> None:
    async with guarded() as server:
        client = await server.connect()
        client.send_bytes(struct.pack(">i", FRAME_BYTES_MAX + 1))
        client.writer.write_eof()  # the server closes the connection in any case
        assert await client.is_closed()
        assert server.services.counters.bad_frames == 1
        client = await server.connect()
        await log_in(client)
        client.send_bytes(struct.pack(">i", FRAME_BYTES_MAX + 1))
        client.writer.write_eof()
        assert await client.is_closed()
        assert server.services.counters.bad_frames == 1, "after it they may be large"


async def test_the_number_of_logins_under_way_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins_module, "LOGINS_MAX", 1)  # one address may have two
    async with guarded() as server:
        first, second = await server.connect(), await server.connect()
        assert await is_answered(first, ApiKey.API_VERSIONS)
        assert not await is_answered(second, ApiKey.API_VERSIONS)
        await log_in(first)
        assert await is_answered(await server.connect(), ApiKey.API_VERSIONS)


async def test_refusals_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(enabled=[Mechanism.SCRAM_SHA_256]) as server:
        with caplog.at_level(logging.INFO, AUDIT_LOGGER):
            client = await server.connect()
            answer = await log_in(client, scram(password="guess"))
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            client = await server.connect()
            assert await shake_hands(client, Mechanism.PLAIN)
    lines = [
        JsonFormatter().format(record) for record in caplog.records if record.name == AUDIT_LOGGER
    ]
    found = [(each["act"], each["result"], each["who"]) for each in map(json.loads, lines)]
    assert found == [("login", "refused", "unknown")] * 2
    assert "guess" not in "".join(lines)
