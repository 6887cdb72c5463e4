"""Stored fragments follow each other, and only the last one of an open ledger changes.

Source: protocol rules 1.1, 1.5, 5.1, 7.5; invariant "fragments contiguous, only the last one
mutable". Repair's copy-then-swap, which marks its target as incoming first, is let pass.
"""

from typing_extensions import override

from metadata.ledger_metadata import LedgerMetadata, LedgerState
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel


class FragmentsChecker(Checker):
    """Compares each stored value with the one before."""

    name = "fragments"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or before is None or now.fragments == before.fragments:
            return
        if any(each.incoming for each in (*before.fragments, *now.fragments)):
            return
        where = f"ledger {ledger.ledger_id}"
        if before.state is LedgerState.CLOSED:
            self.report(f"{where} is closed, and its fragments changed: {now.fragments}")
            return
        kept = len(before.fragments) - 1
        if now.fragments[:kept] != before.fragments[:kept]:
            self.report(f"{where}: older fragments changed: {before.fragments} {now.fragments}")
        if len(now.fragments) < len(before.fragments):
            self.report(f"{where}: fragments vanished: {before.fragments} {now.fragments}")
        if now.state is LedgerState.OPEN:
            self._look_at_change(ledger, before, now)
        elif now.state is LedgerState.IN_RECOVERY:
            self.report(f"{where}: a recovery stored its ensembles before its end: {now.fragments}")

    def _look_at_change(
        self, ledger: LedgerModel, before: LedgerMetadata, now: LedgerMetadata
    ) -> None:
        first, lac = now.last_fragment.first_entry_id, ledger.confirmed
        if first != lac + 1:
            self.report(
                f"ledger {ledger.ledger_id}: an ensemble change at entry {first}, and the LAC is "
                f"{lac} ({before.fragments})"
            )
