"""Checker: the member set of an open in-sync ledger changes only in allowed ways.

The stored set never shrinks below `min_in_sync`, the last in-sync member never leaves, and no
current member is removed from an older fragment.

A caught-up spare may replace a member that is away for long, even when too few members stay in
sync. The number of members then stays the same, and nothing is acknowledged until enough are in
sync. So the number in sync is limited only when the set gets smaller.

Source: protocol rules 11.1, 11.2, 11.4.
"""

from typing_extensions import override

from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel, members_in_sync


class MembersChecker(Checker):
    """Checks every set of members that is stored."""

    name = "members"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or not now.quorum.is_in_sync or now.state is not LedgerState.OPEN:
            return
        where, least = f"ledger {ledger.ledger_id}", now.quorum.min_in_sync
        members, in_sync = now.last_fragment.ensemble, members_in_sync(now)
        if not least <= len(members) <= now.quorum.ensemble_size:
            self.report(f"{where} has the members {members}, and {least} at least are wanted")
        if not in_sync:
            self.report(f"{where}: its last member in sync left: {now.fragments}")
        if before is None:
            return
        if len(members) < len(before.last_fragment.ensemble) and len(in_sync) < least:
            self.report(f"{where} shrank, and only {in_sync} are in sync: {now.fragments}")
        for old, new in zip(before.fragments[:-1], now.fragments, strict=False):
            ousted = [each for each in old.ensemble if each not in new.ensemble]
            if any(each in members for each in ousted):
                self.report(f"{where}: {ousted} left the fragment at {old.first_entry_id}")
