"""In-memory bookies for tests of reading and recovery: the pool's calls and the protocol's rules.

Leaves sockets, disks and time limits to the real modules. An answer takes `delay_s`.

Invariants: as in rules 4.3 and 7.2, ordinary adds of a fenced ledger are refused, the same bytes
are accepted again, a fenced read answers after the fence.
"""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import cast

from crc32c import crc32c

from bookie.wire.batch import BatchView, Buffer, build_batch
from bookie.wire.codec import Entries
from bookie.wire.messages import (
    AccessReply,
    EntryRanges,
    LacReply,
    ListEntries,
    ReadAccess,
    ReadEntries,
    ReadLac,
    Status,
    WaitLac,
)
from ledger_client.bookies.connection_calls import Refusals
from ledger_client.bookies.pool import AddSink, BookieCallError, BookiePool, CallFailure
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from metadata.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from metadata.ledgers.entry_ranges import merged

DEFAULT_DELAY_S = 0.001


@dataclass
class MemoryBookie:
    """One bookie, and one ledger on it."""

    entries: dict[int, tuple[BatchView, int]] = field(default_factory=dict)
    """Entry id -> the batch as it was added, and the entry's digest."""
    lac: int = NO_ENTRY
    is_fenced: bool = False
    failure: CallFailure | None = None
    """Failure of every call; TIMEOUT only after the caller's time is over."""
    is_limbo: bool = False
    damaged: set[int] = field(default_factory=set)
    """Entries that it lists and does not return."""
    refuses_reads: Status | None = None
    """Status with which every read is refused."""
    refuses_lac: Status | None = None
    """Status with which every read of the LAC is refused."""
    lists_left: int = 1_000
    """Number of requests after which it does not list its entries."""
    refuses_adds: Status | None = None
    is_fence_lost: bool = False
    """Whether the fencing LAC reads fail, and no other call."""
    delay_s: float = DEFAULT_DELAY_S
    add_s: float = 0.0
    """Time that each add takes, one after the other."""
    adds_end_s: float = 0.0
    adds_left: int = 1_000_000
    """Number of adds that it answers; it does not answer the next ones."""
    reads: list[ReadEntries] = field(default_factory=list)
    polls: list[WaitLac] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def store(self, batch: BatchView, *, recovery: bool) -> Status:
        header = batch.header
        if self.refuses_adds is not None:
            return self.refuses_adds
        if self.is_fenced and not recovery:
            return Status.FENCED
        ids = range(header.first_entry_id, header.last_entry_id + 1)
        known = [(i, d) for i, d in zip(ids, batch.digests, strict=True) if i in self.entries]
        if any(self.entries[i][1] != digest for i, digest in known):
            return Status.CONFLICT
        for entry_id, digest in zip(ids, batch.digests, strict=True):
            self.entries.setdefault(entry_id, (batch, digest))
        self.advance(header.lac)
        return Status.OK

    def advance(self, lac: int) -> None:
        self.lac = max(self.lac, lac)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def read(self, first: int, last: int, bytes_max: int) -> Entries:
        """Return runs of entries that came in one batch, as slices unless they are the complete
        batch.
        """
        found: list[BatchView] = []
        size, position = 0, first
        there = self.entries.keys() - self.damaged
        while position <= last and position in there and (size < bytes_max or not found):
            batch = self.entries[position][0]
            stop = position
            while stop <= last and stop in there and self.entries[stop][0] is batch:
                stop += 1
            cut = BatchView(batch.cut(EntryId(position), EntryId(stop - 1)))
            if cut.header.is_slice:
                cut = _with_wrong_length(cut)
            found.append(cut)
            size, position = size + cut.header.size, stop
        status = Status.OK
        if position <= last and position not in self.entries:
            status = Status.NO_SUCH_ENTRY if self.entries else Status.NO_SUCH_LEDGER
            status = Status.UNKNOWN if self.is_limbo else status
        if position <= last and position in self.damaged:
            status = Status.UNKNOWN
        return Entries(status, EntryId(self.lac), EntryId(position), tuple(found))


