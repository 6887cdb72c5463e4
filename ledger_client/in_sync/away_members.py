"""Absent members of an in-sync ledger: since when, and when to contact them again.

Leaves contacting them, and choosing spares, to `in_sync_members`. Sees no clock: `now` is the loop
time.

A member that comes back and leaves again is contacted less and less often, and counts as away since
it first left. So a member that answers pings but stores nothing is finally replaced by a spare.

Source: protocol rule 11.3.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from metadata.ids import BookieId

ASK_PAUSE_MIN_S: Final = 1.0
ASK_PAUSE_MAX_S: Final = 60.0
STAYED_S: Final = 30.0
"""Time after which a member that came back is treated as one that never left."""


@dataclass(slots=True)
class _Absence:
    since: float
    ask_at: float
    pause_s: float = ASK_PAUSE_MIN_S
    back_at: float | None = None

    def has_stayed(self, now: float) -> bool:
        """Return whether the member came back so long ago that this absence does not count."""
        return self.back_at is not None and now - self.back_at >= STAYED_S


class AwayMembers:
    """Absences of one ledger's members."""

    def __init__(self) -> None:
        self._absences: dict[BookieId, _Absence] = {}

    def note(self, absent: Sequence[BookieId], members: Collection[BookieId], now: float) -> None:
        """Record which bookies are absent now; `members` may contain some of them."""
        for bookie_id in [b for b, known in self._absences.items() if known.has_stayed(now)]:
            del self._absences[bookie_id]
        for bookie_id in absent:
            known = self._absences.setdefault(bookie_id, _Absence(now, now))
            if known.back_at is not None:
                known.back_at = None
                known.pause_s = min(2 * known.pause_s, ASK_PAUSE_MAX_S)
                known.ask_at = now + known.pause_s
        for bookie_id in [b for b in self._absences if b not in absent]:
            known = self._absences[bookie_id]
            if bookie_id not in members:
                del self._absences[bookie_id]
            elif known.back_at is None:
                known.back_at = now

    @property
    def bookie_ids(self) -> list[BookieId]:
        """Bookies that are away now, the one that left first at the front."""
        return [b for b, known in self._absences.items() if known.back_at is None]

    def due(self, now: float) -> list[BookieId]:
        """Return the bookies to contact now, each at most once per pause."""
        due = [b for b in self.bookie_ids if self._absences[b].ask_at <= now]
        for bookie_id in due:
            self._absences[bookie_id].ask_at = now + self._absences[bookie_id].pause_s
        return due

    def longest_s(self, now: float) -> float:
        """Return the longest current absence, in seconds."""
        return max((now - self._absences[b].since for b in self.bookie_ids), default=0.0)
