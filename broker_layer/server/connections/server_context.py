"""Holds what all connections to one broker share: bounds, counters, buffers, and who they are.

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
    """What the server asks of a connection."""

    @property
    def is_idle(self) -> bool:
        """Tell whether every request was answered."""

    def overdue(self, now_s: float) -> str | None:
        """Name what the peer should long have done, or None."""

    def is_unused(self, now_s: float) -> bool:
        """Tell whether nothing has come for so long that the connection may go."""

    def stop_reading(self) -> None:
        """Take no further requests."""

    def drop(self, event: str, why: str) -> None:
        """Disconnect, with a line in the log."""

    def close(self) -> None:
        """Close when what was sent has left."""

    def abort(self) -> None:
        """Close at once."""


class ServerContext:
    """What connections share; belongs to one event loop."""

    def __init__(
        self,
        limits: BrokerLimits,
        counters: BrokerCounters,
        log: ServerLog,
        now: Callable[[], float],
        serve: Callable[[Exchange], None],
    ) -> None:
        """`serve` takes every request, and never waits."""
        self.limits = limits
        self.counters = counters
        self.log = log
        self.now = now
        self.serve = serve
        self.budget = MemoryBudget(limits.broker_bytes_max)
        self.announced = MemoryBudget(limits.broker_bytes_max // 2)
        """Of frames that have begun; small ones are not counted."""
        self.bodies = BodyPool(limits.bodies_bytes_max)
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.connections: dict[Connection, None] = {}
        self.is_closing = False
        self._connection_id = 0

    def next_connection_id(self) -> int:
        """Return a number that no other connection has had."""
        self._connection_id += 1
        return self._connection_id

    def connection_made(self, connection: Connection, transport: asyncio.Transport) -> bool:
        """Count a connection in, or turn it away."""
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
        """Count a connection out."""
        self.connections.pop(connection, None)
        self.counters.connections_now = len(self.connections)
