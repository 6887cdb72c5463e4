"""Checker: a bookie syncs entries to its disk before it acknowledges them.

Source: protocol rule 4.3; invariant "fsync before ack".
"""

from collections.abc import Callable
from typing import Final

from typing_extensions import override

from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from tests.simulation.checkers.checker import Asked, Checker
from tests.simulation.disk import Platter
from tests.simulation.model import Model

DISTINCT_BYTES: Final = 16
"""Payloads of at least this many bytes are searched for on the disk."""


class DurabilityChecker(Checker):
    """Searches for acknowledged bytes among those that would survive a power cut now."""

    name = "durability"

    def __init__(self, model: Model, platter_of: Callable[[str], Platter | None]) -> None:
        super().__init__(model)
        self._platter_of = platter_of

    @override
    def on_stored(self, bookie_id: str, host: str, asked: Asked, new: list[int]) -> None:
        platter = self._platter_of(host)
        if not new or platter is None or platter.holds(asked.body):
            return
        try:
            view = BatchView(memoryview(asked.body))
        except BatchError:
            return
        at = asked.first_entry_id
        payloads = [view.entry(index) for index in range(view.header.count)]
        for entry_id in new:
            payload = payloads[entry_id - at]
            if len(payload) >= DISTINCT_BYTES and not platter.holds(payload):
                self.report(
                    f"{bookie_id} acknowledged entry {entry_id} of ledger {asked.ledger_id} before "
                    "it was synced"
                )
                return
