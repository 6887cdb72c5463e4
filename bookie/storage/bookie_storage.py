"""Storage of a bookie: adds, reads, fences, deletions and checkpoints on the log, index and ledger
states.

Leaves sockets and frames to `bookie.server.connection`, the refusal of requests to
`bookie.storage.admission`, and the permission to remove a ledger to `bookie.server.collector`
(rule 10.1).
Source: protocol rules 2.4, 4.3, 7.2, 8.3, 9.14, 10; storage design.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bookie.config import StorageConfig
from bookie.errors import DiskFullError
from bookie.files.disk import Disk, DiskSpace
from bookie.index import replica_state
from bookie.log import records
from bookie.log.log import Log
from bookie.log.records import RecordKind
from bookie.queued_adds import QueuedAdds
from bookie.storage.admission import Admission
from bookie.storage.answers import (
    LedgerSnapshot,
    StorageStatistics,
)
from bookie.storage.cold_ledgers import ColdLedgers, find_held, list_held
from bookie.storage.commits import AnswerCallback, Commits, resolve
from bookie.storage.horizon import LedgerStatusReader
from bookie.storage.ledger_reads import LedgerReads
from bookie.storage.opening import WHOLE, KnownDisk, OpenedStorage, open_parts
from bookie.storage.overlapping import OverlappingAdd, OverlappingAdds
from bookie.storage.reading import BadRanges, StorageReader
from bookie.storage.recent import RecentEntries
from bookie.storage.upkeep import Upkeep, UpkeepParts
from bookie.storage.writability import Writability
from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from metadata.callbacks import Callbacks
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.store.interface import Cancel
from quire.server.latency import LatencyCounts

if TYPE_CHECKING:
    from bookie.index.replica_state import ReplicaState


class Deletions:
    """Running removals of ledgers."""

    def __init__(
        self,
        parts: UpkeepParts,
        admission: Admission,
        commits: Commits,
        checkpointing: asyncio.Lock,
    ) -> None:
        """`checkpointing` is held while runs are moved to the index's store."""
        self._ledgers = parts.ledgers
        self._cold = parts.cold
        self._admission = admission
        self._commits = commits
        self._index = parts.index
        self._segments = parts.segments
        self._checkpointing = checkpointing

    async def delete(self, ledger_id: LedgerId) -> Status:
        """See `BookieStorage.delete_ledger`."""
        begin = partial(self._begin_delete, ledger_id)
        return await (await self._cold.run(ledger_id, begin))

    def _begin_delete(self, ledger_id: LedgerId) -> asyncio.Future[Status]:
        durable: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        if self._ledgers.is_deleted(ledger_id):
            durable.set_result(Status.OK)
            return durable
        state, deleting = self._ledgers.states.get(ledger_id), self._admission.deleting
        deleting[ledger_id] = deleting.get(ledger_id, 0) + 1
        if state is not None:
            state.use_count += 1  # the state must stay in memory until the tombstone takes effect

        def note_end(status: Status) -> None:
            deleting[ledger_id] -= 1
            if not deleting[ledger_id]:
                del deleting[ledger_id]
            if state is not None:
                state.use_count -= 1
            resolve(durable, status)

        self._commits.queue(RecordKind.TOMBSTONE, records.encode_ledger(ledger_id), note_end)
        return durable

    async def release(self, ledger_ids: Sequence[LedgerId]) -> dict[LedgerId, Status]:
        """See `BookieStorage.release_ledgers`."""
        statuses = dict.fromkeys(ledger_ids, Status.NO_SUCH_LEDGER)
        held: list[ReplicaState] = []
        releasing = self._admission.releasing
        try:
            for ledger_id in ledger_ids:
                state = await self._cold.run(ledger_id, partial(self._ledgers.hold, ledger_id))
                if state is not None:
                    held.append(state)
                    releasing[ledger_id] = releasing.get(ledger_id, 0) + 1
            # Runs stored from now on are newer than the release, so no checkpoint may run during
            # it.
            async with self._checkpointing:
                statuses |= await self._release([state.ledger_id for state in held])
        finally:
            for state in held:
                releasing[state.ledger_id] -= 1
                if not releasing[state.ledger_id]:
                    del releasing[state.ledger_id]
                state.use_count -= 1
        return statuses

    async def is_released(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger was released and nothing was stored for it since."""
        state = await self._cold.run(ledger_id, partial(self._ledgers.hold, ledger_id))
        if state is None:
            return False
        state.use_count -= 1
        is_empty = state.highest == NO_ENTRY and not state.queued_count
        return state.released and is_empty and not await self._index.has_runs(ledger_id)

    async def _release(self, ledger_ids: list[LedgerId]) -> dict[LedgerId, Status]:
        statuses = dict.fromkeys(ledger_ids, Status.READ_ONLY)
        # A checkpoint that failed before its end may be moving runs: the next one completes it.
        ready = [ledger_id for ledger_id in ledger_ids if not self._index.is_moving(ledger_id)]
        append = partial(self._commits.append, RecordKind.RELEASED)
        answers = await asyncio.gather(*(append(records.encode_ledger(id_)) for id_ in ready))
        statuses |= zip(ready, answers, strict=True)
        logged = [ledger_id for ledger_id in ready if statuses[ledger_id] is Status.OK]
        try:
            await self._index.delete_all(logged, self._segments.free)
        except DiskFullError:
            statuses |= dict.fromkeys(logged, Status.READ_ONLY)
        return statuses


class BookieStorage:
    """Storage of one bookie. Call every method on the event loop that opened it."""

    queued: QueuedAdds
    """Account of the adds that wait, in the storage and before it."""

    def __init__(
        self,
        disk: Disk,
        config: StorageConfig,
        opened: OpenedStorage,
        rng: random.Random,
        read_standing: LedgerStatusReader | None,
    ) -> None:
        self.limbo_reason = opened.limbo_reason
        self._disk = disk
        self._config = config
        self._ledgers = ledgers = opened.ledgers
        self._index = index = opened.index
        self._segments = segments = opened.segments
        self._recent = RecentEntries(config.recent_bytes_max)
        self.bad_ranges = BadRanges()
        self._reader = StorageReader(index, segments, self._recent, self.bad_ranges)
        checker = StorageReader(index, segments, self._recent, self.bad_ranges, drops_cached=True)
        self._commits = Commits(
            ledgers,
            index,
            segments,
            self._recent,
            self.bad_ranges,
            partial(Log, disk, config, segments, opened.outcome.end_lsn),
            self._note_disk_full,
            self._note_answered,
        )
        self._group_durable = Callbacks[()]()
        self._log = self.log = self._commits.log
        self.queued = self._log.queued
        self._cold = ColdLedgers(ledgers, index, self.queued, self._wake, read_standing)
        parts = UpkeepParts(
            ledgers, self._cold, index, segments, self._log, self._reader, checker, self._recent
        )
        loss = opened.outcome.describe_loss()
        self._upkeep = Upkeep(disk, config, parts, self._wake, rng, loss)
        self._overlapping = OverlappingAdds(
            self._log, index, self._reader, self._recent, self._wake
        )
        self._admission = Admission(ledgers, self._cold, self._log, self._upkeep)
        self.reads = LedgerReads(
            ledgers, self._cold, self._admission, self._reader, checker, index, self._log
        )
        self._deletions = Deletions(
            parts, self._admission, self._commits, self._upkeep.checkpointing
        )
        self._room: asyncio.Future[None] | None = None
        self._log_task = asyncio.create_task(self._log.run())

    @classmethod
    async def open(
        cls,
        disk: Disk,
        config: StorageConfig,
        *,
        rng: random.Random,
        known: KnownDisk = WHOLE,
        read_standing: LedgerStatusReader | None = None,
    ) -> "BookieStorage":
        """Replay the log and return the storage; the caller runs `background()` as a task. `known`
        may put the storage into limbo. `read_standing` reads the metadata of an unknown ledger at
        or below the horizon (rule 10.3); without it, its requests are answered UNKNOWN. Raises
        FormatError, DiskFailedError.
        """
        opened = await open_parts(disk, config, known)
        return cls(disk, config, opened, rng, read_standing)

    async def close(self) -> None:
        """Wait for queued records, seal the log, end the background work, make a checkpoint and
        release every file. Watches are dropped without a call.
        """
        if self._admission.is_closing:
            return
        self._admission.is_closing = True
        await self._cold.settle()
        await self._overlapping.settle()
        self._log.close()
        await asyncio.gather(self._log_task, return_exceptions=True)
        await self._upkeep.stop()
        if self._log.failure is None:
            with contextlib.suppress(DiskFullError):  # the next start replays the rest
                await self._upkeep.checkpoint()
                if self._index.meta.mark_lsn < self._log.durable_lsn:
                    await self._upkeep.checkpoint()  # the other one only ended a cancelled one
        await self._segments.close()
        await self._index.close()
        await self._disk.close()

    async def background(self) -> None:
        """Make checkpoints, clean and watch the disk until cancelled. Raises DiskFailedError when
        the disk has failed: then the process must stop. Run it as one task from open to close.
        """
        watching = asyncio.create_task(self._cold.wait_for_failure())
        try:
            await asyncio.gather(self._upkeep.run(self._log_task), watching)
        finally:
            watching.cancel()

    def add(
        self,
        batch: BatchView,
        *,
        recovery: bool,
        master_key: bytes | None,
        done: Callable[[Status], None],
    ) -> None:
        """Queue a batch, or refuse it, in this iteration of the event loop. `done` is called once:
        during this call if the answer is known, else in the iteration in which the batch's group
        became durable, or in which an overlapping batch was compared. Batches of a cold ledger
        wait for its state, in order.

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
        ledger_id = header.ledger_id
        if ledger_id not in self._ledgers.states and self._cold.must_wait(ledger_id):
            decide = partial(self._add, batch, done, master_key, recovery=recovery)
            self._cold.defer(ledger_id, len(batch.data), decide, stores=True)
        else:
            self._add(batch, done, master_key, recovery=recovery)

    def _add(
        self, batch: BatchView, done: AnswerCallback, master_key: bytes | None, *, recovery: bool
    ) -> None:
        header = batch.header
        refusal = self._admission.refuse_add(header.ledger_id, master_key, recovery=recovery)
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
                lambda: self._admission.refuse_held_add(state, master_key, recovery=recovery),
                lambda gaps: self._commits.accept(state, batch, gaps, master_key, done),
            )
        )

    def _note_disk_full(self) -> None:
        self._upkeep.note_disk_full()

    def _note_answered(self) -> None:
        self._upkeep.note_changes()
        self._wake()
        self._group_durable.notify()

    def on_group_durable(self, callback: Callable[[], None]) -> Cancel:
        """Register a callback, called after each group's `done` callbacks in the same iteration,
        also of a group that failed.
        """
        return self._group_durable.add(callback)

    @property
    def is_answering_group(self) -> bool:
        """Whether the callbacks of `on_group_durable` will be called later in this iteration."""
        return self._commits.is_answering

    @property
    def has_room(self) -> bool:
        """Whether the queue and the changes that wait for a checkpoint are below their limits. If
        not, call `wait_for_room()`.
        """
        return self.queued.has_room and self._upkeep.has_room

    async def wait_for_room(self) -> None:
        """Wait until there is room or the log has failed."""
        while not self.has_room and self._log.failure is None:
            self._upkeep.note_changes()
            self._room = self._room or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    async def fence(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        """Refuse ordinary adds to a ledger, known or not, for ever and durably (rule 7.2). Without
        a key, only if none is known, and the ledger stays without one (rule 9.14).

        The snapshot is taken after everything accepted before is durable. Statuses: OK,
        UNAUTHORIZED, DELETED, READ_ONLY (no room even in the reserve), UNKNOWN (limbo, or the disk
        failed).
        """
        begin = partial(self._begin_fence, ledger_id, master_key)
        state = await self._cold.run(ledger_id, begin, stores=True)
        if isinstance(state, Status):
            return self.reads.snapshot(ledger_id, state)
        status = Status.OK
        try:
            if not state.is_fence_durable:
                self._commits.keep_key(state, master_key)
                fence = records.encode_ledger(ledger_id)
                status = await self._commits.append(RecordKind.FENCE, fence)
                if status is Status.OK:
                    state.is_fence_durable = True
            elif state.queued_count:
                await self._log.barrier()
                status = Status.OK if self._log.failure is None else Status.UNKNOWN
            refusal = self._admission.refuse_held(state, master_key)
            return self.reads.snapshot(ledger_id, refusal or status)
        finally:
            state.use_count -= 1

    def _begin_fence(
        self, ledger_id: LedgerId, master_key: bytes | None
    ) -> replica_state.ReplicaState | Status:
        """Refuse ordinary adds from now on; return the state with its use counted, or a refusal."""
        refusal = self._admission.refuse_fence(ledger_id, master_key)
        if refusal is not None:
            return refusal
        state = self._ledgers.get_or_make(ledger_id)
        state.use_count += 1
        if not state.fenced:
            state.fenced = True
            state.touch()
            self._ledgers.notify(ledger_id)
        return state

    async def write_lac(
        self, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None
    ) -> LedgerSnapshot:
        """Store an explicit LAC, durably (rule 8.4). Return the status, as `add` does, but never
        CONFLICT.
        """
        stored: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self.report_lac(ledger_id, lac, master_key, partial(resolve, stored))
        snapshot = partial(self.reads.snapshot, ledger_id, await stored)
        return await self._cold.run(ledger_id, snapshot)

    def report_lac(
        self, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None, done: AnswerCallback
    ) -> None:
        """Advertise an explicit LAC at once, even read-only, and queue it; `done` as in `add`."""
        if ledger_id not in self._ledgers.states and self._cold.must_wait(ledger_id):
            decide = partial(self._report_lac, ledger_id, lac, master_key, done)
            self._cold.defer(ledger_id, 0, decide, stores=True)
        else:
            self._report_lac(ledger_id, lac, master_key, done)

    def _report_lac(
        self, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None, done: AnswerCallback
    ) -> None:
        refusal = self._admission.refuse_add(ledger_id, master_key, recovery=False)
        if refusal in (None, Status.READ_ONLY):
            self._commits.advertise_lac(self._ledgers.get_or_make(ledger_id), lac)
        if refusal is None:
            self._commits.store_lac(ledger_id, lac, master_key, done)
        else:
            done(refusal)

    def watch_lac(self, ledger_id: LedgerId, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on the loop when the ledger's LAC advances, and when the ledger is fenced
        or deleted. Return a function that cancels the watch. The ledger may be unknown.
        """
        return self._ledgers.watch(ledger_id, callback)

    def lac_of(self, ledger_id: LedgerId) -> EntryId:
        """Return the advertised LAC, NO_ENTRY without a state in memory. Never waits."""
        return replica_state.advertised_lac(self._ledgers.states.get(ledger_id))

    async def list_ledgers(self, after: int, limit: int) -> tuple[list[LedgerId], int | None]:
        """List ledgers stored or fenced here with ids above `after`, ascending, at most `limit`.
        Also return up to which id the list is complete, None when nothing follows. A ledger that is
        added or deleted during the call may be listed or not.
        """
        return await list_held(self._ledgers, self._index, after, limit)

    def use_feed(self, names: Callable[[int], bool]) -> None:
        """Store nothing for an unknown ledger of which `names` says that the deletion feed has it,
        before a read of its metadata (rule 10.4).
        """
        self._ledgers.is_named_deleted = names

    async def find_held(self, ledger_ids: list[LedgerId]) -> list[LedgerId]:
        """Return which of some ledgers are stored or fenced here."""
        return await find_held(self._ledgers, self._index, ledger_ids)

    @property
    def ledger_count(self) -> int:
        """Number of ledgers stored or fenced here."""
        return self._ledgers.count

    async def delete_ledger(self, ledger_id: LedgerId) -> Status:
        """Refuse the ledger's id for ever, durably (rule 10.2). The next cleaning frees its bytes.

        The caller has checked rule 10.1. Statuses: OK, READ_ONLY, UNKNOWN.
        """
        return await self._deletions.delete(ledger_id)

    async def release_ledgers(self, ledger_ids: Sequence[LedgerId]) -> dict[LedgerId, Status]:
        """Drop the entries of ledgers that moved away, durably, with one sync of the log and few
        updates of the index. They stay fenced (rule 10.1).

        Statuses: OK, NO_SUCH_LEDGER, READ_ONLY, UNKNOWN.
        """
        return await self._deletions.release(ledger_ids)

    async def is_released(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger was released and nothing was stored for it since."""
        return await self._deletions.is_released(ledger_id)

    @property
    def is_limbo(self) -> bool:
        """Whether stored data may have been lost: an entry not found is UNKNOWN (rule 2.4)."""
        return self._index.is_limbo

    @property
    def writability(self) -> Writability:
        """Reasons to refuse ordinary adds, or for uncertain negatives."""
        return self._upkeep.writability

    @property
    def is_writable(self) -> bool:
        """Whether ordinary adds are accepted: nothing blocks them, and it is not closing."""
        return self._upkeep.is_writable and not self._admission.is_closing

    @property
    def is_offered(self) -> bool:
        """Whether writers should use the bookie: it is writable, and stays so."""
        return self.is_writable and self.writability.is_offered

    @property
    def disk_spaces(self) -> dict[str, DiskSpace]:
        """Space of each directory's file system, at the last measurement."""
        return self._upkeep.disk_spaces

    def statistics(self) -> StorageStatistics:
        """Return counters and gauges."""
        return self._upkeep.statistics(self._commits.counts, self.queued.accepted_bytes)

    def latencies(self) -> dict[str, LatencyCounts]:
        """Return the durations of the log's syncs and of checkpoints, by name."""
        return {"sync": self._log.sync_latency, "checkpoint": self._upkeep.checkpoint_latency}

    async def checkpoint(self) -> None:
        """Move the changes in memory to the index, and advance the mark."""
        await self._upkeep.checkpoint()

    async def clean(self) -> int:
        """Drop dead segments and rewrite due ones, in one pass. Return the bytes freed."""
        return await self._upkeep.clean()

    def _wake(self) -> None:
        """Wake tasks that wait for room, if there is room or the log has failed."""
        if self._room is not None and (self.has_room or self._log.failure is not None):
            room, self._room = self._room, None
            room.set_result(None)
