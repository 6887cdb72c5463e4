"""Output of a server's counters in Prometheus's text format.

Leaves the list of metrics to `bookie.server.metrics` and `broker_layer.server.metrics`. This code
runs only for a request of the metrics.
"""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from serving.latency import LatencyCounts

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def metrics_text(*collectors: Collector) -> bytes:
    """Return every metric in Prometheus's text format."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)


def counter_metric(prefix: str, name: str, value: float | LatencyCounts) -> Metric:
    """Return the metric of one counter: `*_now` is a gauge, latencies are a histogram."""
    full_name, text = f"{prefix}_{name}", name.replace("_", " ")
    if isinstance(value, LatencyCounts):
        return histogram_metric(f"{full_name}_seconds", "from arrival to answer", value)
    if name.endswith("_now"):
        text = f"{text.removesuffix(' now')} at this moment"
        return GaugeMetricFamily(full_name, text, value)
    return CounterMetricFamily(full_name, text, value)


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
