"""Bookies that stopped in order, as they announced it with their last position.

Leaves the record to `metadata.registry.positions`, and what follows to `quire.repair.departures`.

Invariants: a bookie counts as stopped only if its last process recorded the stop as its last
action. The next start replaces that record before it registers, so a crash after that is none. A
record that this release cannot read announces nothing.

Source: protocol rules 2.6, 9.5 and 9.6.
"""

import asyncio
from collections.abc import Collection, Container, Mapping
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.registry.positions import PositionStore
from metadata.repair.lifecycle import Lifecycle
from metadata.store.interface import MetadataStore

READS_AT_ONCE: Final = 50
"""Maximum number of positions that are read at once."""
DECIDED: Final = (Lifecycle.LOST, Lifecycle.REMOVED)
"""States of missing bookies for which an announcement changes nothing any more."""


class OrderlyStops:
    """Reader of the announcements."""

    def __init__(self, store: MetadataStore) -> None:
        self._positions = PositionStore(store)

    async def among(
        self,
        known: Collection[BookieId],
        registered: Container[BookieId],
        states: Mapping[BookieId, Lifecycle],
    ) -> frozenset[BookieId]:
        """Return which of the known bookies are not registered because they stopped in order, by
        fresh reads. Raises StoreUnavailableError.
        """
        missing = [
            each
            for each in known
            if each not in registered and states.get(each, Lifecycle.ACTIVE) not in DECIDED
        ]
        found: list[BookieId] = []
        for begin in range(0, len(missing), READS_AT_ONCE):
            some = missing[begin : begin + READS_AT_ONCE]
            answers = await asyncio.gather(*map(self._stopped, some))
            found += [each for each, stopped in zip(some, answers, strict=True) if stopped]
        return frozenset(found)

    async def _stopped(self, bookie_id: BookieId) -> bool:
        try:
            record = (await self._positions.get(bookie_id)).record
        except MetadataFormatError:
            return False
        return record is not None and record.is_orderly
