"""State shared by all connections of one server: limits, counters and the open connections.

Leaves each connection to `quire.server.connection`, and listening, deadlines and draining to
`quire.server.listening`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quire.identity.fair_queue import FairQueue
from quire.server.address_limits import AddressLimits
from quire.server.answer_room import AnswerRoom
from quire.server.server_log import ServerLog
from quire.server.step_turns import StepTurns

if TYPE_CHECKING:
    from quire.server.connection import ServerConnection

COUNT_AGAIN_S: Final = 0.01


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

    write_stall_crowded_s: float = 2.0
    """The same, while answers of clients wait for room in `unsent_bytes_max`."""

    unsent_bytes_max: int = 128 * 1024 * 1024
    """Maximum bytes of all connections' answers that are being read or are not sent yet. Without
    room, reads wait, clients that take nothing meanwhile are disconnected, and so is one whose
    answer needs no wait and finds no room.
    """

    unsent_bytes_of_client_max: int = 64 * 1024 * 1024
    """The same of one client: a principal, or an address without one."""

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
        share = limits.unsent_bytes_of_client_max
        self.unsent = FairQueue(limits.unsent_bytes_max, share, limits.connections_max)
        """Account of the bytes of answers of all connections; each waits for one answer."""
        self._count_again_s = 0.0
        self.turns = StepTurns()
        """Turns among connections with more frames than are served at once."""

    def room_for(self, holder_of: Callable[[], str]) -> AnswerRoom:
        """Return the room of a new connection for answers."""
        limits = self.limits
        share = min(limits.unsent_bytes_max, limits.unsent_bytes_of_client_max)
        return AnswerRoom(self.unsent, share, holder_of)

    def count_unsent(self) -> None:
        """Count the unsent bytes of all connections again, because clients may have read; at most
        once in COUNT_AGAIN_S, as it takes a time for each connection.
        """
        now_s = self.now()
        if now_s < self._count_again_s:
            return
        self._count_again_s = now_s + COUNT_AGAIN_S
        for connection in list(self.connections):
            connection.count_unsent()

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
