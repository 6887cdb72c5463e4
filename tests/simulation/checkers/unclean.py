"""Checker: what an unclean recovery gives up is recorded, and consists of complete fragments.

No sound member that is up holds an entry of a fragment that was given up. The entries that remain
are judged as those of any closed ledger.

Source: protocol rule 11.6.
"""

from collections.abc import Callable

from typing_extensions import override

from metadata.ids import ENTRY_ID_MAX
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel, Model


class UncleanChecker(Checker):
    """Checks every ledger that an unclean recovery closed."""

    name = "unclean"

    def __init__(self, model: Model, is_sound: Callable[[str], bool]) -> None:
        """`is_sound` says, by its id, that a bookie serves, was never damaged, and is reached.

        It says so only after the faults: `reach.unclean_closes` judges what is given up before.
        """
        super().__init__(model)
        self._is_sound = is_sound

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or before is None:
            return
        where = f"ledger {ledger.ledger_id}"
        if before.given_up:
            if now.given_up != before.given_up:
                self.report(f"{where} gave up {before.given_up}, and now says {now.given_up}")
            return
        if now.given_up:
            self._look_at_close(ledger, before, now)
        elif len(now.fragments) < len(before.fragments):
            self.report(f"{where} lost {before.fragments[len(now.fragments) :]} without a word")

    def _look_at_close(
        self, ledger: LedgerModel, before: LedgerMetadata, now: LedgerMetadata
    ) -> None:
        where = f"ledger {ledger.ledger_id}"
        if before.state is not LedgerState.IN_RECOVERY or not now.quorum.is_in_sync:
            self.report(
                f"{where} was {before.state} in mode {now.quorum.mode}, and gave up entries"
            )
        gives_up_all = now.given_up[0].first_entry_id == 0  # then one fragment stays, empty
        kept = () if gives_up_all and now.fragments == before.fragments[:1] else now.fragments
        if (*kept, *now.given_up) != before.fragments:
            self.report(f"{where} had {before.fragments}, keeps {now.fragments}, {now.given_up}")
        elif now.last_entry_id != now.given_up[0].first_entry_id - 1:
            self.report(f"{where} gave up {now.given_up}, and ends at {now.last_entry_id}")
        ends = [part.first_entry_id for part in now.given_up[1:]]
        for part, end in zip(now.given_up, [*ends, ENTRY_ID_MAX + 1], strict=True):
            holders = [
                each
                for each in part.ensemble
                if self._is_sound(str(each)) and self._holds(each, ledger, part.first_entry_id, end)
            ]
            if holders:
                self.report(f"{where} gave up {part}, and {holders} could have been asked")

    def _holds(self, bookie_id: str, ledger: LedgerModel, first: int, end: int) -> bool:
        held = self.model.held.get((bookie_id, ledger.ledger_id), ())
        return any(first <= entry_id < end for entry_id in held)
