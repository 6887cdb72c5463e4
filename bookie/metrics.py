"""Names a bookie's counters for Prometheus.

Leaves counting to `bookie.server_counters` and the storage, and the format to `serving.metrics`:
nothing here runs unless somebody asks.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from bookie.answers import StorageStatistics
from bookie.server_counters import ServerCounters
from bookie.wire.messages import Status
from serving.metrics import counter_metric, labelled_counter
from serving.overriding import override

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

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield InfoMetricFamily("quire_bookie", "this bookie", {"bookie_id": self._bookie_id})
        yield from self._server()
        yield from self._storage()

    def _server(self) -> Iterator[Metric]:
        for each in fields(ServerCounters):
            if each.name == "adds_by_status":
                yield _adds(self._counters.adds_by_status)
            else:
                value = getattr(self._counters, each.name)
                yield counter_metric("quire_bookie", each.name, value)

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
    counts = ((status.name.lower(), by_status[status]) for status in Status)
    return labelled_counter("quire_bookie_adds", "answers to adds", "status", counts)
