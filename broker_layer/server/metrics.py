"""Prometheus metrics of a broker.

Leaves counting to `counters`, the partitions' state to `control.partition_table`, help texts to
`metric_help`, and the format to `quire.server.metrics`. Values are read only when metrics are
requested.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.connections.memory_budget import MemoryBudget
from broker_layer.server.counters import BrokerCounters
from broker_layer.server.metric_help import LABELLED, LATENCIES, PARTITION, PLAIN, PREFIX
from quire.server.metrics import described_metric, histogram_metric, labelled_counter
from quire.server.overriding import override

PARTITIONS_SHOWN_MAX: Final = 2_000
"""Maximum number of partitions with own series; the totals include all partitions."""
UNKNOWN: Final = -1
LEDGERS_SHOWN_MAX: Final = 20
"""Maximum number of a partition's ledgers with too few copies that are shown."""


@dataclass(frozen=True, slots=True)
class ShortLedger:
    """An ended ledger that has too few copies."""

    ledger_id: int
    entry_count: int
    """Entries with fewer copies than they are to have; 0 if only a job of repair names it."""
    size_bytes: int
    """Bytes of these entries, estimated."""
    why: str


@dataclass(frozen=True, slots=True)
class LedPartition:
    """One partition that a broker leads or should lead. Numbers are UNKNOWN while it is not served,
    and for coordinators' state.
    """

    topic: str
    partition: int
    leader_epoch: int
    stage: str
    missing: str
    """Why it is not served; empty if it is."""

    since_s: float
    """Time since its stage changed, in seconds."""

    log_start_offset: int = UNKNOWN
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_end_offset: int = UNKNOWN
    size_bytes: int = UNKNOWN
    replicas: tuple[str, ...] = ()
    in_sync: tuple[str, ...] = ()
    is_short: bool = False
    """Whether it is under-replicated."""
    short_ledgers: tuple[ShortLedger, ...] = ()
    """The first LEDGERS_SHOWN_MAX ended ledgers that have too few copies."""
    short_ledger_count: int = 0
    short_bytes: int = 0

    @property
    def replica_count(self) -> int:
        """Number of bookies that store it."""
        return len(self.replicas)

    @property
    def in_sync_count(self) -> int:
        """Number of those that are in sync."""
        return len(self.in_sync)

    def as_json(self) -> Mapping[str, object]:
        """Return all fields."""
        return asdict(self)


@dataclass(eq=False, repr=False)
class BrokerMetrics(Collector):
    """Collector of a broker's metrics."""

    _broker_id: int
    _counters: BrokerCounters
    _budget: MemoryBudget
    _partitions: Callable[[], Sequence[LedPartition]]

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        identity = {"broker_id": str(self._broker_id)}
        yield InfoMetricFamily(PREFIX, "This broker.", identity)
        used = self._budget.used_bytes
        yield GaugeMetricFamily(f"{PREFIX}_request_bytes", "Bytes of requests in memory.", used)
        counters = self._counters
        for name, described in PLAIN.items():
            yield described_metric(f"{PREFIX}_{name}", described, getattr(counters, name))
        yield _by_api(counters.requests_by_api)
        yield _by_quota(counters.throttles_by_quota)
        yield _by_mechanism(counters.refused_logins_by_mechanism)
        yield _by_code(counters.errors_by_code)
        for name, text in LATENCIES.items():
            yield histogram_metric(f"{PREFIX}_{name}_seconds", text, getattr(counters, name))
        yield from self._of_partitions()

    def _of_partitions(self) -> Iterator[Metric]:
        rows = self._partitions()
        missing = sum(bool(each.missing) for each in rows)
        short = sum(each.is_short for each in rows if not each.missing)
        text = "Partitions that this broker leads or should lead."
        yield GaugeMetricFamily(f"{PREFIX}_partitions", text, len(rows))
        text = "Partitions that this broker should serve and does not."
        yield GaugeMetricFamily(f"{PREFIX}_partitions_not_served", text, missing)
        text = "Served partitions that have fewer copies of some records than they are to have."
        yield GaugeMetricFamily(f"{PREFIX}_partitions_under_replicated", text, short)
        ledgers = sum(each.short_ledger_count for each in rows)
        text = "Ended ledgers of these partitions that have too few copies."
        yield GaugeMetricFamily(f"{PREFIX}_ledgers_under_replicated", text, ledgers)
        size_bytes = sum(each.short_bytes for each in rows)
        text = "Bytes of the entries of these ledgers that have too few copies, estimated."
        yield GaugeMetricFamily(f"{PREFIX}_bytes_under_replicated", text, size_bytes)
        for name, text in PARTITION.items():
            full_name = f"{PREFIX}_partition_{name}"
            family = GaugeMetricFamily(full_name, text, labels=["topic", "partition"])
            for row in rows[:PARTITIONS_SHOWN_MAX]:
                family.add_metric([row.topic, str(row.partition)], getattr(row, name))
            yield family


def _by_api(by_key: Mapping[int, int]) -> Metric:
    counts = ((ApiKey(key).name.lower(), count) for key, count in sorted(by_key.items()))
    return labelled_counter(f"{PREFIX}_requests", LABELLED["requests_by_api"], "api", counts)


def _by_quota(by_key: Mapping[str, int]) -> Metric:
    text = LABELLED["throttles_by_quota"]
    return labelled_counter(f"{PREFIX}_throttles", text, "quota", sorted(by_key.items()))


def _by_mechanism(by_name: Mapping[str, int]) -> Metric:
    text = LABELLED["refused_logins_by_mechanism"]
    rows = sorted(by_name.items())
    return labelled_counter(f"{PREFIX}_logins_refused", text, "mechanism", rows)


def _by_code(by_code: Mapping[int, int]) -> Metric:
    counts = ((ErrorCode(code).name.lower(), count) for code, count in sorted(by_code.items()))
    return labelled_counter(f"{PREFIX}_errors", LABELLED["errors_by_code"], "code", counts)
