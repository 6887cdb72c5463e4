"""Checker: a bookie becomes a member of a closed fragment only once it holds its entries.

A bookie holds what it acknowledged. So a swap never leaves an entry with fewer copies.

Source: protocol rules 9.1, 9.7 and 11.2; invariant "a new member of a closed fragment
holds its entries".
"""

from collections.abc import Iterator
from itertools import pairwise

from typing_extensions import override

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel, fragment_of, write_set


class SwapsChecker(Checker):
    """Checks every new member of a fragment that was closed before."""

    name = "swaps"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if before is None or now is None or before.fragments == now.fragments:
            return
        fragments = {each.first_entry_id: each for each in now.fragments}
        for old, last in _closed(before):
            new = fragments.get(old.first_entry_id)
            entered = [] if new is None else [b for b in new.ensemble if b not in old.ensemble]
            for entry_id in range(old.first_entry_id, last + 1) if entered else ():
                self._check(ledger, now, entered, entry_id)

    def _check(
        self, ledger: LedgerModel, now: LedgerMetadata, entered: list[BookieId], entry_id: int
    ) -> None:
        held = self.model.copies(ledger, now, entry_id)
        fragment = fragment_of(now, entry_id)
        wanted = write_set(now, fragment, entry_id)
        lacking = [b for b in entered if b in wanted and b not in held]
        if lacking:
            self.report(
                f"{lacking} became members of the fragment at {fragment.first_entry_id} of ledger "
                f"{ledger.ledger_id} and did not acknowledge entry {entry_id}: {now.fragments}"
            )


def _closed(metadata: LedgerMetadata) -> Iterator[tuple[Fragment, int]]:
    """Yield the closed fragments with their last entries."""
    fragments = metadata.fragments
    for fragment, following in pairwise(fragments):
        yield fragment, following.first_entry_id - 1
    if metadata.state is LedgerState.CLOSED and metadata.last_entry_id is not None:
        yield fragments[-1], metadata.last_entry_id
