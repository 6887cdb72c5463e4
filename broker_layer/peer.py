"""Connections to other brokers, one for each, for requests between brokers.

Leaves replacing a connection to `peer_link`, the connection itself to `peer_connection`, and the
contents of messages to their senders.

The client id of a connection is `<process>#<number>`. The number grows with each new connection, so
a receiver can recognize requests from a connection that was replaced (`transactions.peer_order`).

Invariant: a call without an answer in time closes its connection, because the answers behind it
would wait for it.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, TypeVar

from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.messages import ApiMessage, decode_response, encode_request
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer_connection import PeerConnection, PeerError
from broker_layer.peer_link import PeerLink
from broker_layer.security.peer_login import log_in
from quire.identity.renewed_tls import ContextSource
from quire.identity.sasl_access import SaslAccess

CONNECT_TIMEOUT_S: Final = 3.0
STOPPING: Final = "this broker is stopping"

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