class MemoryBookies:
    """Pool of in-memory bookies. `pool` is the product's view of it."""

    def __init__(self, names: Sequence[str], keys: LedgerKeys) -> None:
        self.bookies = {BookieId(name): MemoryBookie() for name in names}
        self.keys = keys
        self.attached = 0
        self.refusals = Refusals()

    def __getitem__(self, name: str) -> MemoryBookie:
        return self.bookies[BookieId(name)]

    def fail(self, names: str, failure: CallFailure | None = CallFailure.LOST) -> None:
        """Let every call of these bookies fail, or of none of them."""
        for name in names:
            self[name].failure = failure

    @property
    def pool(self) -> BookiePool:
        return cast("BookiePool", self)

    def write(
        self,
        first: int,
        payloads: Sequence[bytes],
        *,
        lac: int,
        length_before: int,
        to: str,
    ) -> BatchView:
        """Store a writer's batch on the bookies named in `to`, `a,b,c`."""
        keys = self.keys
        batch = BatchView(
            build_batch(
                keys.ledger_id,
                EntryId(first),
                EntryId(lac),
                length_before,
                payloads,
                keys.seed,
                keys.mac_key,
            )
        )
        for name in to.split(","):
            assert self[name].store(batch, recovery=False) is Status.OK
        return batch

    # -- calls of a BookiePool
    # ----------------------------------------------------------------------

    def attach(self, ledger_id: LedgerId, master_key: bytes) -> None:
        assert (ledger_id, master_key) == (self.keys.ledger_id, self.keys.master_key)
        self.attached += 1

    def detach(self, _ledger_id: LedgerId) -> None:
        self.attached -= 1

    def add(
        self,
        bookie_id: BookieId,
        _ledger_id: LedgerId,
        batch: Buffer,
        first_entry_id: EntryId,
        *,
        recovery: bool,
        sink: AddSink,
    ) -> None:
        bookie = self.bookies[bookie_id]
        loop = asyncio.get_running_loop()

        def answer() -> None:
            bookie.adds_left -= 1
            if bookie.adds_left < 0:
                return
            if bookie.failure is not None:
                sink.on_add_failed(bookie_id, first_entry_id, bookie.failure, "as the test wants")
                return
            view = BatchView(batch)
            view.verify_crc()
            status = bookie.store(view, recovery=recovery)
            sink.on_add_answered(bookie_id, first_entry_id, status)

        delay_s = ClientConfig().add_timeout_s if bookie.failure is CallFailure.TIMEOUT else 0.0
        bookie.adds_end_s = max(bookie.adds_end_s, loop.time()) + bookie.add_s
        loop.call_at(bookie.adds_end_s + delay_s + bookie.delay_s, answer)

    async def read_access(
        self, bookie_id: BookieId, request: ReadAccess, *, timeout_s: float
    ) -> AccessReply:
        bookie = await self._reach(bookie_id, timeout_s)
        assert request.ledger_id == self.keys.ledger_id
        known = bool(bookie.entries)
        status = Status.OK if known else Status.NO_SUCH_LEDGER
        return AccessReply(status, self.keys.master_key if known else b"")

    async def read_lac(
        self, bookie_id: BookieId, request: ReadLac, *, timeout_s: float
    ) -> LacReply:
        bookie = await self._reach(bookie_id, timeout_s)
        if bookie.is_fence_lost:
            raise BookieCallError(bookie_id, "as the test wants", failure=CallFailure.PROTOCOL)
        if bookie.refuses_lac is not None:
            raise BookieCallError(bookie_id, "as the test wants", status=bookie.refuses_lac)
        bookie.is_fenced |= request.fence
        status = Status.OK if bookie.entries else Status.NO_SUCH_LEDGER
        status = Status.UNKNOWN if bookie.is_limbo else status
        highest = EntryId(max(bookie.entries, default=NO_ENTRY))
        return LacReply(status, EntryId(bookie.lac), highest, bookie.is_fenced)

    async def read_entries(
        self, bookie_id: BookieId, request: ReadEntries, *, timeout_s: float
    ) -> Entries:
        self.bookies[bookie_id].reads.append(request)
        bookie = await self._reach(bookie_id, timeout_s)
        if bookie.refuses_reads is not None:
            raise BookieCallError(bookie_id, "as the test wants", status=bookie.refuses_reads)
        bookie.is_fenced |= request.fence
        return bookie.read(request.first_entry_id, request.last_entry_id, request.bytes_max)

    async def list_entries(
        self, bookie_id: BookieId, request: ListEntries, *, timeout_s: float
    ) -> EntryRanges:
        bookie = await self._reach(bookie_id, timeout_s)
        bookie.lists_left -= 1
        if bookie.lists_left < 0:
            raise BookieCallError(bookie_id, "as the test wants", status=Status.UNKNOWN)
        if not bookie.entries and not bookie.is_limbo:
            return EntryRanges(Status.NO_SUCH_LEDGER, (), complete=True)
        held = [(entry, entry) for entry in bookie.entries if entry >= request.first_entry_id]
        return EntryRanges(Status.OK, tuple(merged(held)), complete=True)

    async def wait_lac(self, bookie_id: BookieId, request: WaitLac, *, timeout_s: float) -> Entries:
        self.bookies[bookie_id].polls.append(request)
        bookie = await self._reach(bookie_id, timeout_s)
        try:
            async with asyncio.timeout(request.wait_ms / 1000):
                while bookie.lac <= request.lac and bookie.failure is None:
                    await bookie.changed.wait()
        except TimeoutError:
            pass
        await self._reach(bookie_id, timeout_s)
        nothing = Entries(Status.OK, EntryId(bookie.lac), EntryId(request.lac + 1), ())
        if bookie.lac <= request.lac or not request.bytes_max:
            return nothing
        return bookie.read(request.lac + 1, bookie.lac, request.bytes_max)

    async def _reach(self, bookie_id: BookieId, timeout_s: float) -> MemoryBookie:
        bookie = self.bookies[bookie_id]
        if bookie.failure is CallFailure.TIMEOUT:
            await asyncio.sleep(timeout_s)
        else:
            await asyncio.sleep(bookie.delay_s)
        if bookie.failure is not None:
            raise BookieCallError(bookie_id, "as the test wants", failure=bookie.failure)
        return bookie


def _with_wrong_length(cut: BatchView) -> BatchView:
    """Return a slice whose header has a wrong length, which is allowed in a slice."""
    data = bytearray(cut.data)
    struct.pack_into("<Q", data, 32, 987_654_321)
    struct.pack_into("<I", data, 44, crc32c(bytes(data[48:]), crc32c(bytes(data[:44]))))
    return BatchView(data)


def rng() -> Random:
    """Return the source of randomness of a test."""
    return Random(7)
