"""One ledger on bookies in memory, some of which are lost, for tests of what repair gives up."""

from random import Random

from ledger_client.bookies.pool import CallFailure
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import bookie_path
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from quire.repair.losses import LossParts, LossSurvey
from tests.support.ledger_client.ledger_world import LedgerWorld
from tests.support.ledger_client.memory_bookies import MemoryBookies

NOW_MS = 1_700_000_000_000


class LossWorld(LedgerWorld[MemoryBookies]):
    """A ledger, and what a search for its lost entries needs."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        super().__init__(metadata, MemoryBookies)
        self.parts = LossParts(self.store, self.ledgers, Random(3), lambda: NOW_MS)

    def survey(self) -> LossSurvey:
        return LossSurvey(self.bookies.pool, self.keys)

    async def lose(self, names: str, *states: Lifecycle) -> None:
        """Have the auditor store that bookies are lost, or another course of states."""
        self.bookies.fail(names, CallFailure.REFUSED)
        lifecycles = LifecycleStore(self.store, self.parts.rng)
        for name in names:
            for state in states or (Lifecycle.LOST,):
                await lifecycles.change(BookieId(name), state, "test", 5)

    async def give_back(self, name: str) -> None:
        """Register a bookie; the auditor has not stored yet that it is back."""
        self.bookies[name].failure = None
        await self.register(name)

    async def register(self, name: str) -> None:
        await self.store.create(bookie_path(BookieId(name)), b"registered")


def lost_of(ledger: LedgerMetadata) -> list[tuple[int, int]]:
    return [(lost_range.first_entry_id, lost_range.last_entry_id) for lost_range in ledger.lost]
