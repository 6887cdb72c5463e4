"""Requests to other brokers: one connection to each, which logs in, and is replaced when it ends
and before its login does.

Leaves the messages of mechanisms to `quire.identity.sasl`, and bodies to their senders.

Format: Kafka's frames. A request after its length: API key i16, version i16, correlation id i32,
client id (i16 length), body. A response after its length: correlation id i32, body. Tagged fields
stand before the body, so only flexible versions of an API can be requested; requests of a login
have none.

Source: Kafka's protocol guide; KIP-43, KIP-152, KIP-368, KIP-482.
"""

import asyncio
import contextlib
import logging
import math
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, TypeVar

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.messages import (
    ApiMessage,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_response,
    encode_request,
)
from broker_layer.kafka.primitives import NO_TAGS, parsing, skip_tags
from broker_layer.kafka.versions import ApiKey
from metadata.backoff import Backoff
from quire.identity.errors import SaslError, SecurityError
from quire.identity.sasl.mechanism import Mechanism, run_at_once
from quire.identity.sasl_access import PLAIN_NEEDS_TLS, SaslAccess
from quire.identity.tls import ContextSource

CONNECT_TIMEOUT_S: Final = 3.0
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
CALLS_MAX: Final = 1_000
"""Maximum number of unanswered calls of one connection; further calls are refused."""
LOGIN_VERSION: Final = 1
"""Version of both requests: the last one without flexible headers."""
LOGIN_FRAME_BYTES_MAX: Final = 64 * 1024
LOGIN_MESSAGES_MAX: Final = 8
"""Messages of one login; SCRAM has two."""
SHOWN_CHARACTERS: Final = 256
LOGIN_CLIENT_ID: Final = b"quire-login"
LOGIN_USED: Final = 0.8
"""Part of the time of a login after which the next connection logs in."""
LOGIN_PAUSE_S_MAX: Final = 10.0
"""Longest pause between attempts to log in before a login ends."""
LOGIN_DUE: Final = "another login is due"
"""Why a connection is replaced."""
STOPPING: Final = "this broker is stopping"
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhih")
_CORRELATION = struct.Struct(">i")
_CORRELATION_MODULUS: Final = 1 << 31
_log = logging.getLogger(__name__)


MessageT = TypeVar("MessageT", bound="ApiMessage")


class PeerError(TopicError):
    """Another broker was not reached or did not answer; the request may have had its effect."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, text)


UNREACHED: Final = (OSError, EOFError, TimeoutError, UnicodeError, SecurityError, KafkaFrameError)
"""Errors of an attempt to connect. UnicodeError: what a broker advertises is no name of a host."""


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Id of a broker, and its address for other brokers."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """How connections begin."""

    ssl: ContextSource | None = None
    """Contexts of TLS; None without."""
    sasl: SaslAccess | None = None
    """Login after the handshake; None without."""


OPEN: Final = PeerAccess()


class PeerConnection:
    """One connection to another broker: concurrent requests, answered in order.

    Every call ends exactly once, with its answer or with the connection; an answer that is out of
    order or too long closes the connection.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id.encode()
        self._calls: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._last_correlation_id = 0
        self._failure: PeerError | None = None
        self._closes_for = ""
        """Why the connection is closed after its answers; empty if it is not."""
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._failure is None

    def call(self, api_key: int, version: int, body: bytes) -> "asyncio.Future[memoryview]":
        """Send a request; return the future of the answer's body.

        Raises PeerError; the future fails with PeerError when the connection ends.
        """
        if self._failure is not None:
            raise self._failure
        if len(self._calls) >= CALLS_MAX:
            raise PeerError(f"{CALLS_MAX} requests to the broker are unanswered; try again later")
        self._last_correlation_id = (self._last_correlation_id + 1) % _CORRELATION_MODULUS
        client_id, number = self._client_id, self._last_correlation_id
        length = _REQUEST.size - _LENGTH.size + len(client_id) + len(NO_TAGS) + len(body)
        header = _REQUEST.pack(length, api_key, version, number, len(client_id))
        self._writer.write(b"".join((header, client_id, NO_TAGS, body)))
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._calls.append((number, answer))
        return answer

    def close(self, why: str) -> None:
        """Close the connection at once; unanswered calls fail."""
        if self._failure is not None:
            return
        self._failure = PeerError(why)
        self._reading.cancel()
        self._writer.transport.abort()
        while self._calls:
            _, answer = self._calls.popleft()
            if not answer.done():
                answer.set_exception(PeerError(why))
                answer.exception()  # mark it as retrieved: the caller may no longer wait

    def close_after_answers(self, why: str) -> None:
        """Close the connection once every call has its answer; no call may follow."""
        self._closes_for = why
        if not self._calls:
            self.close(why)

    async def wait_closed(self) -> None:
        """Wait until the connection is closed and its task has ended."""
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if not _CORRELATION.size < length <= FRAME_BYTES_MAX:
                    raise KafkaFrameError(f"an answer has a length of {length} B")
                self._take(memoryview(await self._reader.readexactly(length)))
        except (OSError, EOFError) as error:
            self.close(f"the connection ended: {error}")
        except KafkaFrameError as error:
            self.close(f"the broker sent an invalid answer: {error}")

    def _take(self, frame: memoryview) -> None:
        number, start = _read_header(frame)
        if not self._calls or self._calls[0][0] != number:
            raise KafkaFrameError(f"answer {number} is out of order")
        _, answer = self._calls.popleft()
        if not answer.done():
            answer.set_result(frame[start:])
        if self._closes_for and not self._calls:
            self.close(self._closes_for)


