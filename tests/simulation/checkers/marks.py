"""Checker: a bookie's checkpoint mark never moves back, since nothing below it is replayed.

Source: protocol rule 4.3; invariant "checkpoint mark monotone".
"""

from collections.abc import Container

from typing_extensions import override

from bookie.index.index_pages import read_meta
from tests.simulation.checkers.checker import Checker
from tests.simulation.index_store import MemoryStore, MemoryTransaction
from tests.simulation.model import Model


class MarksChecker(Checker):
    """Checks what every index has stored durably. A replaced disk starts without a mark."""

    name = "marks"

    def __init__(self, model: Model, damaged: Container[str]) -> None:
        super().__init__(model)
        self._damaged = damaged
        """Hosts whose disks may have returned to an older state."""
        self._seen: dict[str, tuple[MemoryStore, int]] = {}

    @override
    def on_index_stored(self, host: str, store: MemoryStore) -> None:
        if host in self._damaged:
            return
        meta = read_meta(MemoryTransaction(store))
        known, mark = self._seen.get(host, (store, 0))
        found = 0 if meta is None else meta.mark_lsn
        if known is store and found < mark:
            self.report(f"{host}: its mark went from {mark} to {found}")
        self._seen[host] = (store, found)
