"""State shared by all connections of one broker: buffers and budgets of memory.

Leaves the open connections to `quire.server.connection_context`, each connection's frames to
`connection`, and listening to `server`.
"""

from collections.abc import Callable

from bookie.wire.bodies import BodyPool
from broker_layer.server.config import BrokerLimits
from broker_layer.server.connections.frame_assembler import RECEIVE_BUFFER_BYTES
from broker_layer.server.connections.memory_budget import MemoryBudget
from broker_layer.server.counters import BrokerCounters
from broker_layer.server.exchange import Exchange
from quire.server.connection_context import ConnectionContext
from quire.server.server_log import ServerLog


class ServerContext(ConnectionContext):
    """The state shared by connections; belongs to one event loop."""

    limits: BrokerLimits
    counters: BrokerCounters

    def __init__(
        self,
        limits: BrokerLimits,
        counters: BrokerCounters,
        log: ServerLog,
        now: Callable[[], float],
        serve: Callable[[Exchange], None],
    ) -> None:
        """`serve` receives every request, and never waits."""
        super().__init__(limits, counters, log, now)
        self.serve = serve
        self.budget = MemoryBudget(limits.request_bytes_max)
        self.announced = MemoryBudget(limits.request_bytes_max // 2)
        """Budget of unfinished frames; small ones are not counted."""
        self.bodies = BodyPool(limits.bodies_bytes_max)
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.note_closed: Callable[[int], None] = lambda _: None
        """Called with the id of each connection that is closed."""
        self._connection_id = 0

    def next_connection_id(self) -> int:
        """Return a number that no other connection has."""
        self._connection_id += 1
        return self._connection_id
