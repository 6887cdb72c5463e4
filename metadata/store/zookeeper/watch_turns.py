"""Watches that wait until they are set at the server, in turns of those who asked for them. Pure.

Leaves the rate, and what a watch is, to `watches`.

Invariants: the next watch is of the holder that was served longest ago among those that wait, so
that one's many watches delay no other's; watches of one holder keep their order. A watch of several
holders waits once for each, and is taken once. What a holder does not want any more does not wait.
"""

from collections import Counter, OrderedDict
from typing import Generic, Protocol, TypeVar


class Held(Protocol):
    """Something that waits. It is hashed by identity."""

    holders: Counter[str]
    """Holders, with their numbers of reasons."""


HeldType = TypeVar("HeldType", bound=Held)


class WatchTurns(Generic[HeldType]):
    """What waits. The empty name is a holder like others: the process itself."""

    def __init__(self) -> None:
        # A dict would look at all removed items at its front for each `next`.
        self._waiting: OrderedDict[str, OrderedDict[HeldType, None]] = OrderedDict()
        """What waits by its holders; the first holder is served next."""

    def __bool__(self) -> bool:
        """Return whether something waits."""
        return bool(self._waiting)

    def add(self, held: HeldType, holder: str) -> None:
        """Let something wait behind what waits for this holder, unless it waits already."""
        self._waiting.setdefault(holder, OrderedDict()).setdefault(held)

    def remove(self, held: HeldType, holder: str) -> None:
        """Let something wait no more for a holder, if it does."""
        waiting = self._waiting.get(holder)
        if waiting is not None and held in waiting:
            del waiting[held]
            if not waiting:
                del self._waiting[holder]

    def take(self) -> HeldType:
        """Remove and return what is next; something waits."""
        holder, waiting = next(iter(self._waiting.items()))
        self._waiting.move_to_end(holder)
        held = next(iter(waiting))
        for owner in held.holders:
            self.remove(held, owner)
        return held

    def clear(self) -> None:
        """Let nothing wait."""
        self._waiting.clear()
