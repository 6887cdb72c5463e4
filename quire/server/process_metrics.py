"""Metrics of every server process: memory, processor time, descriptors and the event loop's lag.

Leaves the measurement to `quire.server.descriptors` and `quire.server.loop_lag`, and the port to
`quire.server.admin`.
"""

from collections.abc import Iterator

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from quire.server import descriptors
from quire.server.loop_lag import PROCESS_LAG
from quire.server.metrics import histogram_metric
from quire.server.overriding import override


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
