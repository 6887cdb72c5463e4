"""Limits of a broker's server.

Leaves those that every server has to `quire.server.connection_context`, reading them from a file to
`options`, and the limits of a topic to `log.settings`.
"""

from dataclasses import dataclass
from typing import Final

from quire.server.connection_context import ConnectionLimits

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits(ConnectionLimits):
    """Limits of one broker, and of one connection to it."""

    connections_max: int = 10_000
    frame_bytes_max: int = 100 * MIB
    """Kafka's `socket.request.max.bytes`."""

    requests_in_flight_max: int = 1024
    """Maximum number of unanswered requests per connection; then nothing more is read from it. A
    client that sends small batches has as many in flight as it sends during one sync: 200 at
    10,000 batches/s and 20 ms.
    """

    connection_bytes_max: int = 64 * MIB
    """Maximum number of bytes of unanswered requests of one connection; one frame may be larger."""

    request_bytes_max: int = 512 * MIB
    """Maximum number of bytes of unanswered requests of all connections; then nothing more is read.
    Unfinished large frames may use half as much in addition; then no other large frame is read.
    """

    bodies_bytes_max: int = 64 * MIB
    """Maximum number of bytes of large frames' buffers that are kept for reuse."""

    write_stall_s: float = 60.0
    unsent_bytes_max: int = 256 * MIB
    unsent_bytes_of_client_max: int = 128 * MIB
    frame_bytes_per_s_min: int = 256 * KIB
    """A frame gets time for its size, at this rate, in addition to `frame_deadline_s`."""

    idle_s_max: float = 600.0
    """Kafka's `connections.max.idle.ms`."""

    fetch_bytes_max: int = 55 * MIB
    """Maximum size of one answer, whatever the client requests; one batch is always returned
    complete.
    """

    fetch_wait_s_max: float = 300.0
    fetch_reads_at_once: int = 16
    fetch_sessions_max: int = 10_000
    fetch_session_partitions_max: int = 1_000_000
    """Maximum number of partitions in all sessions together."""

    produce_bytes_per_s: int = 0
    """Produce quota of one client id without a quota in the metadata; 0: no limit."""

    fetch_bytes_per_s: int = 0
    """Fetch quota of one client id without a quota in the metadata; 0: no limit."""
