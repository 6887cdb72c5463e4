"""Places that clients share: how many one may have, and in which turns they wait for them."""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from quire.copyable import CopyableError

NETWORK_BITS: Final = 64
"""Length of the prefix of an IPv6 network: a host has all addresses of one."""


class Shares:
    """Places of one kind. A holder is a principal, or the network of a client without one.

    At most `places_max` places are taken, and at most `share_max` of one holder, so that a client
    that takes all it can get keeps no other out; only holders with places are kept.
    """

    def __init__(self, places_max: int, share_max: int) -> None:
        self._places_max = places_max
        self._share_max = share_max
        self._taken = 0
        self._of_holder = Counter[str]()

    def __len__(self) -> int:
        """Return the number of places that are taken."""
        return self._taken

    def has_free(self, count: int = 1) -> bool:
        """Return whether so many places are free."""
        return self._taken + count <= self._places_max

    def has_share(self, holder: str, count: int = 1) -> bool:
        """Return whether so many places are free, and within the share of a holder."""
        own = self._of_holder.get(holder, 0)
        return self.has_free(count) and own + count <= self._share_max

    def take(self, holder: str, count: int = 1) -> bool:
        """Take places; return False, and take none, if too few are free or in the share."""
        if not self.has_share(holder, count):
            return False
        self._taken += count
        self._of_holder[holder] += count
        return True

    def give_back(self, holder: str, count: int = 1) -> None:
        """Free places that were taken for a holder."""
        assert self._of_holder.get(holder, 0) >= count, "they were taken"
        self._taken -= count
        self._of_holder[holder] -= count
        if not self._of_holder[holder]:
            del self._of_holder[holder]


def network_of(address: str) -> str:
    """Return what an address counts as: itself, or its network if it is one of IPv6, because a
    client can use as many of these as it likes.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), NETWORK_BITS), strict=False))


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
    """Places of one kind, and the requests that wait for them.

    A free place goes to the holder that was served longest ago among those that wait and have less
    than their share; requests of one holder keep their order; at most `waiting_max` of one holder
    wait. Places are given back exactly once, also if their request is cancelled while it waits.
    """

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
        for share in list(self._waiting):
            if not self._places.has_free():
                return
            turn, count = next(iter(self._waiting[share].items()))
            if turn.cancelled():
                continue  # its wait goes on soon: it leaves the queue, and serves the others
            if self._places.take(share, count):
                waiting = self._waiting.pop(share)
                del waiting[turn]
                if waiting:
                    self._waiting[share] = waiting  # behind the others
                turn.set_result(None)

    def _remove(self, holder: str, turn: "asyncio.Future[None]") -> None:
        waiting = self._waiting[holder]
        del waiting[turn]
        if not waiting:
            del self._waiting[holder]
