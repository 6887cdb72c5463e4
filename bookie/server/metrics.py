"""Prometheus metrics of one bookie.

Leaves counting to `bookie.server.server_counters` and the storage, help texts to
`bookie.server.metric_help`, and the format to `quire.server.metrics`. This code runs only for a
request of the metrics.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from bookie.identity.position import PositionKeeper
from bookie.server.metric_help import LATENCIES, POSITION, PREFIX, SCRUB, SERVER, STORAGE
from bookie.server.server_counters import ServerCounters
from bookie.storage.answers import StorageStatistics
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.writability import BLOCKS_NO_ADDS, Reason
from bookie.wire.messages import Status
from metadata.repair.scrub import ScrubRecord
from quire.server.metrics import described_metric, histogram_metric, labelled_counter
from quire.server.overriding import override


@dataclass(eq=False, repr=False)
class BookieMetrics(Collector):
    """Collector that reads the counters on request."""

    _bookie_id: str
    _counters: ServerCounters
    _storage: BookieStorage
    _position: PositionKeeper
    _scrub: Callable[[], ScrubRecord]

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield InfoMetricFamily(PREFIX, "This bookie.", {"bookie_id": self._bookie_id})
        yield from self._server()
        yield from self._writability()
        yield from self._statistics()
        yield from self._recorded_position()
        yield from self._scrubs()
        yield from self._disks()
        for name, latency in self._storage.latencies().items():
            full_name = f"{PREFIX}_storage_{name}_latency_seconds"
            yield histogram_metric(full_name, LATENCIES[name], latency)

    def _server(self) -> Iterator[Metric]:
        counters = self._counters
        yield _adds(counters.adds_by_status)
        yield _throttles(counters.throttles_by_quota)
        for name in ("add", "read"):
            full_name = f"{PREFIX}_{name}_latency_seconds"
            yield histogram_metric(full_name, LATENCIES[name], getattr(counters, f"{name}_latency"))
        for name, described in SERVER.items():
            yield described_metric(f"{PREFIX}_{name}", described, float(getattr(counters, name)))

    def _writability(self) -> Iterator[Metric]:
        writability = self._storage.writability
        family = GaugeMetricFamily(
            f"{PREFIX}_read_only",
            "1 while ordinary adds are refused for this reason, else 0.",
            labels=["reason"],
        )
        blocking = {each.reason for each in writability.conditions() if each.blocks_adds}
        for reason in Reason:
            if reason not in BLOCKS_NO_ADDS:
                family.add_metric([reason.value], float(reason in blocking))
        yield family
        yield GaugeMetricFamily(
            f"{PREFIX}_limbo",
            "1 while stored data may have been lost: an entry not found is UNKNOWN; else 0.",
            float(writability.has(Reason.LIMBO)),
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_metadata_old",
            "1 while the metadata service is older than it was: nothing is removed; else 0.",
            float(writability.has(Reason.METADATA_OLD)),
        )

    def _recorded_position(self) -> Iterator[Metric]:
        position = self._position
        values = {"age_seconds": position.age_s, "unrecorded_bytes": position.unrecorded_bytes}
        for name, text in POSITION.items():
            yield GaugeMetricFamily(f"{PREFIX}_position_{name}", text, float(values[name]))

    def _scrubs(self) -> Iterator[Metric]:
        record = self._scrub()
        values = {"running": record.position is not None, "ended_seconds": record.ended_ms / 1000}
        for name, text in SCRUB.items():
            yield GaugeMetricFamily(f"{PREFIX}_scrub_{name}", text, float(values[name]))

    def _disks(self) -> Iterator[Metric]:
        spaces = self._storage.disk_spaces
        for which in ("free", "total"):
            family = GaugeMetricFamily(
                f"{PREFIX}_directory_{which}_bytes",
                f"{which.capitalize()} bytes of the file system that holds a directory.",
                labels=["directory"],
            )
            for name, space in spaces.items():
                family.add_metric([name], float(getattr(space, f"{which}_bytes")))
            yield family

    def _statistics(self) -> Iterator[Metric]:
        statistics = self._storage.statistics()
        for each in fields(StorageStatistics):
            value = float(getattr(statistics, each.name))
            name = f"{PREFIX}_storage_{each.name}"
            yield described_metric(name, STORAGE[each.name], value)


def _adds(by_status: list[int]) -> Metric:
    counts = ((status.name.lower(), by_status[status]) for status in Status)
    text = "Batches answered, by the status of the answer."
    return labelled_counter(f"{PREFIX}_adds", text, "status", counts)


def _throttles(by_key: Mapping[str, int]) -> Metric:
    text = "Pauses of connections because of a quota, by its key."
    return labelled_counter(f"{PREFIX}_throttles", text, "quota", sorted(by_key.items()))
