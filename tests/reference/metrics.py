"""Page of every metric of each kind of server, from what their collectors yield."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final

from prometheus_client import Metric

from bookie.server.metrics import BookieMetrics
from bookie.server.server_limits import ServerCounters
from broker_layer.server.admin import BrokerMetrics
from broker_layer.server.connections import MemoryBudget
from broker_layer.server.server_limits import BrokerCounters
from metadata.repair.scrub import NEVER_SCRUBBED
from quire.console.cluster_metrics import FAULTY_LABELS, BrokersSeen, ClusterMetrics
from quire.gateway.limits import GatewayCounters
from quire.gateway.metrics import GatewayMetrics
from quire.server.metrics import ProcessMetrics
from tests.reference.markdown import code, page, prose, table
from tests.support.bookie.manual_storage import ManualStorage
from tests.support.quire.cluster_samples import sample_repair, sample_survey

INTRODUCTION: Final = """\
`GET /metrics` of the admin port is in Prometheus's text format. Counters count from the start
of the process. Which ones to watch is in [operating.md](../operating.md#metrics-of-a-bookie)."""
OF_CLUSTER: Final = """\
Metrics of the complete cluster, of any one console (`quire console`). A figure that is not known is
absent: an alert on it needs one on its absence too."""
LABELS: Final = {
    "quire_cluster_server_faulty": FAULTY_LABELS,
    "quire_broker_requests": ("api",),
    "quire_broker_errors": ("code",),
    "quire_broker_partition_high_watermark": ("topic", "partition"),
    "quire_broker_partition_log_end_offset": ("topic", "partition"),
    "quire_broker_partition_log_start_offset": ("topic", "partition"),
}
"""Labels of metrics that have no sample in a process that has served nothing."""


def metrics_page() -> str:
    """Return the page."""
    bookie = [*_bookie(), *ProcessMetrics("bookie").collect()]
    broker = [*_broker(), *ProcessMetrics("broker").collect()]
    gateway = [*GatewayMetrics(GatewayCounters()).collect(), *ProcessMetrics("gateway").collect()]
    console = [*_cluster(), *ProcessMetrics("console").collect()]
    return page(
        "Metrics",
        INTRODUCTION,
        [
            "## Bookie\n\n" + _table(bookie),
            "## Broker\n\n" + _table(broker),
            "## Gateway\n\n" + _table(gateway),
            f"## Console\n\n{OF_CLUSTER}\n\n" + _table(console),
        ],
    )


def _cluster() -> Iterable[Metric]:
    survey, repair, brokers = sample_survey(), sample_repair(), BrokersSeen(1, has_controller=True)
    return ClusterMetrics(survey, "", 1.0, repair, brokers).collect()


def _bookie() -> Iterable[Metric]:
    position: Any = SimpleNamespace(age_s=0.0, unrecorded_bytes=0)
    return BookieMetrics(
        "bookie", ServerCounters(), ManualStorage(), position, lambda: NEVER_SCRUBBED
    ).collect()


def _broker() -> Iterable[Metric]:
    return BrokerMetrics(1, BrokerCounters(), MemoryBudget(1), list).collect()


def _table(metrics: Sequence[Metric]) -> str:
    rows = (
        [code(_shown(each)), each.type, ", ".join(map(code, _labels(each))), _text(each)]
        for each in sorted(metrics, key=lambda each: each.name)
    )
    return table(["metric", "type", "labels", "meaning"], rows)


def _shown(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _labels(metric: Metric) -> Sequence[str]:
    labels = [
        name for sample in metric.samples[:1] for name in sample.labels if name not in ("le",)
    ]
    return labels or LABELS.get(metric.name, ())


def _text(metric: Metric) -> str:
    text = prose(metric.documentation)
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
