"""Names every bound of a bookie's server.

Leaves the bounds of what is stored to `bookie.storage.bookie_storage`.
"""

from dataclasses import dataclass

from bookie.wire.frames import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one server, and one connection to it, may use."""

    connections_max: int = 1_000
    frame_bytes_max: int = FRAME_BYTES_MAX
    entry_bytes_max: int = 8 * 1024 * 1024
    read_bytes_max: int = 8 * 1024 * 1024
    """Of one answer; one batch is always returned whole."""

    hello_deadline_s: float = 10.0
    frame_deadline_s: float = 30.0
    """A frame that has begun must be whole within this."""

    write_stall_s: float = 30.0
    """A peer that does not read its answers for so long is disconnected."""

    write_buffer_bytes_max: int = 4 * 1024 * 1024
    """Above this nothing more is read from the peer, nor looked up for it."""

    unread_bytes_max: int = 128 * 1024 * 1024
    """Of all connections together, looked at in each sweep; above it, those who have left most
    unread are disconnected."""

    bodies_bytes_max: int = 96 * 1024 * 1024
    """Buffers of large frames that are kept to be used again: what the queue of adds and the recent
    entries hold of them together."""

    sweep_interval_s: float = 1.0
    attached_ledgers_max: int = 100_000
    """Per connection."""

    requests_running_max: int = 64
    """Per connection: what needs more than a look into memory."""

    requests_running_bytes_max: int = 32 * 1024 * 1024
    requests_waiting_max: int = 1_024
    """Per connection; at this nothing more is read from it."""

    long_polls_per_connection_max: int = 20_000
    long_polls_max: int = 100_000
    ranges_per_answer_max: int = 10_000
    drain_timeout_s: float = 10.0
