"""A ledger on in-memory bookies, for tests of copying it, in virtual time.

Leaves the expected results to the tests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from typing_extensions import override

from bookie.wire.batch import BatchView, Buffer
from bookie.wire.entries import Entries
from ledger_client.bookies.pool import AddSink
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.in_sync.copy_limits import CopyLimits, CopyProgress, CopyThrottle, Throttle
from ledger_client.in_sync.copying import CopyServices, FragmentCopier, StoredMetadata
from metadata.ids import NO_ENTRY, BookieId, ClientId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import StoreFaults
from metadata.store.memory_server import MemoryMetadataServer
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.memory_bookies import MemoryBookie, MemoryBookies

if TYPE_CHECKING:
    from metadata.repair.lifecycle_store import LifecycleStore

LEDGER = LedgerId(7)
TOKEN = UpdateToken(b"t" * 16)
THREE = QuorumSpec(3, 3, 2)
FAST = CopyLimits(request_bytes_max=64, requests_at_once=2)


def payload(number: int) -> bytes:
    return b"entry %d" % number + b"." * (number % 5)


def payloads(first: int, count: int) -> list[bytes]:
    return [payload(each) for each in range(first, first + count)]


def length(stop: int) -> int:
    return sum(map(len, payloads(0, stop)))


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
        for each in range(batch.header.first_entry_id, batch.header.last_entry_id + 1):
            entries[each] = (damaged, entries[each][1])


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


class World:
    """One ledger, its metadata and its bookies; `d` is the target."""

    def __init__(
        self, metadata: LedgerMetadata, limits: CopyLimits, faults: StoreFaults | None
    ) -> None:
        self.keys = LedgerKeys.of(metadata, b"secret")
        self.copier_keys = self.keys
        self.bookies = Bookies("abcdef", self.keys)
        self.store = MemoryMetadataStore(MemoryMetadataServer(faults))
        self.ledgers = Ledgers(self.store, Random(1), lambda: 0)
        self.others = LedgerStore(self.store, Random(2), lambda: 0)
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

    async def now(self) -> LedgerMetadata:
        metadata, _ = await self.others.get(LEDGER, fresh=True)
        return metadata

    async def change(self, *changes: Callable[[LedgerMetadata], LedgerMetadata]) -> None:
        """Apply others' changes to the stored metadata, one after the other."""
        for change in changes:
            metadata, version = await self.others.get(LEDGER, fresh=True)
            await self.others.compare_and_set(change(metadata), version)

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


def fragments(*parts: tuple[int, str]) -> tuple[Fragment, ...]:
    return tuple(Fragment(EntryId(first), tuple(map(BookieId, names))) for first, names in parts)


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
    metadata = LedgerMetadata(
        ledger_id=LEDGER,
        state=LedgerState.OPEN if closed_at is None else LedgerState.CLOSED,
        quorum=quorum,
        fragments=fragments(*(parts or ((0, "abc"), (40, "abc")))),
        digest=digest,
        created_ms=0,
        creation_token=UpdateToken(bytes(16)),
        update_token=UpdateToken(bytes(16)),
        writer=ClientId("writer"),
        last_entry_id=None if closed_at is None else EntryId(closed_at),
        length=None if closed_at is None else length(max(closed_at, NO_ENTRY) + 1),
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
