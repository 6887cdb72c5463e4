"""Appends succeed with the ids of their order, and never before the entries before them.

Source: protocol rules 4.1, 4.5; invariant "acks in order without gaps".
"""

from typing_extensions import override

from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel


class OrderChecker(Checker):
    """Compares each success with the id that the append must have got, and with the LAC."""

    name = "order"

    @override
    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        if entry_id != expected:
            self.report(f"ledger {ledger.ledger_id}: an append got id {entry_id}, not {expected}")
        assert ledger.writer is not None
        if ledger.writer.last_confirmed < entry_id:
            lac = ledger.writer.last_confirmed
            self.report(f"ledger {ledger.ledger_id}: entry {entry_id} succeeded, the LAC is {lac}")
