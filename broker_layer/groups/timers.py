"""Deadlines of groups, with one timer of the event loop for all of them.

Leaves the action at a deadline to the groups, which then set the next deadline.

Invariants: a callback comes at the deadline or earlier. A later deadline for the same key does not
move the timer, so a heartbeat costs nothing: the callback finds nothing due and sets the next one.
"""

import asyncio
import heapq
from collections.abc import Callable

from broker_layer.groups.roster import NEVER_MS

TimerKey = tuple[int, str]
"""(partition, group id)."""


def loop_ms() -> int:
    """Return the loop's clock, rounded to the nearest millisecond. If it were rounded down, a timer
    could fire just before its millisecond, find nothing due, and be set for the same time again.
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
        """Call back for `key` at `due_ms` of the loop's clock, or earlier if already set so."""
        if due_ms >= self._due_ms.get(key, NEVER_MS):
            return
        self._due_ms[key] = due_ms
        heapq.heappush(self._heap, (due_ms, key))
        self._arm()

    def cancel(self, key: TimerKey) -> None:
        """Remove the deadline of a key."""
        self._due_ms.pop(key, None)

    def close(self) -> None:
        """Remove all deadlines."""
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
