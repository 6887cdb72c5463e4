"""Counts of durations, as plain integers that are cheap to update.

Source: docs/repair.md, "Limits".
"""

import asyncio
import logging
from bisect import bisect_left
from typing import Final

from quire.server.server_log import log_event

BOUNDS_S: Final = (
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0
)  # fmt: skip
"""Bounds for requests, syncs and checkpoints, in seconds."""


class LatencyCounts:
    """Number of measured durations up to each of `bounds_s`, and above all of them."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def record(self, seconds: float, count: int = 1) -> None:
        """Count a measured duration `count` times."""
        self.counts[bisect_left(self.bounds_s, seconds)] += count
        self.sum_s += seconds * count


WINDOW_S: Final = 5.0
OVER_BOUNDS_S: Final = 2 * BOUNDS_S[-1]
"""Shown for durations above all bounds, in seconds."""


class LatencyWindow:
    """Counts of the durations of the last seconds.

    A duration counts for at least WINDOW_S after it was recorded, and for less than twice that.
    """

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


INTERVAL_S: Final = 0.05
"""Time between two measurements, in seconds. A measurement counts only the part of a stall after
the timer's due time, so half an interval of it is missed on average.
"""
STALL_S: Final = 1.0
"""Lag that is logged."""
LAG_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class LoopLag:
    """Counts of how late the timers of the running loop are, in seconds.

    One timer is pending at a time, so a stall is counted once.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.counts = LatencyCounts(LAG_BOUNDS_S)
        self.longest_s = 0.0
        """Longest lag since the process started."""
        self._interval_s = interval_s
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to measure the running loop."""
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + self._interval_s
        self._timer = loop.call_at(self._due_s, self._measure)

    def close(self) -> None:
        """Stop the measurement."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure(self) -> None:
        late_s = max(0.0, asyncio.get_running_loop().time() - self._due_s)
        self.counts.record(late_s)
        self.longest_s = max(self.longest_s, late_s)
        if late_s >= STALL_S:
            log_event("event loop stalled", logging.WARNING, seconds=round(late_s, 2))
        self.start()


PROCESS_LAG: Final = LoopLag()
"""Lag of the event loop of a server process (`quire.server.process`).

A simulated server has no separate loop and does not measure it.
"""
