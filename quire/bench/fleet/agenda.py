"""Runs what was put on the agenda, in the order of time; equal times in the order of entry.

Leaves what happens to the actions themselves.

Invariants: time never goes back; an action sees `now` as the time that it was entered for.
"""

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Agenda:
    """The virtual clock and what is to happen."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Action]] = []
        self._order = count()

    def at(self, time_s: float, action: Action) -> None:
        """Enter an action; a time that has passed means as soon as possible."""
        heapq.heappush(self._heap, (max(time_s, self.now), next(self._order), action))

    def after(self, delay_s: float, action: Action) -> None:
        """Enter an action for `delay_s` from now."""
        self.at(self.now + delay_s, action)

    def run_until(self, end_s: float) -> None:
        """Run everything before `end_s`, and end there."""
        while self._heap and self._heap[0][0] < end_s:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = end_s
