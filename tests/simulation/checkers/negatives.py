"""Checker: a bookie says "no such entry" only of entries that it never acknowledged.

A bookie that denied an entry to a recovery acknowledges no later add of it from the writer.

Source: protocol rules 2.4, 3.2, 4.3, 10.3; invariant "no such entry only from a bookie that
never acked it".
"""

from typing_extensions import override

from tests.simulation.checkers.checker import Asked, Checker
from tests.simulation.model import Model


class NegativesChecker(Checker):
    """Compares each negative with the entries that the bookie acknowledged before the request."""

    name = "negatives"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._denied_from: dict[tuple[str, int], int] = {}
        """Lowest entry that a bookie denied to a fencing read."""

    @override
    def on_negative(self, bookie_id: str, asked: Asked, entry_id: int | None) -> None:
        held = self.model.held.get((bookie_id, asked.ledger_id))
        asked_at_s = asked.delivered_at_s
        if asked_at_s is None:  # the bookie answers while it reads the request
            asked_at_s = self.model.loop.now_s
        ids = held if entry_id is None else (entry_id,)
        if held and ids and not self._may_be_trimmed(asked.ledger_id, entry_id):
            for each in ids:
                if held.get(each, asked_at_s) < asked_at_s:
                    self.report(
                        f"{bookie_id} denied entry {each} of ledger {asked.ledger_id}, asked at "
                        f"{asked_at_s:.6f} s, acknowledged at {held[each]:.6f} s"
                    )
                    break
        if asked.flag:
            key = (bookie_id, asked.ledger_id)
            denied = asked.first_entry_id if entry_id is None else entry_id
            self._denied_from[key] = min(denied, self._denied_from.get(key, denied))

    def _may_be_trimmed(self, ledger_id: int, entry_id: int | None) -> bool:
        """Return whether a ledger was deleted, so that bookies may have dropped it (rule 10.3)."""
        ledger = self.model.ledgers.get(ledger_id)
        return entry_id is None and ledger is not None and ledger.metadata is None

    @override
    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        denied = self._denied_from.get((bookie_id, asked.ledger_id))
        if denied is not None and not asked.flag and denied in new:
            self.report(
                f"{bookie_id} denied entry {denied} of ledger {asked.ledger_id} to a recovery, and "
                "then acknowledged it to the writer"
            )
