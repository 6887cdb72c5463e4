"""Lag of the event loop: how late it calls its timers.

Leaves the output to `quire.server.process_metrics`. A long callback, a garbage collection or a
thread that keeps the interpreter delays timers and every request.

Invariant: one timer is pending at a time, so a stall is counted once.
"""

import asyncio
from typing import Final

from quire.server.latency import LatencyCounts

INTERVAL_S: Final = 0.05
"""Time between two measurements, in seconds. A measurement counts only the part of a stall after
the timer's due time, so half an interval of it is missed on average.
"""
BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class LoopLag:
    """Counts of how late the timers of the running loop are, in seconds."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.counts = LatencyCounts(BOUNDS_S)
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
        self.start()


PROCESS_LAG: Final = LoopLag()
"""Lag of the event loop of a server process (`quire.server.process`).

A simulated server has no separate loop and does not measure it.
"""
