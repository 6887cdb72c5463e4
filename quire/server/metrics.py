"""Output of a server's counters in Prometheus's text format.

Leaves the metrics and their help texts to `bookie.server.metrics` and `broker_layer.server.admin`.
This code runs only for a request of the metrics.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from quire.server.latency import LatencyCounts

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class MetricHelp(NamedTuple):
    """Kind and help text of one metric. A counter only grows from the start of the process."""

    family: type[CounterMetricFamily | GaugeMetricFamily]
    text: str


def counter(text: str) -> MetricHelp:
    """Describe a counter."""
    return MetricHelp(CounterMetricFamily, text)


def gauge(text: str) -> MetricHelp:
    """Describe a gauge."""
    return MetricHelp(GaugeMetricFamily, text)


def metrics_text(*collectors: Collector) -> bytes:
    """Return every metric in Prometheus's text format."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)


def described_metric(name: str, described: MetricHelp, value: float) -> Metric:
    """Return a counter or a gauge with its help text."""
    return described.family(name, described.text, value)


def labelled_counter(
    name: str, text: str, label: str, counts: Iterable[tuple[str, float]]
) -> Metric:
    """Return a counter with one value for each value of a label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts:
        family.add_metric([value], count)
    return family


def histogram_metric(name: str, text: str, latency: LatencyCounts) -> Metric:
    """Return a histogram of durations; the name should end in `_seconds`."""
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip([*map(str, latency.bounds_s), "+Inf"], latency.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(name, text, buckets, latency.sum_s)
