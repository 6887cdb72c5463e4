"""Prometheus metrics of a broker.

Leaves counting to `counters`, the partitions' state to `PartitionTable`, and the format to
`serving.metrics`. Values are read only when metrics are requested.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Protocol

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.connections.memory_budget import MemoryBudget
from broker_layer.server.counters import BrokerCounters
from serving.metrics import counter_metric, labelled_counter
from serving.overriding import override

PARTITIONS_SHOWN_MAX: Final = 2_000
"""Maximum number of partitions with own series; the totals include all partitions."""


class PartitionRow(Protocol):
    """State of one partition that this broker leads or should lead, as metrics show it."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def partition(self) -> int:
        """Its number."""

    @property
    def high_watermark(self) -> int:
        """-1 while it is not served."""

    @property
    def log_end_offset(self) -> int:
        """-1 while it is not served."""

    @property
    def log_start_offset(self) -> int:
        """-1 while it is not served."""

    @property
    def replica_count(self) -> int:
        """The number of its replicas."""

    @property
    def in_sync_count(self) -> int:
        """The number of replicas in sync."""

    @property
    def missing(self) -> str:
        """The reason why it is not served; empty if it is served."""

    def as_json(self) -> Mapping[str, object]:
        """Return all known values of the partition."""


class PartitionTable(Protocol):
    """Table of partitions."""

    def rows(self) -> Sequence[PartitionRow]:
        """Return the partitions that this broker leads or should lead."""


@dataclass(eq=False, repr=False)
class BrokerMetrics(Collector):
    """Collector of a broker's metrics."""

    _broker_id: int
    _counters: BrokerCounters
    _budget: MemoryBudget
    _partitions: PartitionTable

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        identity = {"broker_id": str(self._broker_id)}
        yield InfoMetricFamily("quire_broker", "this broker", identity)
        used = self._budget.used_bytes
        yield GaugeMetricFamily("quire_broker_request_bytes", "bytes of requests in memory", used)
        for each in fields(BrokerCounters):
            yield self._counter(each.name)
        yield from self._of_partitions()

    def _counter(self, name: str) -> Metric:
        value = getattr(self._counters, name)
        if name == "requests_by_api":
            return _by_api(value)
        if name == "errors_by_code":
            return _by_code(value)
        return counter_metric("quire_broker", name, value)

    def _of_partitions(self) -> Iterator[Metric]:
        rows = self._partitions.rows()
        missing = sum(bool(each.missing) for each in rows)
        lagging = sum(each.in_sync_count < each.replica_count for each in rows if not each.missing)
        text = "partitions that this broker leads or should lead"
        yield GaugeMetricFamily("quire_broker_partitions", text, len(rows))
        text = "such partitions that are not served"
        yield GaugeMetricFamily("quire_broker_partitions_not_served", text, missing)
        text = "served partitions with fewer replicas in sync than replicas"
        yield GaugeMetricFamily("quire_broker_partitions_under_replicated", text, lagging)
        for name in ("high_watermark", "log_end_offset", "log_start_offset"):
            family = GaugeMetricFamily(
                f"quire_broker_partition_{name}", "of one partition", labels=["topic", "partition"]
            )
            for row in rows[:PARTITIONS_SHOWN_MAX]:
                family.add_metric([row.topic, str(row.partition)], getattr(row, name))
            yield family


def _by_api(by_key: Mapping[int, int]) -> Metric:
    counts = ((ApiKey(key).name.lower(), count) for key, count in sorted(by_key.items()))
    return labelled_counter("quire_broker_requests", "requests received", "api", counts)


def _by_code(by_code: Mapping[int, int]) -> Metric:
    counts = ((ErrorCode(code).name.lower(), count) for code, count in sorted(by_code.items()))
    return labelled_counter("quire_broker_errors", "errors of partitions", "code", counts)
