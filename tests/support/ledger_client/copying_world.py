"""A ledger on in-memory bookies, for tests of copying it, in virtual time.

Leaves the expected results to the tests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from typing_extensions import override

from bookie.wire.batch import BatchView, Buffer
from bookie.wire.codec import Entries
from ledger_client.bookies.pool import AddSink
from ledger_client.config import ClientConfig
from ledger_client.copying import (
    CopyLimits,
    CopyProgress,
    CopyServices,
    CopyThrottle,
    FragmentCopier,
    StoredMetadata,
    Throttle,
)
from ledger_client.digest import LedgerKeys
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import (
    DigestType,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory_faults import StoreFaults
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.ledger_world import LEDGER, LedgerWorld, length, payload, payloads
from tests.support.ledger_client.memory_bookies import MemoryBookie, MemoryBookies
from tests.support.sample_ledgers import ledger_of

if TYPE_CHECKING:
    from metadata.repair.lifecycle_store import LifecycleStore

TOKEN = UpdateToken(b"t" * 16)
THREE = QuorumSpec(3, 3, 2)
FAST = CopyLimits(request_bytes_max=64, requests_at_once=2)


class Bookies(MemoryBookies):
    """Bookies that record the adds, and the maximum number of unanswered ones."""

    def __init__(self, names: Sequence[str], keys: LedgerKeys) -> None:
        super().__init__(names, keys)
        self.adds: list[tuple[float, BookieId, BatchView]] = []

    @override
    def add(
        self,
        bookie_id: BookieId,
        ledger_id: LedgerId,
        batch: Buffer,
        first_entry_id: EntryId,
        *,
        recovery: bool,
        sink: AddSink,
    ) -> None:
        self.adds.append((asyncio.get_running_loop().time(), bookie_id, BatchView(batch)))
        super().add(bookie_id, ledger_id, batch, first_entry_id, recovery=recovery, sink=sink)

    def damage(self, name: str, entry_id: int) -> None:
        """Flip the last bit of the batch that contains an entry."""
        entries = self[name].entries
        batch, _ = entries[entry_id]
        data = bytearray(batch.data)
        data[-1] ^= 1
        damaged = BatchView(data)
        for number in range(batch.header.first_entry_id, batch.header.last_entry_id + 1):
            entries[number] = (damaged, entries[number][1])


class Forgetful(MemoryBookie):
    """Bookie that acknowledges adds and returns nothing."""

    @override
    def read(self, first: int, last: int, bytes_max: int) -> Entries:
        self.entries.clear()
        return super().read(first, last, bytes_max)


class Ledgers(LedgerStore):
    """Ledger store that calls a test just before the target is stored as a member."""

    before_naming: Callable[[], Awaitable[None]] | None = None

    @override
    async def compare_and_set(self, metadata: LedgerMetadata, expected: Version) -> Version:
        meddle = self.before_naming
        if meddle is not None and BookieId("d") in metadata.fragments[0].ensemble:
            await meddle()
        return await super().compare_and_set(metadata, expected)


class World(LedgerWorld[Bookies]):
    """A ledger of which `d` gets copies."""

    ledgers: Ledgers

    def __init__(
        self, metadata: LedgerMetadata, limits: CopyLimits, faults: StoreFaults | None
    ) -> None:
        super().__init__(metadata, Bookies, faults)
        self.ledgers = Ledgers(self.store, Random(1), lambda: 0)
        self.copier_keys = self.keys
        self.metadata = metadata
        self.limits = limits
        self.throttle: Throttle = CopyThrottle(None)
        self.config = ClientConfig()
        self.progress: list[CopyProgress] = []
        self.on_progress: Callable[[CopyProgress], None] = self.progress.append
        self.lifecycles: LifecycleStore | None = None

    def copier(self) -> FragmentCopier:
        return FragmentCopier(
            services=CopyServices(
                self.bookies.pool, self.ledgers, self.config, Random(3), self.lifecycles
            ),
            keys=self.copier_keys,
            limits=self.limits,
            throttle=self.throttle,
            on_progress=self.on_progress,
        )

    async def copy(self, first: int = 0, *, replaces: str | None = "a") -> StoredMetadata:
        replaced = None if replaces is None else BookieId(replaces)
        try:
            return await self.copier().copy_fragment(
                LEDGER, EntryId(first), BookieId("d"), replaced
            )
        finally:
            assert self.bookies.attached == 0

    def sent(self) -> list[int]:
        """Return the first entry of each batch sent to the target."""
        return [batch.header.first_entry_id for _, _, batch in self.bookies.adds]

    def is_whole(self, first: int, last: int) -> bool:
        """Return whether the target holds exactly these entries, with the right bytes."""
        held = self.bookies["d"].entries
        return sorted(held) == list(range(first, last + 1)) and all(
            batch.entry(each - batch.header.first_entry_id) == payload(each)
            for each, (batch, _) in held.items()
        )


def run(
    scenario: Callable[[World], Awaitable[None]],
    *parts: tuple[int, str],
    quorum: QuorumSpec = THREE,
    digest: DigestType = DigestType.CRC32C,
    closed_at: int | None = None,
    limits: CopyLimits = FAST,
    faults: StoreFaults | None = None,
) -> None:
    """Run a scenario on a ledger with these fragments."""
    metadata = ledger_of(*(parts or ((0, "abc"), (40, "abc"))), quorum=quorum, digest=digest)
    if closed_at is not None:
        metadata = replace(
            metadata,
            state=LedgerState.CLOSED,
            last_entry_id=EntryId(closed_at),
            length=length(closed_at + 1),
        )

    async def main() -> None:
        world = World(metadata, limits, faults)
        await world.ledgers.create(metadata)
        await scenario(world)

    run_simulation(main, 1, until_s=3600)


def write(world: World, first: int, stop: int, *, per_batch: int = 5, to: str = "a,b,c") -> None:
    """Store entries on bookies as a writer does."""
    for start in range(first, stop, per_batch):
        count = min(per_batch, stop - start)
        world.bookies.write(
            start, payloads(start, count), lac=start - 1, length_before=length(start), to=to
        )
