"""Agenda of a simulation: runs actions in the order of their times, equal times in the order of
entry.

Leaves all effects to the actions.

Invariants: time never goes back; while an action runs, `now` is its time.
"""

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Agenda:
    """Virtual clock and scheduled actions."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Action]] = []
        self._order = count()

    def at(self, time_s: float, action: Action) -> None:
        """Schedule an action; a time in the past means as soon as possible."""
        heapq.heappush(self._heap, (max(time_s, self.now), next(self._order), action))

    def after(self, delay_s: float, action: Action) -> None:
        """Schedule an action for `delay_s` from now."""
        self.at(self.now + delay_s, action)

    def run_until(self, end_s: float) -> None:
        """Run all actions before `end_s`, and set the clock to `end_s`."""
        while self._heap and self._heap[0][0] < end_s:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = end_s
