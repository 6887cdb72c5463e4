"""Recent latencies of answers, and the longest latency to expect.

Leaves the reaction to a slow bookie to suspicion (rule 5.7) and to speculative reads (rule 8.2).

Invariants: pure, of fixed size; recording costs a few operations; older latencies lose weight, so
that a change shows within `REMEMBERED_COUNT` answers.
"""

import math
from bisect import bisect_left
from typing import Final

LOWEST_S: Final = 1e-5
BUCKETS_PER_DOUBLING: Final = 4
BUCKET_COUNT: Final = 96
"""Up to 10 us * 2^(96 / 4): 168 s."""
REMEMBERED_COUNT: Final = 512
"""Number of answers after which all counts are halved."""

_UPPER_BOUNDS_S: Final[tuple[float, ...]] = tuple(
    LOWEST_S * 2.0 ** (bucket / BUCKETS_PER_DOUBLING) for bucket in range(BUCKET_COUNT)
)
_INNER_BOUNDS_S: Final = _UPPER_BOUNDS_S[:-1]
"""The last bucket counts all longer latencies."""


class RecentLatency:
    """Recent latencies of one bookie, or of several together."""

    __slots__ = ("_counts", "_since_halved", "_total")

    def __init__(self) -> None:
        self._counts = [0] * BUCKET_COUNT
        self._total = 0
        self._since_halved = 0

    def record(self, latency_s: float, count: int = 1) -> None:
        """Record one answer, or `count` answers with the same latency."""
        self._counts[bisect_left(_INNER_BOUNDS_S, latency_s)] += count
        self._total += count
        self._since_halved += count
        if self._since_halved >= REMEMBERED_COUNT:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)
            self._since_halved = 0

    def quantile(self, part: float) -> float | None:
        """Return an upper bound, at most a fifth too large, for the latency of the fraction `part`
        of the recent answers; None if there were none.
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
        """Return `multiple` times a quantile, within bounds; the upper bound while there are no
        answers.
        """
        tail = self.quantile(part)
        return at_most_s if tail is None else min(max(multiple * tail, at_least_s), at_most_s)
