"""State shared by all connections of one server: limits, counters and the open connections.

Leaves each connection to `serving.connection`, and listening, deadlines and draining to
`serving.listening`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.address_limits import AddressLimits
from serving.server_log import ServerLog

if TYPE_CHECKING:
    from serving.connection import ServerConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits that every server has for its connections."""

    connections_max: int = 1_000
    connections_per_address_max: int = 0
    """Maximum number of open connections from one address; 0: no limit."""

    write_buffer_bytes_max: int = 4 * 1024 * 1024
    """Unsent bytes above which no requests are read from the client and no reads are started."""

    write_stall_s: float = 30.0
    """A client that does not read its answers for this long is disconnected."""

    frame_deadline_s: float = 30.0
    """Maximum time from the first byte of a frame to its end."""

    sweep_interval_s: float = 1.0
    """Time between two checks of all deadlines."""

    drain_timeout_s: float = 10.0
    """Maximum time that a closing server waits for answers."""


@dataclass(slots=True)
class ConnectionCounters:
    """Counters that every server has, since the start of the process; `*_now` are gauges."""

    connections_now: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    connections_refused_of_address: int = 0
    peers_dropped: int = 0
    bytes_received: int = 0
    requests_failed: int = 0
    bad_frames: int = 0
    reading_paused: int = 0


class ConnectionContext:
    """State shared by connections, for one event loop."""

    def __init__(
        self,
        limits: ConnectionLimits,
        counters: ConnectionCounters,
        log: ServerLog,
        now: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.counters = counters
        self.log = log
        self.now = now
        self.is_closing = False
        self.addresses = AddressLimits(limits.connections_per_address_max)
        self.connections: dict[ServerConnection, None] = {}

    def connection_made(self, connection: "ServerConnection") -> None:
        """Add a new connection, or refuse it."""
        if self.is_closing or len(self.connections) >= self.limits.connections_max:
            self.counters.connections_refused += 1
            self.log.warning("connection refused", connections=len(self.connections))
            connection.abort()
            return
        why = self.addresses.refusal(connection.address, self.now())
        if why is not None:
            self.counters.connections_refused_of_address += 1
            self.log.warning("connection refused", peer=connection.address, reason=why)
            connection.abort()
            return
        self.counters.connections_accepted += 1
        self.connections[connection] = None
        self.counters.connections_now = len(self.connections)

    def connection_lost(self, connection: "ServerConnection") -> None:
        """Remove a connection."""
        if connection not in self.connections:
            return  # it was refused
        del self.connections[connection]
        self.addresses.release(connection.address)
        self.counters.connections_now = len(self.connections)

    def abort_connections(self) -> None:
        """Close every connection at once and accept no more, so that no answer is sent."""
        self.is_closing = True
        for connection in list(self.connections):
            connection.abort()
