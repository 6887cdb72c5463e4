"""The connection to one other broker, replaced when it ends and before its login does.

Leaves connecting and logging in to `peer`, and calls to `peer_connection`.

Invariants: one connection at a time takes calls. Before its login ends, another one logs in beside
it and takes its place, so no call waits for that login or fails because of it. The replaced one is
closed after its answers, or when the next one is replaced. After a failed attempt the next one
follows after a pause; calls during the pause fail at once with the reason of that attempt, unless a
connection is open.

Source: KIP-368 (logins that end).
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.peer_connection import PeerConnection, PeerError
from metadata.backoff import Backoff
from quire.identity.errors import SecurityError

LOGIN_USED: Final = 0.8
"""Part of the time of a login after which the next connection logs in."""
LOGIN_PAUSE_S_MAX: Final = 10.0
"""Longest pause between attempts to log in before a login ends."""
LOGIN_DUE: Final = "another login is due"
"""Why a connection is replaced."""

UNREACHED: Final = (OSError, EOFError, TimeoutError, UnicodeError, SecurityError, KafkaFrameError)
"""Errors of an attempt to connect. UnicodeError: what a broker advertises is no name of a host."""

Connect = Callable[[], Awaitable[tuple[PeerConnection, float]]]
"""Returns a new connection that is logged in, and for how many seconds its login holds: infinity if
it does not end. Raises one of UNREACHED.
"""

_log = logging.getLogger(__name__)


class PeerLink:
    """The connection to one broker that takes calls."""

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
        return [each for each in (self._leaving, self.current) if each is not None]

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
