"""Deadlines of waits, with one timer of the event loop for many waits.

Leaves the effect of a missed deadline to the owner of the wait. Tens of thousands of Fetches
and Produces can wait, and one timer for each would cost more than the rest of a small request.

Invariant: the callback of a wait runs at most once, between its deadline and GRAIN_S later; after
`remove` it does not run.
"""

import asyncio
from collections.abc import Callable
from typing import Final

GRAIN_S: Final = 0.01
NO_TIMEOUT_S: Final = 30.0
"""Timeout of a request whose client gives none (0 or less), in seconds. Such a client wants the
result of the change, and Kafka's leader alone has it at once; here it takes a write to others."""


def timeout_of(timeout_ms: int, max_s: float) -> float:
    """Return the timeout of a request in seconds."""
    return min(timeout_ms / 1000 if timeout_ms > 0 else NO_TIMEOUT_S, max_s)


class Deadlines:
    """The waits of one event loop, by deadline."""

    __slots__ = ("_by_tick", "_loop", "_timers")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_tick: dict[int, dict[int, Callable[[], None]]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def add(self, wait_id: int, delay_s: float, late: Callable[[], None]) -> int:
        """Call `late` after `delay_s`; return the tick, which `remove` needs."""
        tick = int((self._loop.time() + delay_s) / GRAIN_S) + 1
        waits = self._by_tick.get(tick)
        if waits is None:
            waits = self._by_tick[tick] = {}
            self._timers[tick] = self._loop.call_at(tick * GRAIN_S, self._expire, tick)
        waits[wait_id] = late
        return tick

    def remove(self, wait_id: int, tick: int) -> None:
        """Remove a wait; do nothing if it has ended."""
        waits = self._by_tick.get(tick)
        if waits is not None:  # the timer of an empty tick stays: there is at most one per tick
            waits.pop(wait_id, None)

    def close(self) -> None:
        """Remove every wait."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._by_tick.clear()

    def _expire(self, tick: int) -> None:
        waits = self._by_tick.pop(tick, {})
        self._timers.pop(tick, None)
        for late in waits.values():
            late()
