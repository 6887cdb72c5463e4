"""Checker: every acknowledged entry has enough copies on the bookies that stored metadata names.

Enough is an ack quorum, also for every entry of a closed ledger. In in-sync mode it is every one of
these bookies, including those that joined later.

Source: protocol rules 4.4, 4.5, 5.1, 5.2, 7.4, 11.1, 11.2; invariant "ack implies stored metadata
names those bookies".
"""

from typing_extensions import override

from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel, copies_wanted, fragment_of


class CopiesChecker(Checker):
    """Counts copies at every confirmation, and again where stored fragments change."""

    name = "copies"

    @override
    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        self._count(ledger, ledger.judged + 1, ledger.kept)

    @override
    def on_fully_replicated(self, ledger: LedgerModel, entry_id: int) -> None:
        metadata = ledger.metadata
        if metadata is None:
            return
        if metadata.given_up and entry_id > ledger.kept:
            return  # its writer has not learned yet that an unclean recovery gave it up (11.7)
        copies = self.model.copies(ledger, metadata, entry_id)
        fragment = fragment_of(metadata, entry_id)
        if len(copies) < copies_wanted(metadata, fragment, full=True):
            self.report(
                f"entry {entry_id} of ledger {ledger.ledger_id} is said to be on all of its write "
                f"quorum, and only {copies} acknowledged it ({metadata.fragments})"
            )

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        if before is None or ledger.metadata is None:
            return
        if ledger.is_closed and before.state is not LedgerState.CLOSED:
            assert ledger.metadata.last_entry_id is not None
            self._count(ledger, ledger.judged + 1, ledger.metadata.last_entry_id)
        if before.fragments != ledger.metadata.fragments:
            same = [
                one.first_entry_id
                for one, other in zip(before.fragments, ledger.metadata.fragments, strict=False)
                if one != other
            ]
            first = min(same, default=ledger.metadata.last_fragment.first_entry_id)
            self._count(ledger, first, ledger.kept)

    def _count(self, ledger: LedgerModel, first: int, last: int) -> None:
        metadata = ledger.metadata
        if metadata is None:
            return
        for entry_id in range(first, last + 1):
            copies = self.model.copies(ledger, metadata, entry_id)
            fragment = fragment_of(metadata, entry_id)
            if len(copies) < copies_wanted(metadata, fragment, full=False):
                self.report(
                    f"entry {entry_id} of ledger {ledger.ledger_id} may be read, and of its write "
                    f"set only {copies} acknowledged it ({metadata.state}, {metadata.fragments})"
                )
                return
        ledger.judged = max(ledger.judged, last)
