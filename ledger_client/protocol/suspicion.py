"""Recent latencies of answers, and suspicion: which bookies are silent for so long, or late so
often, that their timeout need not be awaited.

Leaves observing bookies to the watchdog, and acting on a suspicion (only with a spare) to the
writers. Safety never depends on it.

Invariants: no bookie is suspected while all are silent; writers act on at most `per_minute_max`
suspicions in any minute; the limit of silence follows the recent tail latency of the *other*
bookies, and one slow bookie among three or more others does not raise it.

Source: protocol rules 5.7 and 8.2.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metadata.ids import BookieId

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
    """Recent latencies of one bookie, or of several together.

    Of fixed size; recording costs a few operations; older latencies lose weight, so that a change
    shows within `REMEMBERED_COUNT` answers.
    """

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


_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class SuspicionLimits:
    """Limits of silence: a multiple of the tail latency, within bounds."""

    after_min_s: float
    after_max_s: float
    latency_multiple: float
    per_minute_max: int


@dataclass(frozen=True, slots=True)
class BookieObservation:
    """What a client has observed of one bookie; times are loop times."""

    bookie_id: BookieId
    oldest_unanswered_since: float | None
    answered_at: float | None
    tail_latency_s: float

    @property
    def silent_since(self) -> float | None:
        """Time since which the bookie has an unanswered request; None if it has none."""
        oldest, answered = self.oldest_unanswered_since, self.answered_at
        return oldest if oldest is None or answered is None else max(oldest, answered)


def suspect_after_s(others: Sequence[BookieObservation], limits: SuspicionLimits) -> float:
    """Return how long a bookie may be silent, in seconds, given the recent latencies of the others:
    the middle one, or the longer one of two.
    """
    tails = sorted(other.tail_latency_s for other in others if other.tail_latency_s > 0)
    tail = tails[len(tails) // 2] if tails else 0.0
    return min(limits.after_max_s, max(limits.after_min_s, limits.latency_multiple * tail))


def suspects(
    observations: Sequence[BookieObservation], now: float, limits: SuspicionLimits
) -> list[BookieId]:
    """Return the bookies that are silent while others answer."""
    return [
        observed.bookie_id
        for observed in observations
        if _is_overdue(observed, observed.silent_since, observations, now, limits)
    ]


class LateBookies:
    """Bookies that are late again and again while others answer, although they are never silent for
    long: packets of theirs are lost, and answers come in bursts.

    A bookie is late when its oldest unanswered request waits longer than it may be silent, while at
    least half of the bookies in use owe nothing for so long: otherwise this process or its network
    is slow. Each look at which it is late counts twice as much as one at which it is not.
    """

    def __init__(self, looks_max: int) -> None:
        """`looks_max` is the number of looks in a row after which a late bookie is suspected."""
        self._late_max = 2 * looks_max
        self._late: dict[BookieId, int] = {}

    def note(
        self, observations: Sequence[BookieObservation], now: float, limits: SuspicionLimits
    ) -> list[BookieId]:
        """Count one look; return the bookies that were late too often, and begin again with
        them.
        """
        in_use = [
            seen
            for seen in observations
            if seen.oldest_unanswered_since is not None
            or (seen.answered_at is not None and now - seen.answered_at <= limits.after_max_s)
        ]
        in_time = [
            seen
            for seen in in_use
            if seen.oldest_unanswered_since is None
            or now - seen.oldest_unanswered_since <= limits.after_min_s
        ]
        are_others_in_time = 2 * len(in_time) >= len(in_use)
        late: dict[BookieId, int] = {}
        for observed in observations:
            since = observed.oldest_unanswered_since
            is_late = are_others_in_time and _is_overdue(observed, since, in_time, now, limits)
            count = self._late.get(observed.bookie_id, 0) + (2 if is_late else -1)
            if count > 0:
                late[observed.bookie_id] = count
        too_late = [bookie_id for bookie_id, count in late.items() if count >= self._late_max]
        self._late = {bookie_id: late[bookie_id] for bookie_id in late if bookie_id not in too_late}
        return too_late


def _is_overdue(
    observed: BookieObservation,
    since: float | None,
    observations: Sequence[BookieObservation],
    now: float,
    limits: SuspicionLimits,
) -> bool:
    """Return whether a bookie owes an answer since a time, for longer than the others need, while
    one of them answers.
    """
    if since is None or now - since <= limits.after_min_s:
        return False
    others = [other for other in observations if other.bookie_id != observed.bookie_id]
    answering = any(_is_answering(other, since, now, limits) for other in others)
    return answering and now - since > suspect_after_s(others, limits)


def _is_answering(
    other: BookieObservation, since: float, now: float, limits: SuspicionLimits
) -> bool:
    """Return whether a bookie answered after another became silent, and is not silent itself."""
    if other.answered_at is None or other.answered_at < since:
        return False
    return other.silent_since is None or now - other.silent_since <= limits.after_min_s / 2


class SuspicionBudget:
    """Limit on the suspicions on which one client acts."""

    def __init__(self, per_minute_max: int) -> None:
        self._per_minute_max = per_minute_max
        self._acted_at: deque[float] = deque()

    def take(self, now: float) -> bool:
        """Count one suspicion before acting on it; return False if the minute's limit is
        reached.
        """
        while self._acted_at and now - self._acted_at[0] > _MINUTE_S:
            self._acted_at.popleft()
        if len(self._acted_at) >= self._per_minute_max:
            return False
        self._acted_at.append(now)
        return True
