"""Checker: readers get the appended bytes, up to a LAC that only grows and was confirmed.

Source: protocol rules 8.1, 8.2, 8.5; invariants "acked entries are readable with the same bytes",
"LAC per handle monotone and never beyond what was confirmed", "readers never see beyond their LAC".
"""

from typing_extensions import override

from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel


class ReadingChecker(Checker):
    """Checks all results that readers receive."""

    name = "reading"

    @override
    def on_read(self, ledger: LedgerModel, entry_id: int, data: bytes) -> None:
        where = f"entry {entry_id} of ledger {ledger.ledger_id}"
        if ledger.payloads.get(entry_id) != data:
            self.report(f"{where} was read as {data[:40]!r}..., {len(data)} bytes, never appended")
        if entry_id > ledger.visible:
            self.report(f"{where} was read, and the LAC is {ledger.visible}")

    @override
    def on_reader_lac(self, ledger: LedgerModel, handle: int, lac: int) -> None:
        before = ledger.readers.get(handle, -1)
        ledger.readers[handle] = lac
        if lac < before:
            self.report(f"ledger {ledger.ledger_id}: a reader's LAC fell from {before} to {lac}")
        if lac > ledger.visible:
            self.report(
                f"ledger {ledger.ledger_id}: a reader's LAC is {lac}, the writer's {ledger.visible}"
            )

    @override
    def on_not_found(self, ledger: LedgerModel, text: str) -> None:
        if ledger.metadata is not None and not ledger.metadata.given_up:
            self.report(f"ledger {ledger.ledger_id}: what may be read was not found: {text}")
