"""Share of slow requests among the recent ones. Pure: the clock is an argument.

Leaves the counts since the start to `quire.server.latency`.

Invariant: a duration counts for at least WINDOW_S after it was recorded, and for less than twice
that.

Source: docs/repair.md, "Limits".
"""

from typing import Final

from quire.server.latency import BOUNDS_S, LatencyCounts

WINDOW_S: Final = 5.0
OVER_BOUNDS_S: Final = 2 * BOUNDS_S[-1]
"""Shown for durations above all bounds, in seconds."""


class RecentLatency:
    """Counts of the durations of the last seconds."""

    def __init__(self) -> None:
        self._counts = LatencyCounts(BOUNDS_S)
        self._before = LatencyCounts(BOUNDS_S)
        self._began_s = float("-inf")

    def record(self, seconds: float, count: int, now_s: float) -> None:
        """Count a measured duration `count` times."""
        self._turn(now_s)
        self._counts.record(seconds, count)

    def percentile_s(self, percent: int, now_s: float) -> float:
        """Return a duration that `percent` of the recent ones do not exceed, in seconds: the bound
        of its bucket. 0 if there are none.
        """
        self._turn(now_s)
        counts = [sum(pair) for pair in zip(self._counts.counts, self._before.counts, strict=True)]
        total = sum(counts)
        seen = 0
        for bound_s, count in zip((*BOUNDS_S, OVER_BOUNDS_S), counts, strict=True):
            seen += count
            if count and seen * 100 >= percent * total:
                return bound_s
        return 0.0

    def _turn(self, now_s: float) -> None:
        """Begin a window if the current one has ended."""
        age_s = now_s - self._began_s
        if age_s < WINDOW_S:
            return
        self._before = self._counts if age_s < 2 * WINDOW_S else LatencyCounts(BOUNDS_S)
        self._counts = LatencyCounts(BOUNDS_S)
        self._began_s = now_s
