"""State shared by all connections of one broker: limits, counters, buffers and open connections.

Leaves each connection's frames to `connection`, and listening to `server`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from bookie.wire.bodies import BodyPool
from broker_layer.server.config import BrokerLimits
from broker_layer.server.connections.frame_assembler import RECEIVE_BUFFER_BYTES
from broker_layer.server.connections.memory_budget import MemoryBudget
from broker_layer.server.counters import BrokerCounters
from broker_layer.server.exchange import Exchange
from serving.server_log import ServerLog


class Connection(Protocol):
    """A connection, as the server uses it."""

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""

    def overdue(self, now_s: float) -> str | None:
        """Return what the peer has not done in time, or None."""

    def is_unused(self, now_s: float) -> bool:
        """Return whether the connection was idle for longer than the limit."""

    def stop_reading(self) -> None:
        """Stop reading requests."""

    def drop(self, event: str, why: str) -> None:
        """Disconnect, with a line in the log."""

    def close(self) -> None:
        """Close after the buffered answers are sent."""

    def abort(self) -> None:
        """Close at once."""


class ServerContext:
    """The state shared by connections; belongs to one event loop."""

    def __init__(
        self,
        limits: BrokerLimits,
        counters: BrokerCounters,
        log: ServerLog,
        now: Callable[[], float],
        serve: Callable[[Exchange], None],
    ) -> None:
        """`serve` receives every request, and never waits."""
        self.limits = limits
        self.counters = counters
        self.log = log
        self.now = now
        self.serve = serve
        self.budget = MemoryBudget(limits.broker_bytes_max)
        self.announced = MemoryBudget(limits.broker_bytes_max // 2)
        """Budget of unfinished frames; small ones are not counted."""
        self.bodies = BodyPool(limits.bodies_bytes_max)
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.connections: dict[Connection, None] = {}
        self.is_closing = False
        self._connection_id = 0

    def next_connection_id(self) -> int:
        """Return a number that no other connection has."""
        self._connection_id += 1
        return self._connection_id

    def connection_made(self, connection: Connection, transport: asyncio.Transport) -> bool:
        """Add a connection, or refuse it; return whether it was added."""
        if self.is_closing or len(self.connections) >= self.limits.connections_max:
            self.counters.connections_refused += 1
            self.log.warning("connection refused", connections=len(self.connections))
            transport.abort()
            return False
        self.counters.connections_accepted += 1
        self.connections[connection] = None
        self.counters.connections_now = len(self.connections)
        return True

    def connection_lost(self, connection: Connection) -> None:
        """Remove a connection."""
        self.connections.pop(connection, None)
        self.counters.connections_now = len(self.connections)
