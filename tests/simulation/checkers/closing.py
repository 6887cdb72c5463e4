"""Checker: a ledger is closed once, with one last entry and the right length.

The last entry is not before an acknowledged one. Entries that an unclean recovery gives up are
judged by `unclean`.

Source: protocol rules 1.5, 6.1, 6.2, 7.5; invariants "a closed ledger ends at or after every acked
entry", "one close, one last entry", "no ack after another's close".
"""

from typing_extensions import override

from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel

ALLOWED = (
    (LedgerState.OPEN, LedgerState.OPEN),
    (LedgerState.OPEN, LedgerState.IN_RECOVERY),
    (LedgerState.OPEN, LedgerState.CLOSED),
    (LedgerState.IN_RECOVERY, LedgerState.IN_RECOVERY),
    (LedgerState.IN_RECOVERY, LedgerState.CLOSED),
    (LedgerState.CLOSED, LedgerState.CLOSED),
)


class ClosingChecker(Checker):
    """Follows the stored state of every ledger."""

    name = "closing"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None:
            return
        where = f"ledger {ledger.ledger_id}"
        if before is not None and (before.state, now.state) not in ALLOWED:
            self.report(f"{where} went from {before.state} to {now.state}")
        if now.state is not LedgerState.CLOSED:
            return
        assert now.last_entry_id is not None
        if ledger.closed_at is None:
            ledger.closed_at = now.last_entry_id
            self._look_at_first_close(ledger, now)
        elif ledger.closed_at != now.last_entry_id:
            self.report(f"{where} was closed at {ledger.closed_at} and then at {now.last_entry_id}")
        elif before is not None and now.length != before.length:
            self.report(f"{where} had the length {before.length} and then {now.length}")

    @override
    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        # a writer learns later of an unclean close: see `reach.unclean_closes`
        if ledger.closed_at is not None and entry_id > max(ledger.closed_at, ledger.lost_to):
            self.report(
                f"ledger {ledger.ledger_id} was closed at {ledger.closed_at}, then an append of "
                f"entry {entry_id} succeeded"
            )

    def _look_at_first_close(self, ledger: LedgerModel, now: LedgerMetadata) -> None:
        where = f"ledger {ledger.ledger_id} closed at {now.last_entry_id}"
        assert now.last_entry_id is not None
        if now.last_entry_id < ledger.confirmed and not now.given_up:
            self.report(f"{where}, and entry {ledger.confirmed} was confirmed")
        seen = max(ledger.readers.values(), default=-1)
        if now.last_entry_id < seen and not now.given_up:
            self.report(f"{where}, and a reader's LAC is {seen}")
        ids = range(now.last_entry_id + 1)
        if any(entry_id not in ledger.payloads for entry_id in ids):
            self.report(f"{where}, beyond what was ever appended")
            return
        length = sum(len(ledger.payloads[entry_id]) for entry_id in ids)
        if length != now.length:
            self.report(f"{where} with length {now.length}, and its entries have {length} bytes")
