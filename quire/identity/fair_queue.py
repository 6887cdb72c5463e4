"""Places that clients wait for, in turns: one client's many requests delay no other's.

Leaves counting places to `shares`, and the time of a wait to its callers.

Invariants: a free place goes to the holder that was served longest ago among those that wait and
have less than their share; requests of one holder keep their order; at most `waiting_max` of one
holder wait. Places are given back exactly once, also if their request is cancelled while it waits.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from quire.copyable import CopyableError
from quire.identity.shares import Shares


class QueueFullError(CopyableError):
    """Too many requests of one client wait already: it shall send fewer at once, and try again."""

    def __init__(self, waiting_max: int) -> None:
        super().__init__(f"{waiting_max} requests of this client wait already")


@dataclass(slots=True)
class Place:
    """A place that is held."""

    kept_s: float = 0.0
    """How long it stays taken after its use, in seconds, for work that its holder asks for too
    often.
    """


class FairQueue:
    """Places of one kind, and the requests that wait for them."""

    def __init__(self, places_max: int, share_max: int, waiting_max: int) -> None:
        """At most `places_max` places are taken, `share_max` by one holder, of which at most
        `waiting_max` requests wait.
        """
        self._places = Shares(places_max, share_max)
        self._waiting_max = waiting_max
        self._waiting: dict[str, dict[asyncio.Future[None], int]] = {}
        """Requests by their holders, with their numbers of places; the first holder is served
        next.
        """

    def __len__(self) -> int:
        """Return the number of places that are taken."""
        return len(self._places)

    @property
    def is_waited_for(self) -> bool:
        """Whether a request waits."""
        return bool(self._waiting)

    def has_room(self, holder: str, count: int) -> bool:
        """Return whether `take` would take so many places."""
        return holder not in self._waiting and self._places.has_share(holder, count)

    def take(self, holder: str, count: int = 1) -> bool:
        """Take places now, unless requests of the holder wait, or too few places are free."""
        return holder not in self._waiting and self._places.take(holder, count)

    def add(self, holder: str, count: int) -> bool:
        """Take places for what the holder has already, also while its requests wait."""
        return self._places.take(holder, count)

    @asynccontextmanager
    async def place(self, holder: str) -> AsyncIterator[Place]:
        """Hold a place. Raises QueueFullError."""
        if not self.take(holder):
            await self.wait(holder)
        place = Place()
        try:
            yield place
        finally:
            if place.kept_s:
                asyncio.get_running_loop().call_later(place.kept_s, self.give_back, holder)
            else:
                self.give_back(holder)

    async def wait(self, holder: str, count: int = 1) -> None:
        """Take places, at the most a share, when it is the holder's turn; `take` could not. Raises
        QueueFullError.
        """
        if len(self._waiting.get(holder, ())) >= self._waiting_max:
            raise QueueFullError(self._waiting_max)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, {})[turn] = count
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(holder, count)
            else:
                self._remove(holder, turn)
                self._serve_waiting()
            raise

    def give_back(self, holder: str, count: int = 1) -> None:
        """Free places, and let those go on that wait for them."""
        self._places.give_back(holder, count)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        for each in list(self._waiting):
            if not self._places.has_free():
                return
            turn, count = next(iter(self._waiting[each].items()))
            if turn.cancelled():
                continue  # its wait goes on soon: it leaves the queue, and serves the others
            if self._places.take(each, count):
                waiting = self._waiting.pop(each)
                del waiting[turn]
                if waiting:
                    self._waiting[each] = waiting  # behind the others
                turn.set_result(None)

    def _remove(self, holder: str, turn: "asyncio.Future[None]") -> None:
        waiting = self._waiting[holder]
        del waiting[turn]
        if not waiting:
            del self._waiting[holder]
