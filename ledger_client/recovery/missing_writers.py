"""When the writer of an open ledger counts as gone, and what follows. Pure.

Leaves recovering the ledger to its callers, and changing the ensemble of a live writer to that
writer.

Invariants: a ledger without a writer is not recovered. Another one is recovered only if the node of
its writer's client was missing at each look, the first and the last of which are at least two
session timeouts apart. A writer that comes back in between starts the time again, and so does a
pause of more than LOOKS_APART_S_MAX between two looks: what happened in it is not known.

Source: protocol rules 9.2 and 9.15.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from metadata.ids import ClientId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState

SESSIONS: Final = 2.0
"""Number of session timeouts for which the writer's node must be missing."""
LOOKS_APART_S_MAX: Final = 180.0
"""Maximum time between two looks that count together, in seconds: three times the longest pause of
a postponed job. Without it, a writer whose session ended twice within days would count as missing.
"""


class OpenAction(Enum):
    """Next step for an open ledger."""

    MOVE = auto()
    """It has no writer yet, and no entry: its members are replaced (rule 9.15)."""
    LEAVE = auto()
    """Its writer lives, and changes the ensemble itself."""
    LOOK_AGAIN = auto()
    RECOVER = auto()


@dataclass(frozen=True, slots=True)
class _Missing:
    writer: ClientId
    since_s: float
    seen_s: float
    """Time of the last look."""


class MissingWriters:
    """Writers whose nodes were missing, since when."""

    def __init__(self, session_timeout_s: float) -> None:
        self._wait_s = SESSIONS * session_timeout_s
        self._apart_s = max(LOOKS_APART_S_MAX, self._wait_s)
        self._missing: dict[LedgerId, _Missing] = {}

    def look(self, ledger: LedgerMetadata, *, is_registered: bool, now_s: float) -> OpenAction:
        """Return the next step, after a synced read of the ledger and of its writer's node."""
        ledger_id, writer = ledger.ledger_id, ledger.writer
        if ledger.is_unclaimed:
            return OpenAction.MOVE
        if ledger.state is LedgerState.IN_RECOVERY:
            self._missing.pop(ledger_id, None)
            return OpenAction.RECOVER  # it is fenced already: its writer has ended
        if is_registered:
            self._missing.pop(ledger_id, None)
            return OpenAction.LEAVE
        self._drop_old(now_s)
        known = self._missing.get(ledger_id)
        if known is None or known.writer != writer:
            known = _Missing(writer, now_s, now_s)
        self._missing[ledger_id] = replace(known, seen_s=now_s)
        if now_s - known.since_s < self._wait_s:
            return OpenAction.LOOK_AGAIN
        del self._missing[ledger_id]
        return OpenAction.RECOVER

    def due_s(self, ledger_id: LedgerId) -> float:
        """Return the time of the next look at a ledger whose writer is missing."""
        return self._missing[ledger_id].since_s + self._wait_s

    def _drop_old(self, now_s: float) -> None:
        """Forget the writers that were not looked at for a long time."""
        self._missing = {
            ledger_id: missing
            for ledger_id, missing in self._missing.items()
            if now_s - missing.seen_s <= self._apart_s
        }
