"""A storage in memory whose group commits are started by a test, and whose methods can be made to
fail.

Leaves durability, damage and other properties of disks to the real storage and its tests.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

from bookie.files.disk import DiskSpace
from bookie.queued_adds import QueuedAdds
from bookie.storage.answers import (
    AccessResult,
    EntryRangesResult,
    LedgerSnapshot,
    ReadResult,
    StorageStatistics,
)
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.ledger_reads import LedgerReads
from bookie.storage.writability import Writability
from bookie.wire.batch import BatchView, Buffer
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from metadata.callbacks import Callbacks
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.store.interface import Cancel
from quire.server.latency import LatencyCounts
from quire.server.overriding import override


@dataclass
class _Ledger:
    master_key: bytes
    batches: dict[int, BatchView] = field(default_factory=dict)
    lac: EntryId = NO_ENTRY
    highest: EntryId = NO_ENTRY
    fenced: bool = False

    def is_opened_by(self, master_key: bytes | None) -> bool:
        return not self.master_key or self.master_key == master_key


class ManualStorage(BookieStorage, LedgerReads):
    """See `BookieStorage`. `commit()` makes added batches durable; with `commits_by_itself` that
    happens in the next iteration of the event loop.
    """

    def __init__(self) -> None:  # the real one is made by `open`
        self.reads = self
        self.queued = QueuedAdds(accepted_bytes_max=1)
        self.commits_by_itself = True
        self.room = asyncio.Event()
        self.room.set()
        self.reads_wait = asyncio.Event()
        self.reads_wait.set()
        self.raises: Exception | None = None
        self.caches_reads = False
        self.read_only = False
        self._writability = Writability(lambda: 0.0)
        self.add_count = 0
        self.deletions_begun = 0
        self.feed_names: Callable[[int], bool] = lambda _ledger_id: False
        self.deletion_status = Status.OK
        self.released: dict[LedgerId, None] = {}
        self.reads_running = 0
        self.reads_running_most = 0
        self._kept: dict[LedgerId, _Ledger] = {}
        self._deleted: dict[LedgerId, None] = {}
        self._pending: list[Callable[[], None]] = []
        self._is_answering = False
        self._durable = Callbacks[()]()
        self._watches: dict[int, tuple[LedgerId, Callable[[], None]]] = {}

    def commit(self) -> None:
        pending, self._pending = self._pending, []
        self._is_answering = True
        for done in pending:
            done()
        self._is_answering = False
        self._durable.notify()

    @override
    def add(
        self,
        batch: BatchView,
        *,
        recovery: bool,
        master_key: bytes | None,
        done: Callable[[Status], None],
    ) -> None:
        self.add_count += 1
        if self.raises is not None:
            raise self.raises
        refused = self._refusal(batch, recovery=recovery, master_key=master_key)
        if refused is not None:
            done(refused)
            return
        header = batch.header
        ledger = self._ledger(header.ledger_id, master_key)
        ledger.batches[header.first_entry_id] = batch
        ledger.highest = max(ledger.highest, header.last_entry_id)
        if not self._pending and self.commits_by_itself:
            asyncio.get_running_loop().call_soon(self.commit)
        self._pending.append(lambda: done(Status.OK))
        if header.lac > ledger.lac:
            ledger.lac = header.lac
            self._notify_watchers(header.ledger_id)

    def _refusal(
        self, batch: BatchView, *, recovery: bool, master_key: bytes | None
    ) -> Status | None:
        try:
            batch.verify_crc()
        except BatchError:
            return Status.BAD_REQUEST
        if batch.header.ledger_id in self._deleted:
            return Status.DELETED
        if self.read_only and not recovery:
            return Status.READ_ONLY
        ledger = self._kept.get(batch.header.ledger_id)
        if ledger is None:
            return None
        if not ledger.is_opened_by(master_key):
            return Status.UNAUTHORIZED
        if ledger.fenced and not recovery:
            return Status.FENCED
        held = ledger.batches.get(batch.header.first_entry_id)
        if held is not None and held.digests != batch.digests:
            return Status.CONFLICT
        return None

    def _ledger(self, ledger_id: LedgerId, master_key: bytes | None) -> _Ledger:
        return self._kept.setdefault(ledger_id, _Ledger(master_key or b""))

    def _notify_watchers(self, ledger_id: LedgerId) -> None:
        for watched, callback in list(self._watches.values()):
            if watched == ledger_id:
                callback()

    @override
    def on_group_durable(self, callback: Callable[[], None]) -> Cancel:
        return self._durable.add(callback)

    @property
    @override
    def is_answering_group(self) -> bool:
        return self._is_answering

    @property
    @override
    def has_room(self) -> bool:
        return self.room.is_set()

    @override
    async def wait_for_room(self) -> None:
        await self.room.wait()

    @override
    async def fence(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        await self._wait()
        ledger = self._ledger(ledger_id, master_key)
        if not ledger.is_opened_by(master_key):
            return LedgerSnapshot(Status.UNAUTHORIZED, NO_ENTRY, NO_ENTRY, fenced=False)
        if not ledger.fenced:
            ledger.fenced = True
            self._notify_watchers(ledger_id)
        return LedgerSnapshot(Status.OK, ledger.lac, ledger.highest, fenced=True)

    @override
    async def read_lac(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        await self._wait()
        if ledger_id in self._deleted:
            return LedgerSnapshot(Status.DELETED, NO_ENTRY, NO_ENTRY, fenced=False)
        ledger = self._kept.get(ledger_id)
        if ledger is None:
            return LedgerSnapshot(Status.NO_SUCH_LEDGER, NO_ENTRY, NO_ENTRY, fenced=False)
        if not ledger.is_opened_by(master_key):
            return LedgerSnapshot(Status.UNAUTHORIZED, NO_ENTRY, NO_ENTRY, fenced=False)
        return LedgerSnapshot(Status.OK, ledger.lac, ledger.highest, ledger.fenced)

    @override
    def report_lac(
        self,
        ledger_id: LedgerId,
        lac: EntryId,
        master_key: bytes | None,
        done: Callable[[Status], None],
    ) -> None:
        ledger = self._ledger(ledger_id, master_key)
        if lac > ledger.lac:
            ledger.lac = lac
            self._notify_watchers(ledger_id)
        done(Status.OK)

    @override
    async def write_lac(
        self, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None
    ) -> LedgerSnapshot:
        ledger = self._ledger(ledger_id, master_key)
        if lac > ledger.lac:
            ledger.lac = lac
            self._notify_watchers(ledger_id)
        return await self.read_lac(ledger_id, master_key)

    @override
    async def read(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        master_key: bytes | None,
        *,
        after_fence: bool,
    ) -> ReadResult:
        self.reads_running += 1
        self.reads_running_most = max(self.reads_running_most, self.reads_running)
        try:
            await self._wait()
        finally:
            self.reads_running -= 1
        return self._find(ledger_id, first_entry_id, last_entry_id, bytes_max, master_key)

    def _find(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        master_key: bytes | None,
    ) -> ReadResult:
        ledger = self._kept.get(ledger_id)
        if ledger is None:
            return ReadResult(Status.NO_SUCH_LEDGER, NO_ENTRY, first_entry_id, ())
        if not ledger.is_opened_by(master_key):
            return ReadResult(Status.UNAUTHORIZED, NO_ENTRY, first_entry_id, ())
        found: list[Buffer] = []
        following = first_entry_id
        for _, view in sorted(ledger.batches.items()):
            if following > last_entry_id or view.header.last_entry_id < following:
                continue
            if view.header.first_entry_id > following:
                break
            if found and sum(map(len, found)) + len(view.data) > bytes_max:
                return ReadResult(Status.OK, ledger.lac, following, tuple(found))
            stop = EntryId(min(last_entry_id, view.header.last_entry_id))
            found.append(view.cut(following, stop))
            following = EntryId(stop + 1)
        status = Status.OK if following > last_entry_id else Status.NO_SUCH_ENTRY
        return ReadResult(status, ledger.lac, following, tuple(found))

    @override
    def try_read(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        master_key: bytes | None,
    ) -> ReadResult | None:
        if not self.caches_reads:
            return None
        return self._find(ledger_id, first_entry_id, last_entry_id, bytes_max, master_key)

    @override
    def watch_lac(self, ledger_id: LedgerId, callback: Callable[[], None]) -> Callable[[], None]:
        number = id(callback)
        self._watches[number] = (ledger_id, callback)
        return lambda: self._watches.pop(number, None) and None

    @property
    def watch_count(self) -> int:
        return len(self._watches)

    @override
    def lac_of(self, ledger_id: LedgerId) -> EntryId:
        ledger = self._kept.get(ledger_id)
        return NO_ENTRY if ledger is None else ledger.lac

    @override
    async def access_of(self, ledger_id: LedgerId) -> AccessResult:
        ledger = self._kept.get(ledger_id)
        if ledger is None:
            return AccessResult(Status.NO_SUCH_LEDGER, None)
        return AccessResult(Status.OK, ledger.master_key)

    @override
    async def entry_ranges(
        self, ledger_id: LedgerId, first_entry_id: EntryId, limit: int
    ) -> EntryRangesResult:
        ledger = self._kept.get(ledger_id)
        if ledger is None:
            return EntryRangesResult(Status.NO_SUCH_LEDGER, (), complete=True)
        ranges = [
            (int(view.header.first_entry_id), int(view.header.last_entry_id))
            for first, view in sorted(ledger.batches.items())
            if first >= first_entry_id
        ]
        return EntryRangesResult(Status.OK, tuple(ranges[:limit]), len(ranges) <= limit)

    def ledger_ids(self) -> list[LedgerId]:
        return sorted(self._kept)

    @override
    async def list_ledgers(self, after: int, limit: int) -> tuple[list[LedgerId], int | None]:
        page = [ledger_id for ledger_id in self.ledger_ids() if ledger_id > after]
        return (page, None) if len(page) <= limit else (page[:limit], page[limit - 1])

    @override
    def use_feed(self, names: Callable[[int], bool]) -> None:
        self.feed_names = names

    @override
    async def find_held(self, ledger_ids: list[LedgerId]) -> list[LedgerId]:
        return [ledger_id for ledger_id in ledger_ids if ledger_id in self._kept]

    @property
    @override
    def ledger_count(self) -> int:
        return len(self._kept)

    @override
    async def delete_ledger(self, ledger_id: LedgerId) -> Status:
        self.deletions_begun += 1
        await self._wait()
        if self.deletion_status is not Status.OK:
            return self.deletion_status
        self._deleted[ledger_id] = None
        self._kept.pop(ledger_id, None)
        return Status.OK

    @property
    @override
    def writability(self) -> Writability:
        return self._writability

    @override
    async def release_ledgers(self, ledger_ids: Sequence[LedgerId]) -> dict[LedgerId, Status]:
        await self._wait()
        for ledger_id in ledger_ids:
            self._kept[ledger_id].batches.clear()
            self._kept[ledger_id].fenced = True
            self.released[ledger_id] = None
        return dict.fromkeys(ledger_ids, Status.OK)

    @override
    async def is_released(self, ledger_id: LedgerId) -> bool:
        return ledger_id in self.released

    @property
    @override
    def is_writable(self) -> bool:
        return not self.read_only

    @override
    def statistics(self) -> StorageStatistics:
        zeros = dict.fromkeys((one_field.name for one_field in fields(StorageStatistics)), 0)
        return StorageStatistics(**zeros)  # type: ignore[arg-type]  # 0 is false

    @property
    @override
    def disk_spaces(self) -> dict[str, DiskSpace]:
        return {"log": DiskSpace(100, 30), "index": DiskSpace(50, 20)}

    @override
    def latencies(self) -> dict[str, LatencyCounts]:
        return {}

    @override
    async def checkpoint(self) -> None:
        await self._wait()

    @override
    async def clean(self) -> int:
        await self._wait()
        return 0

    async def _wait(self) -> None:
        await asyncio.sleep(0)
        if self.raises is not None:
            raise self.raises
        await self.reads_wait.wait()
