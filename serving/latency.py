"""Counts how long something took, in plain integers that cost nothing to keep.

Leaves showing them to `metrics`.
"""

from bisect import bisect_left


class LatencyCounts:
    """How many measured times fell below each of `bounds_s`, and above all of them."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def record(self, seconds: float, count: int = 1) -> None:
        """Count one measured time, or the same one several times."""
        self.counts[bisect_left(self.bounds_s, seconds)] += count
        self.sum_s += seconds * count
