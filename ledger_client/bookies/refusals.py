"""Reasons with which bookies refuse requests for lack of a role.

Leaves the errors of other refusals, such as a wrong password, to their callers.

Invariant: at most LEDGERS_MAX ledgers have a reason; the oldest is dropped.

Source: protocol rule 12.4.
"""

from typing import Final

from bookie.wire.messages import Status
from ledger_client.errors import LedgerError, UnauthorizedError
from metadata.ids import BookieId, LedgerId

LEDGERS_MAX: Final = 1_000


class Refusals:
    """Last reason of each ledger with an open handle."""

    def __init__(self) -> None:
        self._reasons: dict[LedgerId, str] = {}

    def note(self, bookie_id: BookieId, ledger_id: LedgerId, status: Status, reason: str) -> None:
        """Note a refusal, if it is one of authorization."""
        if status is not Status.UNAUTHORIZED or not reason:
            return
        if ledger_id not in self._reasons and len(self._reasons) >= LEDGERS_MAX:
            del self._reasons[next(iter(self._reasons))]
        self._reasons[ledger_id] = f"bookie {bookie_id} refused it: {reason}"

    def forget(self, ledger_id: LedgerId) -> None:
        """Drop the reason of a ledger whose last handle is closed."""
        self._reasons.pop(ledger_id, None)

    def explained(self, error: LedgerError) -> LedgerError:
        """Return the error, with the reason of the bookie if a bookie gave one."""
        ledger_id = error.ledger_id
        if not isinstance(error, UnauthorizedError) or ledger_id is None:
            return error
        reason = self._reasons.get(ledger_id)
        if reason is None:
            return error
        return UnauthorizedError(
            reason, ledger_id=ledger_id, outcome=error.outcome, entry_id=error.entry_id
        )
