"""Remembers how long answers took lately, and tells how long an answer may reasonably take.

Leaves what to do about a slow one to suspicion (rule 5.7) and to speculative reads (rule 8.2).

Invariants: pure, of fixed size; recording costs a few operations; older latencies count for less
and less, so that a change shows within `REMEMBERED_COUNT` answers.
"""

import math
from bisect import bisect_left
from typing import Final

LOWEST_S: Final = 1e-5
BUCKETS_PER_DOUBLING: Final = 4
BUCKET_COUNT: Final = 96
"""Up to 10 us * 2^(96 / 4): 168 s."""
REMEMBERED_COUNT: Final = 512
"""After so many answers all counts are halved."""

_UPPER_BOUNDS_S: Final[tuple[float, ...]] = tuple(
    LOWEST_S * 2.0 ** (bucket / BUCKETS_PER_DOUBLING) for bucket in range(BUCKET_COUNT)
)
_INNER_BOUNDS_S: Final = _UPPER_BOUNDS_S[:-1]
"""The last bucket takes all that is longer."""


class RecentLatency:
    """The recent latencies of one bookie, or of several together."""

    __slots__ = ("_counts", "_since_halved", "_total")

    def __init__(self) -> None:
        self._counts = [0] * BUCKET_COUNT
        self._total = 0
        self._since_halved = 0

    def record(self, latency_s: float, count: int = 1) -> None:
        """Take note of one answer, or of several that took as long."""
        self._counts[bisect_left(_INNER_BOUNDS_S, latency_s)] += count
        self._total += count
        self._since_halved += count
        if self._since_halved >= REMEMBERED_COUNT:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)
            self._since_halved = 0

    def quantile(self, part: float) -> float | None:
        """Return an upper bound, at most a fifth too large, of the latency that `part` of the
        recent answers kept to; None if there were none.
        """
        assert 0 < part <= 1
        if not self._total:
            return None
        rank, seen = math.ceil(part * self._total), 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return _UPPER_BOUNDS_S[bucket]
        raise AssertionError("the counts add up to the total")

    def patience_s(
        self, *, part: float, multiple: float, at_least_s: float, at_most_s: float
    ) -> float:
        """Return `multiple` times a quantile, within bounds; the upper bound while nothing is
        known.
        """
        tail = self.quantile(part)
        return at_most_s if tail is None else min(max(multiple * tail, at_least_s), at_most_s)
