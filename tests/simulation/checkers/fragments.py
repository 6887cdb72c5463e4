"""Checker: stored fragments are contiguous, and only allowed changes are made to them.

The last fragment of an open ledger may change. Others change only by copy-then-swap: a target is
marked as incoming, and only a marked bookie becomes a member.

Source: protocol rules 1.1, 1.5, 5.1, 7.5, 9.1, 11.2; invariant "fragments contiguous, only the last
one mutable except for copy-then-swap".
"""

from typing_extensions import override

from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel


class FragmentsChecker(Checker):
    """Compares each stored value with the one before it."""

    name = "fragments"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or before is None or now.fragments == before.fragments or now.given_up:
            return  # fragments that were given up are judged by `unclean`
        where = f"ledger {ledger.ledger_id}"
        was_closed = before.state is LedgerState.CLOSED
        kept = len(before.fragments) - (0 if was_closed else 1)
        if len(now.fragments) < len(before.fragments):
            self.report(f"{where}: fragments vanished: {before.fragments} {now.fragments}")
            return
        if was_closed and len(now.fragments) > len(before.fragments):
            self.report(f"{where} is closed, and has more fragments: {now.fragments}")
        pairs = zip(before.fragments[:kept], now.fragments[:kept], strict=True)
        steps = [(old, new) for old, new in pairs if old != new]
        if len(steps) > 1 or not all(_is_step_of_a_copy(old, new) for old, new in steps):
            self.report(f"{where}: older fragments changed: {before.fragments} {now.fragments}")
        if now.fragments[kept:] == before.fragments[kept:]:
            return
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


def _is_step_of_a_copy(old: Fragment, new: Fragment) -> bool:
    """Return whether a mark was set or removed, or a marked bookie became a member."""
    if old.first_entry_id != new.first_entry_id:
        return False
    if old.ensemble == new.ensemble:
        return len({*old.incoming} ^ {*new.incoming}) == 1
    joined = [each for each in new.ensemble if each not in old.ensemble]
    left = [each for each in old.ensemble if each not in new.ensemble]
    if len(joined) != 1 or len(left) > 1 or joined[0] not in old.incoming:
        return False
    is_in_place = [each for each in new.ensemble if each not in joined] == [
        each for each in old.ensemble if each not in left
    ]
    unmarked = tuple(each for each in old.incoming if each not in joined)
    return is_in_place and new.incoming == unmarked
