"""Prometheus metrics of one gateway.

This code runs only for a request of the metrics.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from quire.gateway.limits import GatewayCounters
from quire.server.metrics import MetricHelp, counter, described_metric, gauge, labelled_counter
from quire.server.overriding import override

PREFIX: Final = "quire_gateway"
METRICS: Final[Mapping[str, MetricHelp]] = MappingProxyType(
    {
        "connections_now": gauge("Open connections."),
        "connections_accepted": counter("Connections accepted."),
        "connections_refused": counter("Connections refused because there were too many."),
        "connections_refused_of_address": counter(
            "Connections refused because their address had too many."
        ),
        "peers_dropped": counter("Clients disconnected because they missed a deadline or a limit."),
        "bytes_received": counter("Bytes received."),
        "bad_frames": counter("Connections ended by bytes that are no request."),
        "hellos_refused": counter("Hellos refused."),
        "sessions_now": gauge("Sessions of clients, with those whose connection is lost."),
        "sessions_expired": counter(
            "Sessions that ended because the client was not heard, or ZooKeeper was not."
        ),
        "watches_now": gauge("Watches of clients."),
        "requests": counter("Requests received."),
        "reads": counter("Requests that read metadata."),
        "writes": counter("Requests that change metadata."),
        "requests_failed": counter("Requests that failed by a defect of the gateway."),
        "reading_paused": counter("Pauses of reading because a client has too much under way."),
    }
)


class GatewayMetrics(Collector):
    """Collector that reads the counters on request."""

    def __init__(self, counters: GatewayCounters) -> None:
        self._counters = counters

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        for name, described in METRICS.items():
            value = float(getattr(self._counters, name))
            yield described_metric(f"{PREFIX}_{name}", described, value)
        yield labelled_counter(
            f"{PREFIX}_requests_refused",
            "Requests refused because the client does not have the right, by kind.",
            "kind",
            self._counters.requests_refused.items(),
        )
