"""Keeps one connection to each other broker, for what brokers ask of each other.

Leaves the connection itself to `peer_connection`, and the messages to whoever sends them.

A connection names itself `<process>#<number>`: the number grows with each new one, so that a
receiver can tell what comes from one that was replaced (`transactions.peer_order`).

Invariants: one connection per broker at a time; a call that is not answered in time ends its
connection, as the answers behind it would wait for it; after a failed attempt no other is made
before a pause is over, and calls fail at once meanwhile.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Final

from broker_layer.peer_connection import PeerConnection, PeerError
from metadata.backoff import Pauses

CONNECT_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A broker, and where other brokers reach it."""

    broker_id: int
    host: str
    port: int


@dataclass(slots=True)
class _Link:
    address: PeerAddress
    pauses: Pauses
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: PeerConnection | None = None
    retry_at: float = 0.0


class Peers:
    """The connections of one purpose to all other brokers."""

    def __init__(self, process: str, rng: Random) -> None:
        """`process` tells this process and purpose from all others, also from earlier ones."""
        self._process = process
        self._rng = rng
        self._links: dict[int, _Link] = {}
        self._connection_count = 0
        self._is_closed = False

    async def call(
        self, address: PeerAddress, api_key: int, version: int, body: bytes, *, timeout_s: float
    ) -> memoryview:
        """Return the body of a broker's answer to a request of a flexible version.

        Raises PeerError when there is none in time; then the request may have had its effect.
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
            why = f"broker {address.broker_id} did not answer within {timeout_s} s"
            if connection is not None:
                connection.close(why)
            raise PeerError(why) from error

    async def aclose(self) -> None:
        """End all connections."""
        self._is_closed = True
        for link in self._links.values():
            if link.connection is not None:
                link.connection.close("this broker is stopping")
                await link.connection.wait_closed()
        self._links.clear()

    def _link_to(self, address: PeerAddress) -> _Link:
        link = self._links.get(address.broker_id)
        if link is not None and link.address == address:
            return link
        if link is not None and link.connection is not None:
            link.connection.close("the broker has another address now")
        link = self._links[address.broker_id] = _Link(address, Pauses(self._rng))
        return link

    async def _connection_of(self, link: _Link) -> PeerConnection:
        async with link.lock:
            if link.connection is not None and link.connection.is_open:
                return link.connection
            loop = asyncio.get_running_loop()
            if loop.time() < link.retry_at:
                raise PeerError(f"broker {link.address.broker_id} was not reached just now")
            try:
                link.connection = await self._connect(link.address)
            except (OSError, TimeoutError) as error:
                link.retry_at = loop.time() + link.pauses.next_s()
                why = f"broker {link.address.broker_id} cannot be reached: {error}"
                raise PeerError(why) from error
            link.pauses = Pauses(self._rng)
            return link.connection

    async def _connect(self, address: PeerAddress) -> PeerConnection:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
        self._connection_count += 1
        connection = PeerConnection(reader, writer, f"{self._process}#{self._connection_count}")
        if self._is_closed:
            connection.close("this broker is stopping")
        return connection
