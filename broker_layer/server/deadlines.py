"""Calls back what has waited too long, with one timer for many waits.

Leaves what a late wait means to its owner. Fetches and produces wait by the ten thousand, and a
timer of the loop for each would cost more than the rest of a small request.

Invariant: a wait is called at most once, at its deadline or up to GRAIN_S later, unless it was
removed.
"""

import asyncio
from collections.abc import Callable
from typing import Final

GRAIN_S: Final = 0.01


class Deadlines:
    """The waits of one event loop, by when they are over."""

    __slots__ = ("_by_tick", "_loop", "_timers")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_tick: dict[int, dict[int, Callable[[], None]]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def add(self, wait_id: int, delay_s: float, late: Callable[[], None]) -> int:
        """Call `late` in `delay_s`; return the tick, which `remove` asks for."""
        tick = int((self._loop.time() + delay_s) / GRAIN_S) + 1
        waits = self._by_tick.get(tick)
        if waits is None:
            waits = self._by_tick[tick] = {}
            self._timers[tick] = self._loop.call_at(tick * GRAIN_S, self._expire, tick)
        waits[wait_id] = late
        return tick

    def remove(self, wait_id: int, tick: int) -> None:
        """Forget a wait; nothing if it is over."""
        waits = self._by_tick.get(tick)
        if waits is not None:  # an empty tick's timer stays: there is one for each grain at most
            waits.pop(wait_id, None)

    def close(self) -> None:
        """Forget every wait."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._by_tick.clear()

    def _expire(self, tick: int) -> None:
        waits = self._by_tick.pop(tick, {})
        self._timers.pop(tick, None)
        for late in waits.values():
            late()
