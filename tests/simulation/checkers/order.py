"""Checker: appends succeed in order, with consecutive ids.

Source: protocol rules 4.1, 4.5; invariant "acks in order without gaps".
"""

from typing_extensions import override

from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel, Model


class OrderChecker(Checker):
    """Compares each success with the expected id, and with the LAC."""

    name = "order"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._lacs: dict[int, int] = {}
        """LAC that each writer last showed."""

    @override
    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        if entry_id != expected:
            self.report(f"ledger {ledger.ledger_id}: an append got id {entry_id}, not {expected}")
        assert ledger.writer is not None
        lac = ledger.writer.last_confirmed
        if lac < entry_id:
            self.report(f"ledger {ledger.ledger_id}: entry {entry_id} succeeded, the LAC is {lac}")
        before = self._lacs.get(ledger.ledger_id, lac)
        if lac < before:
            self.report(f"ledger {ledger.ledger_id}: the writer's LAC went from {before} to {lac}")
        self._lacs[ledger.ledger_id] = lac
