"""Speed of repair and time left. Pure.

Leaves counting what is left to `quire.repair.auditor`.

Invariants: the rate is that of the last WINDOW_S seconds; work that is added meanwhile does not
count as negative progress. The time left is unknown while nothing was done in that time.

Source: protocol rule 9.3.
"""

from collections import deque
from typing import Final

WINDOW_S: Final = 60.0


class Progress:
    """Amounts of work done, over time."""

    def __init__(self) -> None:
        self._done: deque[tuple[float, int]] = deque()
        self._sum = 0
        self._began_s: float | None = None

    def add(self, amount: int, now_s: float) -> None:
        """Record that an amount of work was done."""
        self._trim(now_s)
        if self._began_s is None:
            self._began_s = now_s
        self._done.append((now_s, amount))
        self._sum += amount

    def rate(self, now_s: float) -> float:
        """Return the amount per second; 0 if nothing was done in the last WINDOW_S seconds."""
        self._trim(now_s)
        if self._began_s is None:
            return 0.0
        return self._sum / max(1.0, min(WINDOW_S, now_s - self._began_s))

    def left_s(self, left: int, now_s: float) -> float | None:
        """Return the time until `left` is done; None if it is unknown."""
        rate = self.rate(now_s)
        if left == 0:
            return 0.0
        return left / rate if rate else None

    def _trim(self, now_s: float) -> None:
        while self._done and self._done[0][0] <= now_s - WINDOW_S:
            self._sum -= self._done.popleft()[1]
        if not self._done:
            self._began_s = None
