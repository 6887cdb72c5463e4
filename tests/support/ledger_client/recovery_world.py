"""One ledger, its metadata and bookies in memory, for tests of recoveries in virtual time."""

from collections.abc import Awaitable, Callable
from random import Random

from ledger_client.bookies.placement import Placement, Quarantine
from ledger_client.config import ClientConfig
from ledger_client.recovery.recoverer import Recoverer
from metadata.ids import BookieId, Version
from metadata.ledgers.ledger_metadata import (
    STRIPE_ENTRIES_DEFAULT,
    DigestType,
    LedgerMetadata,
    QuorumSpec,
)
from metadata.registry.registration import BookieRegistration
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.ledger_world import LEDGER, LedgerWorld
from tests.support.ledger_client.memory_bookies import MemoryBookies
from tests.support.sample_ledgers import ledger_of


class Up:
    """The live bookies, as seen by the placement."""

    def __init__(self, names: str) -> None:
        self.bookies = {
            bookie_id: BookieRegistration(bookie_id, "host", 1, capacity_bytes=100, free_bytes=50)
            for bookie_id in map(BookieId, names.split(","))
        }

    async def refresh(self) -> None:
        return  # the live bookies are all known already


class World(LedgerWorld[MemoryBookies]):
    """A ledger that is recovered."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        super().__init__(metadata, MemoryBookies)
        self.metadata = metadata
        self.up = Up("a,b,c,d,e,f")
        self.version = Version(0)

    async def create(self) -> None:
        self.version = await self.ledgers.create(self.metadata)

    def recoverer(self) -> Recoverer:
        rng = Random(3)
        return Recoverer(
            metadata=self.metadata,
            version=self.version,
            keys=self.keys,
            pool=self.bookies.pool,
            placement=Placement(self.up, Quarantine(60.0), rng),
            ledgers=self.ledgers,
            config=ClientConfig(),
            rng=rng,
        )

    async def recover(self) -> LedgerMetadata:
        metadata, version = await self.recoverer().recover()
        assert (metadata, version) == await self.ledgers.get(LEDGER, fresh=True)
        assert self.bookies.attached == 0
        return metadata

    def copies(self, entry_id: int) -> str:
        return "".join(
            b for b, bookie in self.bookies.bookies.items() if entry_id in bookie.entries
        )


def run(
    scenario: Callable[[World], Awaitable[None]],
    *,
    quorum: tuple[int, ...] = (3, 3, 2),
    ensemble: str = "a,b,c",
    digest: DigestType = DigestType.CRC32C,
) -> None:
    async def main() -> None:
        ensemble_size, write, ack, stripe = (*quorum, STRIPE_ENTRIES_DEFAULT)[:4]
        world = World(
            ledger_of(
                (0, ensemble.split(",")),
                quorum=QuorumSpec(ensemble_size, write, ack, stripe),
                digest=digest,
            )
        )
        await world.create()
        await scenario(world)

    run_simulation(main, 1, until_s=600)
