"""Suspicion: which bookies are silent for so long that their timeout need not be awaited.

Leaves observing bookies to the watchdog, and acting on a suspicion (only with a spare) to the
writers. Safety never depends on it.

Invariants: no bookie is suspected while all are silent; writers act on at most `per_minute_max`
suspicions in any minute; the limit of silence follows the recent tail latency of the *other*
bookies.

Source: protocol rule 5.7.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metadata.ids import BookieId

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
    """Return how long a bookie may be silent, in seconds, given the recent latencies of
    the others.
    """
    tail = max((other.tail_latency_s for other in others), default=0.0)
    return min(limits.after_max_s, max(limits.after_min_s, limits.latency_multiple * tail))


def suspects(
    observations: Sequence[BookieObservation], now: float, limits: SuspicionLimits
) -> list[BookieId]:
    """Return the bookies that are silent while others answer."""
    found: list[BookieId] = []
    for observed in observations:
        since = observed.silent_since
        if since is None or now - since <= limits.after_min_s:
            continue
        others = [other for other in observations if other.bookie_id != observed.bookie_id]
        answering = any(_is_answering(other, since, now, limits) for other in others)
        if answering and now - since > suspect_after_s(others, limits):
            found.append(observed.bookie_id)
    return found


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
