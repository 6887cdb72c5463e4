"""Checker: a bookie that answered a fence accepts no ordinary add later, even after crashes.

Source: protocol rules 4.3, 7.2; invariant "a fence survives crashes".
"""

from typing_extensions import override

from tests.simulation.checkers.checker import Asked, Checker


class FencingChecker(Checker):
    """Records every fence that was answered in `Model.fenced_at_s`."""

    name = "fencing"

    @override
    def on_fenced(self, bookie_id: str, ledger_id: int) -> None:
        self.model.fenced_at_s.setdefault((bookie_id, ledger_id), self.model.loop.now_s)

    @override
    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        if asked.flag:
            return
        fenced_at_s = self.model.fenced_at_s.get((bookie_id, asked.ledger_id))
        delivered_at_s = asked.delivered_at_s
        if fenced_at_s is not None and delivered_at_s is not None and delivered_at_s > fenced_at_s:
            self.report(
                f"{bookie_id} answered a fence of ledger {asked.ledger_id} at {fenced_at_s:.6f} s, "
                f"and accepted entry {asked.first_entry_id} that came at {delivered_at_s:.6f} s"
            )
