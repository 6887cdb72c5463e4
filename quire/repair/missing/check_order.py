"""Which closed ledger is compared with its bookies next. Pure.

Leaves comparing to `quire.repair.missing.missing_copies`, and finding ledgers to the auditor.

A ledger is compared soon after it is seen as CLOSED, again when a member that did not answer may
answer now, and in a slow walk over all ledgers, from the newest to the oldest, at the interval of
the scrubs.

Invariants: at most WAITING_MAX ledgers are remembered; if there are more, a walk finds them. A walk
begins only after the index is complete, and at most once in WALK_EVERY_S_MIN. What is remembered is
compared before the walk continues.

Source: protocol rule 9.16.
"""

from collections.abc import Callable, Iterable
from typing import Final

from metadata.ids import LEDGER_ID_MAX, LedgerId
from metadata.repair.settings import RepairSettings

WAITING_MAX: Final = 10_000
"""Maximum number of ledgers to compare soon, and of ledgers with an unknown member."""
WALK_EVERY_S_MIN: Final = 3_600
"""Minimum time between the starts of two walks, in seconds, unless an operator requests one."""


class CheckOrder:
    """Order in which one auditor compares ledgers."""

    def __init__(self) -> None:
        self._due: dict[LedgerId, None] = {}
        self._put_off: dict[LedgerId, None] = {}
        self._walk_below: int | None = None
        """All closed ledgers with lower ids are compared in this walk; None without one."""
        self._began_ms: int | None = None
        """Start of the last walk; None before the first one."""
        self._requested_ms = 0
        """Request of an operator that the last walk served."""
        self._has_forgotten = False
        """Whether a ledger had no room since the last walk began."""

    def note_closed(self, ledger_id: LedgerId) -> None:
        """Compare a ledger soon that was closed; the first walk finds those closed before it."""
        if self._began_ms is not None:
            self.note((ledger_id,))

    def note(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Compare some ledgers soon."""
        for each in ledger_ids:
            self._add(self._due, each)

    def put_off(self, ledger_id: LedgerId) -> None:
        """Compare a ledger again at the next `retry`: a member of it is unknown."""
        self._add(self._put_off, ledger_id)

    def retry(self) -> None:
        """Compare those ledgers soon that were put off: members may answer now."""
        waiting, self._put_off = self._put_off, {}
        self.note(waiting)

    def begin_if_due(self, settings: RepairSettings, now_ms: int) -> None:
        """Begin a walk if it is time, and none is under way. The index must be complete."""
        if self._walk_below is None and self._is_due(settings, now_ms):
            self._walk_below = LEDGER_ID_MAX + 1
            self._began_ms, self._has_forgotten = now_ms, False
            self._requested_ms = settings.scrub_requested_ms

    def next(self, closed_below: Callable[[int], LedgerId | None]) -> LedgerId | None:
        """Return the next ledger, which is not remembered any more; None if there is none now.
        `closed_below` returns the closed ledger with the highest id below another.
        """
        if self._due:
            ledger_id = next(iter(self._due))
            del self._due[ledger_id]
            return ledger_id
        if self._walk_below is None:
            return None
        self._walk_below = found = closed_below(self._walk_below)
        return found

    def _is_due(self, settings: RepairSettings, now_ms: int) -> bool:
        if self._began_ms is None or settings.scrub_requested_ms != self._requested_ms:
            return True
        if self._has_forgotten:
            every_s = WALK_EVERY_S_MIN
        elif settings.scrub_every_s:
            every_s = max(WALK_EVERY_S_MIN, settings.scrub_every_s)
        else:
            return False
        return now_ms - self._began_ms >= every_s * 1000

    def _add(self, ledgers: dict[LedgerId, None], ledger_id: LedgerId) -> None:
        if ledger_id in ledgers or len(ledgers) < WAITING_MAX:
            ledgers[ledger_id] = None
        else:
            self._has_forgotten = True