@parsing
def _read_header(frame: memoryview) -> tuple[int, int]:
    (number,) = _CORRELATION.unpack_from(frame)
    return number, skip_tags(frame, _CORRELATION.size)


Connect = Callable[[], Awaitable[tuple[PeerConnection, float]]]
"""Returns a new connection that is logged in, and for how many seconds its login holds: infinity if
it does not end. Raises one of UNREACHED.
"""


class PeerLink:
    """The connection to one broker that takes calls.

    Before its login ends, another connection logs in beside it and takes its place, so no call
    waits for that login or fails because of it. The replaced one is closed after its answers, or
    when the next one is replaced. After a failed attempt the next one follows after a pause; calls
    during the pause fail at once with the reason of that attempt, unless a connection is open.
    """

    def __init__(self, name: str, rng: Random, connect: Connect) -> None:
        """`name` is that of the broker, for messages."""
        self._name = name
        self._rng = rng
        self._connect = connect
        self._backoff = Backoff(rng)
        self._lock = asyncio.Lock()
        self.current: PeerConnection | None = None
        """The connection that takes calls; it may have ended."""
        self._leaving: PeerConnection | None = None
        """The connection that was replaced last; it may have unanswered calls."""
        self._renewal: asyncio.Task[None] | None = None
        """Task that replaces the connection before its login ends; None if that has no end."""
        self.retry_at = 0.0
        """When the next attempt may begin, in the time of the loop."""
        self._failure = ""
        """Why the last attempt failed."""
        self._closed_for = ""
        """Why the link was closed; empty if it is not."""

    async def connection(self) -> PeerConnection:
        """Return the open connection; connect if there is none. Raises PeerError."""
        if (connection := self._open_connection) is not None:
            return connection
        async with self._lock:
            if (connection := self._open_connection) is not None:
                return connection
            if self._closed_for:
                raise PeerError(self._closed_for)
            loop = asyncio.get_running_loop()
            if loop.time() < self.retry_at:
                raise PeerError(f"{self._failure}; this was just now, and is tried again soon")
            connection, held_s = await self._replace()
            self._stop_renewal()
            if math.isfinite(held_s) and connection.is_open:
                self._renewal = loop.create_task(self._renew(held_s))
            return connection

    def close(self, why: str) -> None:
        """Close all connections, also one that is being made."""
        self._closed_for = why
        self._stop_renewal()
        for connection in self._connections:
            connection.close(why)

    async def wait_closed(self) -> None:
        """Wait until the connections that were made are closed."""
        for connection in self._connections:
            await connection.wait_closed()

    @property
    def _connections(self) -> list[PeerConnection]:
        return [link for link in (self._leaving, self.current) if link is not None]

    @property
    def _open_connection(self) -> PeerConnection | None:
        is_open = self.current is not None and self.current.is_open
        return self.current if is_open else None

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    async def _renew(self, held_s: float) -> None:
        """Replace the connection before its login ends, and each one that follows."""
        loop = asyncio.get_running_loop()
        while math.isfinite(held_s):
            ends_at = loop.time() + held_s
            await asyncio.sleep(held_s * LOGIN_USED)
            try:
                async with asyncio.timeout_at(ends_at):
                    held_s = await self._renewed()
            except TimeoutError:
                why = self._failure or "no answer in time"
                _log.warning("%s: the login has ended, and no other succeeded: %s", self._name, why)
                self._use(None)
                return

    async def _renewed(self) -> float:
        """Replace an open connection, with pauses between attempts; return for how many seconds the
        login of the next one holds. Infinity if the connection has ended: the next call connects.
        """
        pauses = Backoff(self._rng, max_s=LOGIN_PAUSE_S_MAX)
        while True:
            async with self._lock:
                if self._open_connection is None:
                    return math.inf
                with contextlib.suppress(PeerError):
                    _, held_s = await self._replace()
                    return held_s
            await asyncio.sleep(pauses.next_s())

    async def _replace(self) -> tuple[PeerConnection, float]:
        """Connect, and use the connection; return it, and for how many seconds its login holds.
        Raises PeerError.
        """
        try:
            connection, held_s = await self._connect()
        except UNREACHED as error:
            self.retry_at = asyncio.get_running_loop().time() + self._backoff.next_s()
            self._failure = f"{self._name} cannot be reached: {error}"
            raise PeerError(self._failure) from error
        self._backoff, self._failure, self.retry_at = Backoff(self._rng), "", 0.0
        self._use(connection)
        if self._closed_for:
            connection.close(self._closed_for)
        return connection, held_s

    def _use(self, connection: PeerConnection | None) -> None:
        """Use another connection, or none. Close an open one after its answers, and the one that it
        had replaced at once.
        """
        if (former := self._open_connection) is not None:
            if self._leaving is not None:
                self._leaving.close(LOGIN_DUE)
            self._leaving = former
            former.close_after_answers(LOGIN_DUE)
        self.current = connection


