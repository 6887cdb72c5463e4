"""Bookies with slow appends, and the part of their limits that copying keeps. Pure.

Leaves asking the bookies to `append_watch`, and the limits to `copy_shares`.

Invariants: the part of a bookie halves at each look at which its appends are slow, down to
PART_MIN, so that a repair never stops; it doubles at each other look. Only bookies whose part is
below 1 are kept.

Source: protocol rule 9.3; docs/repair.md, "Limits".
"""

from collections.abc import Iterator
from typing import Final

from metadata.ids import BookieId

PART_MIN: Final = 1 / 16
"""Least part of its limits that a bookie keeps."""


class SlowBookies:
    """Parts of bookies whose appends are slow, or were lately."""

    def __init__(self) -> None:
        self._parts: dict[BookieId, float] = {}

    def __iter__(self) -> Iterator[BookieId]:
        """Return the bookies whose part is below 1."""
        return iter(tuple(self._parts))

    def note(self, bookie_id: BookieId, *, is_slow: bool) -> None:
        """Record what one look at a bookie showed."""
        part = self.part(bookie_id)
        part = max(PART_MIN, part / 2) if is_slow else part * 2
        if part < 1:
            self._parts[bookie_id] = part
        else:
            self._parts.pop(bookie_id, None)

    def part(self, bookie_id: BookieId) -> float:
        """Return the part of its limits that copying from and to a bookie may use."""
        return self._parts.get(bookie_id, 1.0)
