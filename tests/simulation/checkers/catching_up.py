"""Checker: a member of an older fragment of an in-sync ledger holds every entry of it durably.

The check reads the member's disk in the step in which the metadata names it. It skips a damaged
disk. That the entries can also be read there after healing is checked by `replicas`.

Source: protocol rules 9.1, 11.2; invariant "a member is in sync once it holds every earlier entry".
"""

from collections.abc import Callable
from typing import Final

from typing_extensions import override

from metadata.ledgers.ledger_metadata import LedgerMetadata
from tests.simulation.checkers.checker import Checker
from tests.simulation.checkers.durability import DISTINCT_BYTES
from tests.simulation.disk import Platter
from tests.simulation.model import LedgerModel, Model


class CatchingUpChecker(Checker):
    """Checks every bookie that joins a complete fragment."""

    name: Final = "catching up"

    def __init__(self, model: Model, sound_platter_of: Callable[[str], Platter | None]) -> None:
        """`sound_platter_of` returns a bookie's disk by its id, unless the disk was damaged."""
        super().__init__(model)
        self._platter_of = sound_platter_of

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or before is None or not now.quorum.is_in_sync or now.given_up:
            return
        for index, old in enumerate(before.fragments[:-1]):
            for bookie_id in now.fragments[index].ensemble:
                if bookie_id not in old.ensemble:
                    stop = before.fragments[index + 1].first_entry_id
                    self._look_at(ledger, str(bookie_id), range(old.first_entry_id, stop))

    def _look_at(self, ledger: LedgerModel, bookie_id: str, entry_ids: range) -> None:
        platter = self._platter_of(bookie_id)
        if platter is None:
            return
        for entry_id in entry_ids:
            payload = ledger.payloads[entry_id]
            if len(payload) >= DISTINCT_BYTES and not platter.holds(payload):
                self.report(
                    f"{bookie_id} was named for entries {entry_ids} of ledger {ledger.ledger_id}, "
                    f"and its disk does not hold entry {entry_id}"
                )
                return
