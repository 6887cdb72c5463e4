"""Counts of durations, as plain integers that are cheap to update.

Leaves the output to `quire.server.metrics`.
"""

from bisect import bisect_left
from typing import Final

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
