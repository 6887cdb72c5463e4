"""What a broker shows to operators: Prometheus metrics, its state and its partitions as JSON.

Leaves the port to `quire.server.admin`, counting to `server_limits`, the rows of partitions to
`control.partition_table`, and Prometheus's format to `quire.server.metrics`. Values are read only
when they are requested.

Invariant: every field of `BrokerCounters` has an item here; a test compares them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from aiohttp import web
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.connections import MemoryBudget
from broker_layer.server.server_limits import BrokerCounters
from quire.server.admin import Readiness, answer_live, readiness_handler
from quire.server.metrics import (
    counter,
    described_metric,
    gauge,
    histogram_metric,
    labelled_counter,
)
from quire.server.overriding import override

PARTITIONS_SHOWN_MAX: Final = 2_000
"""Maximum number of partitions with own series; the totals include all partitions."""
UNKNOWN: Final = -1
LEDGERS_SHOWN_MAX: Final = 20
"""Maximum number of a partition's ledgers with too few copies that are shown."""
PREFIX: Final = "quire_broker"
PLAIN: Final = {
    "connections_now": gauge("Connections of clients and other brokers that are open."),
    "connections_accepted": counter("Connections accepted."),
    "connections_refused": counter("Connections refused, at the limit or while closing."),
    "connections_refused_of_address": counter(
        "Connections refused because their address has too many, or makes them too fast."
    ),
    "peers_dropped": counter(
        "Connections closed because the client was too slow or sent bad frames."
    ),
    "bytes_received": counter("Bytes received on all connections."),
    "requests_failed": counter("Requests that failed unexpectedly; the log has a traceback."),
    "bad_frames": counter("Frames that could not be read; each closed its connection."),
    "reading_paused": counter("Number of times that reading from a connection was paused."),
    "connections_idle_closed": counter("Connections closed because nothing arrived for too long."),
    "throttled": counter("Number of times that a quota delayed a client."),
    "bytes_sent": counter("Bytes sent on all connections."),
    "produce_bytes": counter("Bytes of the record batches that producers sent and logs accepted."),
    "produce_batches": counter("Record batches that producers sent and logs accepted."),
    "produce_records": counter("Records in the batches that producers sent and logs accepted."),
    "fetch_bytes": counter("Bytes of record batches in the answers to Fetch requests."),
    "fetches_waiting_now": gauge("Fetch requests that wait for more records."),
    "fetch_sessions_now": gauge("Fetch sessions that are kept for clients (KIP-227)."),
}
"""`quire_broker_<name>`."""


class Labelled(NamedTuple):
    """A counter with one value for each value of a label."""

    name: str
    label: str
    text: str
    shown: Callable[[Any], str] = str
    """Returns the value of the label for a key of the counter's field."""


LABELLED: Final = {
    "requests_by_api": Labelled(
        "requests",
        "api",
        "Requests received, by the kind of the request.",
        lambda key: ApiKey(key).name.lower(),
    ),
    "throttles_by_quota": Labelled(
        "throttles",
        "quota",
        "Requests after which a client was paused, by the key of the quota.",
    ),
    "refused_logins_by_mechanism": Labelled(
        "logins_refused",
        "mechanism",
        "Logins refused: a wrong password, an unknown user or mechanism;"
        " by the mechanism, `none` without one that is enabled.",
    ),
    "errors_by_code": Labelled(
        "errors",
        "code",
        "Errors of partitions in answers to Produce and Fetch, by Kafka's code.",
        lambda key: ErrorCode(key).name.lower(),
    ),
}
"""`quire_broker_<name of the metric>`."""
LATENCIES: Final = {
    "produce_latency": "Seconds from the arrival of a Produce request to its answer.",
    "fetch_latency": "Seconds from the arrival of a Fetch request to its answer.",
}
"""Histograms: `quire_broker_<name>_seconds`."""
PARTITION: Final = {
    "high_watermark": "Offset after the newest committed record of a partition.",
    "log_end_offset": "Offset after the newest accepted record of a partition.",
    "log_start_offset": "Offset of the oldest record of a partition.",
}
"""`quire_broker_partition_<name>`, for partitions that this broker leads; -1 if not served."""


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
    future_offset: int = UNKNOWN
    """From here on, times in the future keep retention from removing records by their age."""
    future_until_ms: int = UNKNOWN
    """Until when they do, by the wall clock; UNKNOWN if there are none."""


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
        for name, row in LABELLED.items():
            counts = sorted(getattr(counters, name).items())
            shown = ((row.shown(key), count) for key, count in counts)
            yield labelled_counter(f"{PREFIX}_{row.name}", row.text, row.label, shown)
        for name, text in LATENCIES.items():
            yield histogram_metric(f"{PREFIX}_{name}_seconds", text, getattr(counters, name))
        yield from self._of_partitions()

    def _of_partitions(self) -> Iterator[Metric]:
        rows = self._partitions()
        totals = (
            ("partitions", "Partitions that this broker leads or should lead.", len(rows)),
            (
                "partitions_not_served",
                "Partitions that this broker should serve and does not.",
                sum(bool(partition.missing) for partition in rows),
            ),
            (
                "partitions_under_replicated",
                "Served partitions that have fewer copies of some records than they are to have.",
                sum(partition.is_short for partition in rows if not partition.missing),
            ),
            (
                "ledgers_under_replicated",
                "Ended ledgers of these partitions that have too few copies.",
                sum(partition.short_ledger_count for partition in rows),
            ),
            (
                "bytes_under_replicated",
                "Bytes of the entries of these ledgers that have too few copies, estimated.",
                sum(partition.short_bytes for partition in rows),
            ),
        )
        for name, text, total in totals:
            yield GaugeMetricFamily(f"{PREFIX}_{name}", text, total)
        for name, text in PARTITION.items():
            full_name = f"{PREFIX}_partition_{name}"
            family = GaugeMetricFamily(full_name, text, labels=["topic", "partition"])
            for row in rows[:PARTITIONS_SHOWN_MAX]:
                family.add_metric([row.topic, str(row.partition)], getattr(row, name))
            yield family


@dataclass(eq=False, repr=False)
class BrokerAdmin:
    """The routes of one broker's admin port, in addition to metrics."""

    _partitions: Callable[[], Sequence[LedPartition]]
    _readiness: Readiness
    _identity: Callable[[], Mapping[str, object]]

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes and their handlers."""
        return (
            web.get("/health", answer_live),
            web.get("/ready", readiness_handler(self._readiness)),
            web.get("/partitions", self._partition_list),
            web.get("/api/v1/state", self._state),
            web.get("/api/v1/partitions", self._partition_list),
        )

    async def _state(self, _: web.Request) -> web.Response:
        return web.json_response({**self._identity(), "ready": self._readiness() is None})

    async def _partition_list(self, _: web.Request) -> web.Response:
        rows = [asdict(partition) for partition in self._partitions()]
        return web.json_response({"partitions": rows})