class Peers:
    """Connections to all other brokers, for one purpose."""

    def __init__(self, process: str, rng: Random, access: PeerAccess = OPEN) -> None:
        """`process` is unique: no other process or purpose uses it, nor did an earlier process."""
        self._process = process
        self._rng = rng
        self._access = access
        self._links: dict[int, tuple[PeerAddress, PeerLink]] = {}
        self._connection_count = 0
        self._is_closed = False

    async def ask(
        self,
        address: PeerAddress,
        request: ApiMessage,
        answer: type[MessageT],
        version: int,
        timeout_s: float,
    ) -> MessageT:
        """Send a request, decode the answer. Raises PeerError as `call`, or for a damaged one."""
        key, body = ApiKey(request.API_KEY), bytes(encode_request(request, version))
        data = await self.call(address, key, version, body, timeout_s=timeout_s)
        try:
            response = decode_response(key, version, data)
        except KafkaFrameError as error:
            raise PeerError(f"broker {address.broker_id}: {error}") from error
        assert isinstance(response, answer), "the codec selects by API"
        return response

    async def call(
        self, address: PeerAddress, api_key: int, version: int, body: bytes, *, timeout_s: float
    ) -> memoryview:
        """Send a request of a flexible version to a broker; return the body of the answer.

        Raises PeerError if no answer comes in time; the request may still have had its effect.
        """
        if self._is_closed:
            raise PeerError(STOPPING)
        link = self._link_to(address)
        connection: PeerConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await link.connection()
                return await connection.call(api_key, version, body)
        except TimeoutError as error:
            why = (
                f"broker {address.broker_id} did not answer within {timeout_s} s: check that it "
                "runs and is reachable"
            )
            if connection is not None:
                connection.close(why)
            raise PeerError(why) from error

    async def aclose(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for _, link in self._links.values():
            link.close(STOPPING)
        for _, link in self._links.values():
            await link.wait_closed()
        self._links.clear()

    def _link_to(self, address: PeerAddress) -> PeerLink:
        known, link = self._links.get(address.broker_id, (None, None))
        if link is not None and known == address:
            return link
        if link is not None:
            link.close("the broker's address has changed")
        connect = partial(self._connect, address)
        link = PeerLink(f"broker {address.broker_id}", self._rng, connect)
        self._links[address.broker_id] = address, link
        return link

    async def _connect(self, address: PeerAddress) -> tuple[PeerConnection, float]:
        """Return a new connection, and for how many seconds its login holds."""
        held_s, ssl = math.inf, self._access.ssl
        context = None if ssl is None else ssl(asyncio.get_running_loop().time())
        async with _in_time():
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
            if self._access.sasl is not None:
                try:
                    held_s = await log_in(reader, writer, self._access.sasl) / 1_000 or math.inf
                except BaseException:
                    writer.transport.abort()
                    raise
        self._connection_count += 1
        client_id = f"{self._process}#{self._connection_count}"
        return PeerConnection(reader, writer, client_id), held_s


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Limit the time of an attempt. Raises TimeoutError with a reason."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            yield
    except TimeoutError as error:
        why = f"no answer within {CONNECT_TIMEOUT_S:g} s: check that it runs"
        raise TimeoutError(why) from error


async def log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, access: SaslAccess
) -> int:
    """Log in on a new connection; return the time for which the login holds, in ms, 0 for ever.

    Raises SecurityError if the broker refuses or cannot be trusted, KafkaFrameError, OSError,
    EOFError.
    """
    if access.mechanism is Mechanism.PLAIN and writer.get_extra_info("ssl_object") is None:
        raise SaslError(PLAIN_NEEDS_TLS)
    exchange = access.begin(run_at_once)
    request = SaslHandshakeRequest(mechanism=access.mechanism.value)
    shaken = await ask_login(reader, writer, request, SaslHandshakeResponse)
    if shaken.error_code != ErrorCode.NONE:
        offered = _shown(", ".join(shaken.mechanisms)) or "none"
        raise SaslError(
            f"the broker's listener does not take {access.mechanism}: it takes {offered}"
        )
    message = exchange.begin()
    for _ in range(LOGIN_MESSAGES_MAX):
        answer = await ask_login(
            reader, writer, SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
        )
        if answer.error_code != ErrorCode.NONE:
            why = _shown(answer.error_message or f"error {answer.error_code}")
            raise SaslError(f"the broker refuses the user {access.user!r}: {why}")
        response = await exchange.respond(bytes(answer.auth_bytes))
        if response is None:
            return int(answer.session_lifetime_ms)
        message = response
    raise SaslError(f"the login does not end after {LOGIN_MESSAGES_MAX} messages")


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


async def ask_login(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: ApiMessage,
    kind: type[MessageT],
) -> MessageT:
    """Send one request of a login; return its answer. Raises KafkaFrameError, OSError, EOFError."""
    key, body = ApiKey(request.API_KEY), bytes(encode_request(request, LOGIN_VERSION))
    name = LOGIN_CLIENT_ID
    length = _REQUEST.size - _LENGTH.size + len(name) + len(body)
    writer.write(_REQUEST.pack(length, key, LOGIN_VERSION, 0, len(name)) + name + body)
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if not _CORRELATION.size < size <= LOGIN_FRAME_BYTES_MAX:
        raise KafkaFrameError(f"an answer to a login has a length of {size} B")
    frame = memoryview(await reader.readexactly(size))
    response = decode_response(key, LOGIN_VERSION, frame[_CORRELATION.size :])
    assert isinstance(response, kind), "the codec selects by API"
    return response
