"""Places that clients wait for, in turns: one client's many requests delay no other's.

Leaves counting places to `shares`, and the time of a wait to its callers.

Invariants: a free place goes to the holder that was served longest ago among those that wait and
have less than their share; requests of one holder keep their order; at most `waiting_max` of one
holder wait. A place is given back exactly once, also if its request is cancelled while it waits.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from security.shares import Shares


class QueueFullError(Exception):
    """Too many requests of one client wait already: it shall send fewer at once, and try again."""

    def __init__(self, waiting_max: int) -> None:
        super().__init__(f"{waiting_max} requests of this client wait already")


class FairQueue:
    """Places of one kind, and the requests that wait for them."""

    def __init__(self, places_max: int, share_max: int, waiting_max: int) -> None:
        """At most `places_max` places are taken, `share_max` by one holder, of which at most
        `waiting_max` requests wait.
        """
        self._places = Shares(places_max, share_max)
        self._waiting_max = waiting_max
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """Requests by their holders; the first holder is served next."""

    @asynccontextmanager
    async def place(self, holder: str) -> AsyncIterator[None]:
        """Hold a place. Raises QueueFullError."""
        if holder in self._waiting or not self._places.take(holder):
            await self._wait(holder)
        try:
            yield
        finally:
            self._give_back(holder)

    async def _wait(self, holder: str) -> None:
        if len(self._waiting.get(holder, ())) >= self._waiting_max:
            raise QueueFullError(self._waiting_max)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, {})[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(holder)
            else:
                self._remove(holder, turn)
            raise

    def _give_back(self, holder: str) -> None:
        self._places.give_back(holder)
        for each in list(self._waiting):
            if not self._places.has_free():
                return
            if self._places.take(each):
                waiting = self._waiting.pop(each)
                turn = next(iter(waiting))
                del waiting[turn]
                if waiting:
                    self._waiting[each] = waiting  # behind the others
                turn.set_result(None)

    def _remove(self, holder: str, turn: "asyncio.Future[None]") -> None:
        waiting = self._waiting[holder]
        del waiting[turn]
        if not waiting:
            del self._waiting[holder]
