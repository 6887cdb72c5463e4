"""Times at which the writers of one client are checked next.

Leaves the timer to `watchdog`, and the checks to the writers. Sees no clock.

Invariant: each key has at most one time; requesting a later time than the known one has no effect.

Source: protocol rules 4.6 and 11.3.
"""

from heapq import heappop, heappush
from itertools import count

from metadata.ids import LedgerId


class CheckSchedule:
    """Heap of times, one for each ledger."""

    def __init__(self) -> None:
        self._due: dict[LedgerId, float] = {}
        self._heap: list[tuple[float, int, LedgerId]] = []
        """Contains each time of `_due`, and times that were replaced by earlier ones."""
        self._numbers = count()

    def add(self, ledger_id: LedgerId, due_s: float) -> None:
        """Request a check at a time, unless an earlier one is requested."""
        known_s = self._due.get(ledger_id)
        if known_s is None or due_s < known_s:
            self._due[ledger_id] = due_s
            heappush(self._heap, (due_s, next(self._numbers), ledger_id))

    def take(self, now: float) -> LedgerId | None:
        """Remove and return the ledger whose check is due first; None if none is due by `now`."""
        while self._heap and self._heap[0][0] <= now:
            due_s, _, ledger_id = heappop(self._heap)
            if self._due.get(ledger_id) == due_s:
                del self._due[ledger_id]
                return ledger_id
        return None
