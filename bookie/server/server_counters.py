"""Counters of a server, as plain integers that are cheap to update.

Leaves those that every server has to `quire.server.connection_context`, and the names of metrics to
`bookie.server.metrics`.
"""

from dataclasses import dataclass, field

from bookie.wire.messages import Status
from quire.server.connection_context import ConnectionCounters
from quire.server.latency import BOUNDS_S, LatencyCounts


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
