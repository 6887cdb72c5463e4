"""Metrics that every server process has: descriptors and the lag of the event loop.

Leaves measuring to `serving.descriptors` and `serving.loop_lag`, and the port to `serving.admin`.
"""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from serving import descriptors
from serving.loop_lag import PROCESS_LAG
from serving.metrics import histogram_metric
from serving.overriding import override


class ProcessMetrics(Collector):
    """The metrics of this process."""

    def __init__(self, kind: str) -> None:
        self._prefix = f"quire_{kind}"

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield GaugeMetricFamily(
            f"{self._prefix}_descriptors_open",
            "File descriptors that are open; -1 where the system does not say.",
            descriptors.count_open(),
        )
        yield GaugeMetricFamily(
            f"{self._prefix}_descriptors_max",
            "File descriptors that may be open: the soft limit; -1 for no limit.",
            descriptors.current_limit(),
        )
        yield histogram_metric(
            f"{self._prefix}_loop_lag_seconds",
            "How late the event loop called a timer; one is set every 50 ms.",
            PROCESS_LAG.counts,
        )
        yield GaugeMetricFamily(
            f"{self._prefix}_loop_lag_longest_seconds",
            "The longest of these times since the process started.",
            PROCESS_LAG.longest_s,
        )
