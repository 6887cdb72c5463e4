"""Calls back when a group's next deadline has come: one timer of the loop for all groups.

Leaves what is due to the groups, which are asked for their next deadline again.

Invariants: a deadline set is kept or kept earlier; later ones are not followed (a heartbeat costs
nothing): the callback finds nothing due and sets the next.
"""

import asyncio
import heapq
from collections.abc import Callable

from broker_layer.groups.roster import NEVER_MS

TimerKey = tuple[int, str]
"""(partition, group id)."""


def loop_ms() -> int:
    """Return the loop's clock to the nearest millisecond: rounded down, a timer that was set for a
    whole one could come before it, find nothing due, and be set for the same time again.
    """
    return round(asyncio.get_running_loop().time() * 1000)


class Timers:
    """A heap of deadlines over one `call_at`."""

    def __init__(self, on_due: Callable[[TimerKey], None]) -> None:
        self._on_due = on_due
        self._due_ms: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []
        self._handle: asyncio.TimerHandle | None = None
        self._handle_ms = NEVER_MS

    def set_at_latest(self, key: TimerKey, due_ms: int) -> None:
        """Call back for `key` at `due_ms` of the loop's clock, or earlier when that was set."""
        if due_ms >= self._due_ms.get(key, NEVER_MS):
            return
        self._due_ms[key] = due_ms
        heapq.heappush(self._heap, (due_ms, key))
        self._arm()

    def cancel(self, key: TimerKey) -> None:
        """Forget a key."""
        self._due_ms.pop(key, None)

    def close(self) -> None:
        """Forget everything."""
        self._due_ms.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        first_ms = self._heap[0][0] if self._heap else NEVER_MS
        if first_ms == self._handle_ms:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._handle_ms = first_ms
        if first_ms != NEVER_MS:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_at(first_ms / 1000, self._run)

    def _run(self) -> None:
        now_ms = loop_ms()
        self._handle, self._handle_ms = None, NEVER_MS
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, key = heapq.heappop(self._heap)
            if self._due_ms.get(key) == due_ms:
                del self._due_ms[key]
                self._on_due(key)
        self._arm()
