"""Limits of a bookie's server, and its counters, as plain integers that are cheap to update.

Leaves those that every server has to `quire.server.connection_context`, the limits of the storage
to `bookie.config`, and the names of metrics to `bookie.server.metrics`.
"""

from dataclasses import dataclass, field

from bookie.wire.batch import ENTRY_BYTES_MAX
from bookie.wire.frames import FRAME_BYTES_MAX
from bookie.wire.messages import Status
from quire.server.connection_context import ConnectionCounters, ConnectionLimits
from quire.server.latency import BOUNDS_S, LatencyCounts


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


@dataclass(slots=True)
class ServerCounters(ConnectionCounters):
    """Counters since the start of the process; `*_now` are gauges."""

    hellos_refused: int = 0
    logins_refused: int = 0
    refused_by_roles: int = 0
    requests: int = 0
    bad_requests: int = 0
    ack_frames: int = 0
    reads_from_memory: int = 0
    reads_from_disk: int = 0
    long_polls_now: int = 0
    long_polls_woken: int = 0
    long_polls_expired: int = 0
    throttles_by_quota: dict[str, int] = field(default_factory=dict)
    adds_by_status: list[int] = field(default_factory=lambda: [0] * (max(Status) + 1))
    add_latency: LatencyCounts = field(default_factory=lambda: LatencyCounts(BOUNDS_S))
    read_latency: LatencyCounts = field(default_factory=lambda: LatencyCounts(BOUNDS_S))

    def note_throttle(self, quota: str) -> None:
        """Count a pause because of a quota."""
        self.throttles_by_quota[quota] = self.throttles_by_quota.get(quota, 0) + 1
