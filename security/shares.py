"""Places that clients share: how many there are, and how many of them one client may have. Pure.

Leaves waiting for a place to `fair_queue`, and what a place is to its users.

Invariants: at most `places_max` places are taken, and at most `share_max` of one holder, so that a
client that takes all it can get keeps no other out; only holders with places are kept.
"""

from collections import Counter


class Shares:
    """Places of one kind. A holder is a principal, or the address of a client without one."""

    def __init__(self, places_max: int, share_max: int) -> None:
        self._places_max = places_max
        self._share_max = share_max
        self._taken = 0
        self._of_holder = Counter[str]()

    def __len__(self) -> int:
        """Return the number of places that are taken."""
        return self._taken

    @property
    def is_full(self) -> bool:
        """Whether no place is free for any holder."""
        return self._taken >= self._places_max

    def take(self, holder: str) -> bool:
        """Take a place; return False if none is free, or the holder has its share."""
        if self.is_full or self._of_holder.get(holder, 0) >= self._share_max:
            return False
        self._taken += 1
        self._of_holder[holder] += 1
        return True

    def give_back(self, holder: str) -> None:
        """Free a place that was taken for a holder."""
        assert self._of_holder.get(holder, 0) > 0, "it was taken"
        self._taken -= 1
        self._of_holder[holder] -= 1
        if not self._of_holder[holder]:
            del self._of_holder[holder]
