"""Counters of a broker's server.

Leaves counters of connections to `quire.server.connection_context`, and the kinds and help texts to
`metric_help`.
"""

from dataclasses import dataclass, field
from typing import Final

from quire.server.connection_context import ConnectionCounters
from quire.server.latency import LatencyCounts

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
