"""What a server does per second, and how fast it answers, from two readings of its metrics. Pure.

Leaves reading the metrics to `watch`.

Invariant: a counter that fell, because the server started again, counts from zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quire.operate.scrape import Scrape

HIGH_SHARE: Final = 0.99


@dataclass(frozen=True, slots=True)
class Change:
    """Two readings of one server."""

    before: Scrape
    after: Scrape

    @property
    def seconds(self) -> float:
        """Time between the readings."""
        return max(1e-9, self.after.at_s - self.before.at_s)

    def rate(self, counter: str) -> float | None:
        """Return the growth of a counter per second; None if it has no such counter."""
        now = self.after.totals.get(counter)
        if now is None:
            return None
        return _growth(self.before.totals.get(counter, 0.0), now) / self.seconds

    def gauge(self, name: str) -> float | None:
        """Return the newest value of a gauge; None if it has no such gauge."""
        return self.after.totals.get(name)

    def high_s(self, histogram: str, share: float = HIGH_SHARE) -> float | None:
        """Return the time within which a share of what was done in between was done, in seconds;
        None if nothing was done.
        """
        before = self.before.buckets.get(histogram, {})
        after = self.after.buckets.get(histogram, {})
        return quantile_s(
            {bound: _growth(before.get(bound, 0.0), count) for bound, count in after.items()}, share
        )


def quantile_s(counts: Mapping[float, float], share: float) -> float | None:
    """Return a quantile of cumulative counts by their upper bounds, as Prometheus does: linear
    within a bucket, and the lower bound of the last one. None without counts.
    """
    bounds = sorted(counts)
    total = counts[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, low_s, low_count = share * total, 0.0, 0.0
    for bound in bounds:
        if counts[bound] >= wanted:
            if bound == float("inf"):
                return low_s
            within = counts[bound] - low_count
            part = (wanted - low_count) / within if within else 1.0
            return low_s + (bound - low_s) * part
        low_s, low_count = bound, counts[bound]
    return low_s


def _growth(before: float, now: float) -> float:
    return now - before if now >= before else now
