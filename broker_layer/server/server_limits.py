"""Limits of a broker's server, and its counters.

Leaves those that every server has to `quire.server.connection_context`, reading limits from a file
to `options`, the limits of a topic to `log.topic_configs`, and the names of metrics to `admin`.
"""

from dataclasses import dataclass, field
from typing import Final

from quire.server.connection_context import ConnectionCounters, ConnectionLimits
from quire.server.latency import LatencyCounts

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


LATENCY_BOUNDS_S: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0
)  # fmt: skip


def _no_latencies() -> LatencyCounts:
    return LatencyCounts(LATENCY_BOUNDS_S)


@dataclass(slots=True)
class BrokerCounters(ConnectionCounters):
    """Counts since the start of the process. Names that end in `_now` are present numbers."""

    connections_idle_closed: int = 0
    throttled: int = 0
    bytes_sent: int = 0
    produce_bytes: int = 0
    produce_batches: int = 0
    produce_records: int = 0
    fetch_bytes: int = 0
    fetches_waiting_now: int = 0
    fetch_sessions_now: int = 0
    requests_by_api: dict[int, int] = field(default_factory=dict)
    throttles_by_quota: dict[str, int] = field(default_factory=dict)
    refused_logins_by_mechanism: dict[str, int] = field(default_factory=dict)
    errors_by_code: dict[int, int] = field(default_factory=dict)
    """Errors of partitions in answers to Produce and Fetch."""

    produce_latency: LatencyCounts = field(default_factory=_no_latencies)
    fetch_latency: LatencyCounts = field(default_factory=_no_latencies)

    def note_request(self, api_key: int) -> None:
        """Count a request."""
        self.requests_by_api[api_key] = self.requests_by_api.get(api_key, 0) + 1

    def note_throttle(self, quota: str) -> None:
        """Count a pause because of a quota."""
        self.throttles_by_quota[quota] = self.throttles_by_quota.get(quota, 0) + 1

    def note_refused_login(self, mechanism: str) -> None:
        """Count a refused login."""
        counts = self.refused_logins_by_mechanism
        counts[mechanism] = counts.get(mechanism, 0) + 1

    def note_error(self, code: int) -> None:
        """Count an error of a partition."""
        self.errors_by_code[code] = self.errors_by_code.get(code, 0) + 1
