"""Names every bound of a broker's server.

Leaves reading them from a file to `options`, and the bounds of a topic to `topic_configs`.
"""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """What one broker, and one connection to it, may use."""

    connections_max: int = 10_000
    frame_bytes_max: int = 100 * MIB
    """Kafka's `socket.request.max.bytes`."""

    requests_in_flight_max: int = 1024
    """Per connection; at this nothing more is read from it. Who sends small batches has as many
    under way as it sends while one is synced: at 10,000/s and 20 ms these are 200.
    """

    connection_bytes_max: int = 64 * MIB
    """Requests of one connection that are not answered; one frame may be larger."""

    broker_bytes_max: int = 512 * MIB
    """The same of all connections; then nothing more is read. Large frames that have begun may be
    half as much again; then no other one is read.
    """

    bodies_bytes_max: int = 64 * MIB
    """Buffers of large frames that are kept to be used again."""

    write_buffer_bytes_max: int = 4 * MIB
    """Above this nothing more is read from the peer, nor looked up for it."""

    write_stall_s: float = 60.0
    """A peer that does not read its answers for so long is disconnected."""

    frame_deadline_s: float = 30.0
    """A frame that has begun must be whole within this, and more time for a large one."""

    frame_bytes_per_s_min: int = 256 * KIB
    """How much more: its size at this rate."""

    idle_s_max: float = 600.0
    """Kafka's `connections.max.idle.ms`."""

    sweep_interval_s: float = 1.0
    drain_timeout_s: float = 10.0
    fetch_bytes_max: int = 55 * MIB
    """Of one answer, whatever the client asks for; one batch is always returned whole."""

    fetch_wait_s_max: float = 300.0
    fetch_reads_at_once: int = 16
    fetch_sessions_max: int = 10_000
    fetch_session_partitions_max: int = 1_000_000
    """In all sessions together."""

    produce_bytes_per_s: int = 0
    """Of one client id; 0: not limited."""

    fetch_bytes_per_s: int = 0
