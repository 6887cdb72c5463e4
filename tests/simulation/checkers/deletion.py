"""Checker: a bookie removes a ledger only if it is deleted, or is closed on other bookies.

Source: protocol rules 10.1, 10.2; invariant "no local delete while metadata exists".
"""

from typing_extensions import override

from bookie.wire.messages import Status
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerState
from tests.simulation.checkers.checker import Asked, Checker


class DeletionChecker(Checker):
    """Checks every answer that says "deleted"."""

    name = "deletion"

    @override
    def on_status(self, bookie_id: str, asked: Asked, status: Status) -> None:
        if status is not Status.DELETED:
            return
        ledger = self.model.ledgers.get(asked.ledger_id)
        metadata = None if ledger is None else ledger.metadata
        if metadata is None:
            return
        if metadata.state is not LedgerState.CLOSED or metadata.names(BookieId(bookie_id)):
            self.report(
                f"{bookie_id} has deleted ledger {asked.ledger_id}, which is {metadata.state} and "
                f"names it: {metadata.names(BookieId(bookie_id))}"
            )
