"""Metrics in Prometheus's text format, and those that every server process has."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from quire.server import descriptors
from quire.server.latency import PROCESS_LAG, LatencyCounts
from quire.server.overriding import override

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


class ProcessMetrics(Collector):
    """Metrics of this process, with the standard ones of Prometheus's clients (`process_`), which
    only Linux has.
    """

    def __init__(self, kind: str) -> None:
        self._prefix = f"quire_{kind}"
        self._standard = ProcessCollector(registry=None)

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield GaugeMetricFamily(
            f"{self._prefix}_descriptors_open",
            "Open file descriptors; -1 if the system does not report it.",
            descriptors.count_open(),
        )
        yield GaugeMetricFamily(
            f"{self._prefix}_descriptors_max",
            "File descriptors that may be open: the soft limit; -1 for no limit.",
            descriptors.current_limit(),
        )
        yield from self._standard.collect()
        yield histogram_metric(
            f"{self._prefix}_loop_lag_seconds",
            "How late the event loop called a timer; one is set every 50 ms.",
            PROCESS_LAG.counts,
        )
        yield GaugeMetricFamily(
            f"{self._prefix}_loop_lag_longest_seconds",
            "Longest lag since the process started.",
            PROCESS_LAG.longest_s,
        )
