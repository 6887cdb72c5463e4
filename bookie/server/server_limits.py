"""Limits of a bookie's server.

Leaves those that every server has to `quire.server.connection_context`, and the limits of the
storage to `bookie.config`.
"""

from dataclasses import dataclass

from bookie.wire.batch import ENTRY_BYTES_MAX
from bookie.wire.frames import FRAME_BYTES_MAX
from quire.server.connection_context import ConnectionLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits(ConnectionLimits):
    """Limits of one server and of one connection to it."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    entry_bytes_max: int = ENTRY_BYTES_MAX
    read_bytes_max: int = 8 * 1024 * 1024
    """Maximum bytes of one answer; it has at least one complete batch."""

    hello_deadline_s: float = 10.0
    bodies_bytes_max: int = 96 * 1024 * 1024
    """Maximum size of the reused buffers for large frames. The default covers the buffers that the
    queue of adds and the recent entries keep.
    """

    attached_ledgers_max: int = 100_000
    """Per connection."""

    requests_running_max: int = 64
    """Maximum number of running requests per connection, without those answered from memory."""

    requests_running_bytes_max: int = 32 * 1024 * 1024
    requests_waiting_max: int = 1_024
    """Maximum number of waiting requests per connection; at this number, reading pauses."""

    long_polls_per_connection_max: int = 20_000
    long_polls_max: int = 100_000
    ranges_per_answer_max: int = 10_000
