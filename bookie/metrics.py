"""Names a bookie's counters for Prometheus.

Leaves counting to `bookie.server_counters` and the storage: nothing here runs unless somebody asks.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from bookie.answers import StorageStatistics
from bookie.server_counters import LATENCY_BOUNDS_S, LatencyCounts, ServerCounters
from bookie.wire.messages import Status
from serving.overriding import override

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_STORAGE_GAUGES: Final = (
    "queue_bytes",
    "ledgers",
    "segments",
    "segment_bytes",
    "live_bytes",
    "runs_in_memory",
    "records_since_checkpoint",
    "checkpoint_mark",
    "log_end",
    "recent_bytes",
    "damaged_ranges",
    "disk_total_bytes",
    "disk_free_bytes",
    "is_writable",
    "is_limbo",
)


class BookieMetrics(Collector):
    """Reads the counters when it is asked to."""

    def __init__(
        self,
        bookie_id: str,
        counters: ServerCounters,
        statistics: Callable[[], StorageStatistics],
    ) -> None:
        self._bookie_id = bookie_id
        self._counters = counters
        self._statistics = statistics
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return every metric in Prometheus's text format."""
        return generate_latest(self._registry)

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield InfoMetricFamily("quire_bookie", "this bookie", {"bookie_id": self._bookie_id})
        yield from self._server()
        yield from self._storage()

    def _server(self) -> Iterator[Metric]:
        for each in fields(ServerCounters):
            value = getattr(self._counters, each.name)
            name = f"quire_bookie_{each.name}"
            if each.name == "adds_by_status":
                yield _adds(self._counters.adds_by_status)
            elif isinstance(value, LatencyCounts):
                yield _histogram(f"{name}_seconds", value)
            elif each.name.endswith("_now"):
                text = each.name.removesuffix("_now").replace("_", " ")
                yield GaugeMetricFamily(name, f"{text} at this moment", value)
            else:
                yield CounterMetricFamily(name, each.name.replace("_", " "), value)

    def _storage(self) -> Iterator[Metric]:
        statistics = self._statistics()
        for each in fields(StorageStatistics):
            name, text = f"quire_bookie_storage_{each.name}", each.name.replace("_", " ")
            value = float(getattr(statistics, each.name))
            if each.name in _STORAGE_GAUGES:
                yield GaugeMetricFamily(name, text, value)
            else:
                yield CounterMetricFamily(name, text, value)


def _adds(by_status: list[int]) -> Metric:
    family = CounterMetricFamily("quire_bookie_adds", "answers to adds", labels=["status"])
    for status in Status:
        family.add_metric([status.name.lower()], by_status[status])
    return family


def _histogram(name: str, latency: LatencyCounts) -> Metric:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip([*map(str, LATENCY_BOUNDS_S), "+Inf"], latency.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(name, "from arrival to answer", buckets, latency.sum_s)
