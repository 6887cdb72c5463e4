"""Connections to other brokers, one for each, for requests between brokers.

Leaves the connection itself to `peer_connection`, and the contents of messages to their senders.

The client id of a connection is `<process>#<number>`. The number grows with each new connection, so
a receiver can recognize requests from a connection that was replaced (`transactions.peer_order`).

Invariants: one connection per broker at a time takes calls; one whose login is about to end is
replaced, and closed after its answers, or when the next one is replaced; a call without an answer
in time closes its connection, because the answers behind it would wait for it; after a failed
attempt the next one follows after a pause, and calls during the pause fail at once, with the reason
of that attempt.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeVar

from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.messages import ApiMessage, decode_response, encode_request
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer_connection import PeerConnection, PeerError
from broker_layer.security.peer_login import log_in
from metadata.backoff import Backoff
from security.errors import SecurityError
from security.renewed_tls import ContextSource
from security.sasl_access import SaslAccess

CONNECT_TIMEOUT_S: Final = 3.0
LOGIN_USED: Final = 0.8
"""Part of the time of a login after which the connection is replaced."""

MessageT = TypeVar("MessageT", bound="ApiMessage")


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


@dataclass(slots=True)
class _Link:
    address: PeerAddress
    backoff: Backoff
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: PeerConnection | None = None
    leaving: PeerConnection | None = None
    """The connection that was replaced last; it may have unanswered calls."""
    retry_at: float = 0.0
    failure: str = ""
    """Why the last attempt failed."""
    replace_at: float = math.inf
    """When another connection is made, because the login of this one is about to end."""

    @property
    def connections(self) -> list[PeerConnection]:
        """The connections that may be open."""
        return [each for each in (self.leaving, self.connection) if each is not None]


class Peers:
    """Connections to all other brokers, for one purpose."""

    def __init__(self, process: str, rng: Random, access: PeerAccess = OPEN) -> None:
        """`process` is unique: no other process or purpose uses it, nor did an earlier process."""
        self._process = process
        self._rng = rng
        self._access = access
        self._links: dict[int, _Link] = {}
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
            raise PeerError("this broker is stopping")
        link = self._link_to(address)
        connection: PeerConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connection_of(link)
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
        for link in self._links.values():
            for connection in link.connections:
                connection.close("this broker is stopping")
                await connection.wait_closed()
        self._links.clear()

    def _link_to(self, address: PeerAddress) -> _Link:
        link = self._links.get(address.broker_id)
        if link is not None and link.address == address:
            return link
        if link is not None:
            for connection in link.connections:
                connection.close("the broker's address has changed")
        link = self._links[address.broker_id] = _Link(address, Backoff(self._rng))
        return link

    async def _connection_of(self, link: _Link) -> PeerConnection:
        async with link.lock:
            loop = asyncio.get_running_loop()
            if link.connection is not None and link.connection.is_open:
                if loop.time() < link.replace_at:
                    return link.connection
                _replace(link)
            if loop.time() < link.retry_at:
                raise PeerError(f"{link.failure}; this was just now, and is tried again soon")
            try:
                link.connection, held_s = await self._connect(link.address)
            except (OSError, EOFError, TimeoutError, SecurityError, KafkaFrameError) as error:
                link.retry_at = loop.time() + link.backoff.next_s()
                link.failure = f"broker {link.address.broker_id} cannot be reached: {error}"
                raise PeerError(link.failure) from error
            link.backoff = Backoff(self._rng)
            link.replace_at = loop.time() + held_s * LOGIN_USED
            return link.connection

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
        connection = PeerConnection(reader, writer, f"{self._process}#{self._connection_count}")
        if self._is_closed:
            connection.close("this broker is stopping")
        return connection, held_s


def _replace(link: _Link) -> None:
    """Close a connection after its answers, and one that was replaced before it at once."""
    why = "another login is due"
    if link.leaving is not None and link.leaving is not link.connection:
        link.leaving.close(why)
    link.leaving = link.connection
    if link.leaving is not None:
        link.leaving.close_after_answers(why)


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Limit the time of an attempt. Raises TimeoutError with a reason."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            yield
    except TimeoutError as error:
        why = f"no answer within {CONNECT_TIMEOUT_S:g} s: check that it runs"
        raise TimeoutError(why) from error
