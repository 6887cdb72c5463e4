"""A bookie's checkpoint mark never goes back: what lies below it is not replayed again.

Source: protocol rule 4.3; invariant "checkpoint mark monotone".
"""

from collections.abc import Collection
from typing import Final

from bookie.index_pages import read_meta
from tests.simulation.index_store import MemoryStore, MemoryTransaction
from tests.simulation.model import Model
from tests.simulation.nodes import BookieNode

NAME: Final = "marks"


class MarksChecker:
    """Looks at what every index has durably stored. A disk that was exchanged begins anew."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._seen: dict[str, tuple[MemoryStore, int]] = {}

    def look(self, bookies: Collection[BookieNode], damaged: Collection[str]) -> None:
        """Compare every mark with the one seen before."""
        for bookie in bookies:
            for store in bookie.platter.stores.values():
                if bookie.host not in damaged and store.is_settled:
                    self._compare(bookie.host, store)

    def _compare(self, host: str, store: MemoryStore) -> None:
        meta = read_meta(MemoryTransaction(store))
        if meta is None:
            return
        known, mark = self._seen.get(host, (store, 0))
        if known is store and meta.mark_lsn < mark:
            self._model.report(NAME, f"{host}: its mark went from {mark} to {meta.mark_lsn}")
        self._seen[host] = (store, meta.mark_lsn)
