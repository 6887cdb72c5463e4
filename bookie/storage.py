"""Adds, reads, fences and checkpoints in terms of the log, the index and the ledger states.

Leaves sockets and frames to `bookie.server`.
Source: protocol rules 2.4, 4.3, 7.2, 8.3, 10; storage design.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from bookie import ledger_state, records
from bookie.answers import EntryRangesResult, LedgerSnapshot, ReadResult, StorageStatistics
from bookie.commits import Answer, Commits, resolve
from bookie.config import StorageConfig
from bookie.disk import Disk
from bookie.errors import DiskFullError
from bookie.log import Log
from bookie.opening import Opened, open_parts
from bookie.overlapping import OverlappingAdd, OverlappingAdds
from bookie.reading import Reader, list_ranges
from bookie.recent import RecentEntries
from bookie.records import RecordKind
from bookie.upkeep import Upkeep, UpkeepParts
from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, EntryId, LedgerId

RECORDS_AHEAD_MAX: Final = 4
"""Adds wait once this many checkpoints' worth of records are in memory."""


class BookieStorage:
    """The storage of one bookie. Every method belongs to the event loop that opened it."""

    def __init__(
        self, disk: Disk, config: StorageConfig, opened: Opened, rng: random.Random
    ) -> None:
        self._disk = disk
        self._config = config
        self._ledgers = opened.ledgers
        self._index = opened.index
        self._segments = opened.segments
        self._recent = RecentEntries(config.recent_bytes_max)
        self._reader = Reader(self._index, self._segments, self._recent, config.read_bytes_max)
        self._commits = Commits(self._ledgers, self._index, self._segments, self._recent)
        self._log = self._commits.log = Log(
            disk, config, self._segments, opened.outcome.end_lsn, self._commits.on_group
        )
        parts = UpkeepParts(
            self._ledgers, self._index, self._segments, self._log, self._reader, self._recent
        )
        self._upkeep = Upkeep(disk, config, parts, self._wake, rng)
        self._commits.on_disk_full = self._upkeep.note_disk_full
        self._commits.callbacks += (self._upkeep.note_stored, self._wake)
        self._overlapping = OverlappingAdds(
            self._log, self._index, self._reader, self._recent, self._wake
        )
        self._deleting: dict[int, None] = {}
        self._room: asyncio.Future[None] | None = None
        self._is_closing = False
        self._log_task = asyncio.create_task(self._log.run())

    @classmethod
    async def open(
        cls, disk: Disk, config: StorageConfig, *, rng: random.Random, has_lost_data: bool = False
    ) -> "BookieStorage":
        """Replay the log over the index and return the storage, ready. `background()` must then run
        as a task. `has_lost_data`: the disk is an old copy of itself (rule 2.4).

        Raises FormatError for files of a newer release, DiskFailedError when the disk refuses.
        """
        opened = await open_parts(disk, config, has_lost_data=has_lost_data)
        return cls(disk, config, opened, rng)

    async def close(self) -> None:
        """Wait for what is queued, checkpoint, seal the log and release every file. Watches are
        dropped silently.
        """
        if self._is_closing:
            return
        self._is_closing = True
        await self._overlapping.settle()
        self._log.close()
        await asyncio.gather(self._log_task, return_exceptions=True)
        if self._log.failure is None:
            with contextlib.suppress(DiskFullError):  # the next start replays the rest
                await self._upkeep.checkpoint()
        await self._segments.close()
        await self._index.close()
        await self._disk.close()

    async def background(self) -> None:
        """Checkpoint, clean and watch the disk's marks until cancelled. Raises DiskFailedError once
        the disk failed: the process must then stop. Run it as one task from open to close.
        """
        await self._upkeep.run(self._log_task)

    def add(
        self,
        batch: BatchView,
        *,
        recovery: bool,
        master_key: bytes | None,
        done: Callable[[Status], None],
    ) -> None:
        """Accept and queue a batch in this loop step, or refuse it; `done` is called once: in this
        call when that is decided, else in the loop step in which its group became durable.

        The batch's buffer must not change afterwards; its CRC is checked here. Statuses: OK,
        BAD_REQUEST (CRC), FENCED, CONFLICT, READ_ONLY, UNAUTHORIZED, DELETED, UNKNOWN (a duplicate
        cannot be compared, or the disk failed), CLOSING.
        """
        header = batch.header
        try:
            batch.verify_crc()
        except BatchError:
            done(Status.BAD_REQUEST)
            return
        refusal = self._refuse_add(header.ledger_id, master_key, recovery=recovery)
        if refusal is not None:
            done(refusal)
            return
        state = self._ledgers.get_or_make(header.ledger_id)
        if header.first_entry_id > state.accepted_highest:
            self._commits.accept(state, batch, None, master_key, done)
            return
        self._overlapping.add(
            OverlappingAdd(
                state,
                batch,
                done,
                lambda: self._refuse_add(header.ledger_id, master_key, recovery=recovery),
                lambda gaps: self._commits.accept(state, batch, gaps, master_key, done),
            )
        )

    def on_group_durable(self, callback: Callable[[], None]) -> None:
        """Register what is called after each group's `done` callbacks, in the same loop step."""
        self._commits.callbacks.insert(-1, callback)

    @property
    def is_answering_group(self) -> bool:
        """Tell whether what `on_group_durable` registered is still to be called in this step."""
        return self._commits.is_answering

    @property
    def queued_bytes(self) -> int:
        """Bytes accepted and not yet durable."""
        return self._log.queued_bytes + self._overlapping.queued_bytes

    @property
    def has_room(self) -> bool:
        """Tell whether the queue is below its bound; when not, stop reading sockets and
        `wait_for_room()`.
        """
        return (
            self.queued_bytes < self._config.queue_bytes_max
            and self._index.record_count < RECORDS_AHEAD_MAX * self._config.checkpoint_records
        )

    async def wait_for_room(self) -> None:
        """Return once the queue is below its bound, or the log has failed."""
        while not self.has_room and self._log.failure is None:
            self._room = self._room or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    async def fence(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        """Refuse ordinary adds to the ledger for ever, durably, also for a ledger never seen (rule
        7.2).

        The snapshot is taken after everything accepted before is durable. Statuses: OK,
        UNAUTHORIZED, DELETED, READ_ONLY (no room even in the reserve), UNKNOWN (limbo, or the disk
        failed).
        """
        refusal = self._refuse(ledger_id, master_key)
        if refusal is not None:
            return self._snapshot(ledger_id, refusal)
        state = self._ledgers.get_or_make(ledger_id)
        if not state.fenced:
            state.fenced = state.is_dirty = True
            self._ledgers.notify(ledger_id)
        status = Status.OK
        if not state.is_fence_durable:
            self._commits.keep_key(state, master_key)
            status = await self._commits.append(RecordKind.FENCE, records.encode_ledger(ledger_id))
            if status is Status.OK:
                state.is_fence_durable = True
        elif state.queued_count:
            await self._log.barrier()
            status = Status.OK if self._log.failure is None else Status.UNKNOWN
        return self._snapshot(ledger_id, self._refuse(ledger_id, master_key) or status)

    async def read_lac(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        """Return what is known of a ledger. Statuses: OK, NO_SUCH_LEDGER, UNKNOWN, UNAUTHORIZED,
        DELETED.
        """
        refusal = self._refuse(ledger_id, master_key)
        if refusal is None and ledger_id not in self._ledgers.states:
            refusal = ledger_state.negative(None, is_limbo=self._reader.is_limbo)
        return self._snapshot(ledger_id, refusal or Status.OK)

    async def write_lac(
        self, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None
    ) -> LedgerSnapshot:
        """Store an explicit LAC, durably (rule 8.4). Statuses: as `add`, without CONFLICT."""
        stored: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self.tell_lac(ledger_id, lac, master_key, partial(resolve, stored))
        return self._snapshot(ledger_id, await stored)

    def tell_lac(
        self, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None, done: Answer
    ) -> None:
        """Advertise an explicit LAC at once, a read-only bookie too, and queue it; `done` as in
        `add`.
        """
        refusal = self._refuse_add(ledger_id, master_key, recovery=False)
        if refusal in (None, Status.READ_ONLY):
            self._commits.advertise_lac(self._ledgers.get_or_make(ledger_id), lac)
        if refusal is None:
            self._commits.store_lac(ledger_id, lac, master_key, done)
        else:
            done(refusal)

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
        """Return entries first..last, at most about `bytes_max` (at least one batch), in order and
        without gaps.

        `after_fence`: the caller fenced the ledger just before (rule 7.3). Statuses: OK,
        NO_SUCH_ENTRY, NO_SUCH_LEDGER, UNKNOWN (damaged or limbo), UNAUTHORIZED, DELETED,
        BAD_REQUEST.
        """
        state = self._ledgers.states.get(ledger_id)
        refusal = self._refuse_read(ledger_id, first_entry_id, last_entry_id, master_key)
        if refusal is not None or state is None:
            refusal = refusal or ledger_state.negative(None, is_limbo=self._reader.is_limbo)
            return ReadResult(refusal, self.lac_of(ledger_id), first_entry_id, ())
        if after_fence and state.queued_count:
            await self._log.barrier()
        result = await self._reader.read(state, first_entry_id, last_entry_id, bytes_max)
        if result.status is Status.NO_SUCH_ENTRY and state.queued_count:
            # What is missing may be queued: a negative never overtakes an accepted add.
            await self._log.barrier()
            result = await self._reader.read(state, first_entry_id, last_entry_id, bytes_max)
        if result.status is Status.NO_SUCH_ENTRY and self._log.failure is not None:
            return replace(result, status=Status.UNKNOWN)
        if ledger_id in self._ledgers.deleted:
            return ReadResult(Status.DELETED, NO_ENTRY, first_entry_id, ())
        return result

    def try_read(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        master_key: bytes | None,
    ) -> ReadResult | None:
        """Return what `read` would if all is in the recent-entries cache. Not for recovery."""
        state = self._ledgers.states.get(ledger_id)
        if state is None or self._log.failure is not None:
            return None
        if self._refuse_read(ledger_id, first_entry_id, last_entry_id, master_key) is not None:
            return None
        return self._reader.read_nowait(state, first_entry_id, last_entry_id, bytes_max)

    def watch_lac(self, ledger_id: LedgerId, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on the loop when the ledger's LAC advances, and when it is fenced or deleted;
        returns what cancels the watch. A ledger never seen may be watched.
        """
        return self._ledgers.watch(ledger_id, callback)

    def lac_of(self, ledger_id: LedgerId) -> EntryId:
        """Return the advertised LAC, NO_ENTRY when the ledger is not known. Never waits."""
        return ledger_state.advertised_lac(self._ledgers.states.get(ledger_id))

    async def entry_ranges(
        self, ledger_id: LedgerId, first_entry_id: EntryId, limit: int
    ) -> EntryRangesResult:
        """List the ranges held from `first_entry_id` on, at most `limit`."""
        state = self._ledgers.states.get(ledger_id)
        if ledger_id in self._ledgers.deleted:
            return EntryRangesResult(Status.DELETED, (), complete=True)
        if state is None:
            status = ledger_state.negative(None, is_limbo=self._reader.is_limbo)
            return EntryRangesResult(status, (), complete=True)
        if state.queued_count:
            await self._log.barrier()
        return await list_ranges(self._index, state, first_entry_id, limit)

    def ledger_ids(self) -> list[LedgerId]:
        """List every ledger held or fenced here, ascending; deleted ones are left out."""
        return [LedgerId(ledger_id) for ledger_id in sorted(self._ledgers.states)]

    @property
    def ledger_count(self) -> int:
        """How many ledgers are held or fenced here."""
        return len(self._ledgers.states)

    async def delete_ledger(self, ledger_id: LedgerId) -> Status:
        """Refuse the ledger's id for ever, durably (rule 10.2), and give its bytes to the next
        cleaning.

        The caller has made sure by rule 10.1 that it may. Statuses: OK, READ_ONLY, UNKNOWN.
        """
        if ledger_id in self._ledgers.deleted:
            return Status.OK
        self._deleting[ledger_id] = None
        try:
            return await self._commits.append(
                RecordKind.TOMBSTONE, records.encode_ledger(ledger_id)
            )
        finally:
            self._deleting.pop(ledger_id, None)

    def set_read_only(self, read_only: bool) -> None:  # noqa: FBT001 - it is the switch itself
        """Refuse (or accept again) ordinary adds by an operator's wish; fences, recovery adds and
        reads go on.
        """
        self._upkeep.is_read_only_wished = read_only
        self._upkeep.note_writable()

    @property
    def is_writable(self) -> bool:
        """Tell whether ordinary adds are accepted: no operator, disk mark or limbo forbids it."""
        return self._upkeep.is_writable and not self._is_closing

    def on_writable_change(self, callback: Callable[[], None]) -> None:
        """Register what is called on the loop whenever `is_writable` may have changed."""
        self._upkeep.on_writable_change(callback)

    def statistics(self) -> StorageStatistics:
        """Return counters and gauges."""
        return self._upkeep.statistics(self._commits.counts, self.queued_bytes)

    async def checkpoint(self) -> None:
        """Move what the memory holds into the index, and advance the mark."""
        await self._upkeep.checkpoint()

    async def clean(self) -> int:
        """Drop dead segments and rewrite low-live ones that are due; returns the bytes freed."""
        return await self._upkeep.clean()

    def _refuse(self, ledger_id: int, master_key: bytes | None) -> Status | None:
        """Return why any request for a ledger is refused."""
        if self._is_closing:
            return Status.CLOSING
        if self._log.failure is not None:
            return Status.UNKNOWN
        if ledger_id in self._ledgers.deleted or ledger_id in self._deleting:
            return Status.DELETED
        state = self._ledgers.states.get(ledger_id)
        if state is not None and not ledger_state.is_authorized(state, master_key):
            return Status.UNAUTHORIZED
        return None

    def _refuse_add(
        self, ledger_id: int, master_key: bytes | None, *, recovery: bool
    ) -> Status | None:
        refusal = self._refuse(ledger_id, master_key)
        if refusal is not None or recovery:
            return refusal
        state = self._ledgers.states.get(ledger_id)
        if state is not None and state.fenced:
            return Status.FENCED
        if state is None and self._upkeep.may_have_lost_fences:
            return Status.UNKNOWN  # it may have been fenced in what was lost (rule 2.4)
        return None if self._upkeep.is_writable else Status.READ_ONLY

    def _refuse_read(
        self, ledger_id: int, first: int, last: int, master_key: bytes | None
    ) -> Status | None:
        if not 0 <= first <= last <= ENTRY_ID_MAX:
            return Status.BAD_REQUEST
        return self._refuse(ledger_id, master_key)

    def _wake(self) -> None:
        """Let those go on who waited for room, when there is some or never will be."""
        if self._room is not None and (self.has_room or self._log.failure is not None):
            room, self._room = self._room, None
            room.set_result(None)

    def _snapshot(self, ledger_id: LedgerId, status: Status) -> LedgerSnapshot:
        state = self._ledgers.states.get(ledger_id)
        if state is None or status in (Status.UNAUTHORIZED, Status.DELETED):
            return LedgerSnapshot(status, NO_ENTRY, NO_ENTRY, fenced=False)
        return LedgerSnapshot(status, EntryId(state.lac), EntryId(state.highest), state.fenced)
