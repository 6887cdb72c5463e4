"""Checker: a ledger has one writer for life, and one that is not claimed has none.

Source: protocol rules 1.1 and 4.1; `quire/operate/claims.py`.
"""

from typing_extensions import override

from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerMetadata
from tests.simulation.checkers.checker import Asked, Checker
from tests.simulation.model import LedgerModel


class OneWriterChecker(Checker):
    """Compares the stored writer and mark of a ledger before and after each change."""

    name = "one writer"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if before is None or now is None:
            return
        where = f"ledger {ledger.ledger_id}"
        is_claim = UNCLAIMED_NAME in before.custom and UNCLAIMED_NAME not in now.custom
        if now.writer != before.writer and not is_claim:
            self.report(f"{where} had the writer {before.writer}, and has {now.writer}")
        if UNCLAIMED_NAME in now.custom and UNCLAIMED_NAME not in before.custom:
            self.report(f"{where} was claimed by {before.writer}, and can be claimed again")
        if now.creation_token != before.creation_token:
            self.report(f"{where} became another ledger")

    @override
    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        ledger = self.model.ledgers.get(asked.ledger_id)
        metadata = None if ledger is None else ledger.metadata
        if new and metadata is not None and UNCLAIMED_NAME in metadata.custom:
            self.report(
                f"{bookie_id} stored {new} of ledger {asked.ledger_id}, which has no writer"
            )
