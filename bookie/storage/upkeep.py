"""Background work of a storage: checkpoints, disk marks, the reserve, cleaning, and rebuilding of
lost runs.

Leaves the requests to `bookie.storage.bookie_storage`, and the rewriting of segments to
`bookie.storage.cleaner`.

Invariants: one checkpoint and one cleaning at a time; a failed sync, of the log or of the index,
ends `run` with DiskFailedError.
Source: storage design, "Index", "Cleaning" and "Limits and refusals"; reliability design, D9, D10.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bookie.config import StorageConfig
from bookie.errors import DiskFullError
from bookie.files.disk import Disk, DiskSpace
from bookie.index.index import Index
from bookie.log import records
from bookie.log.log import Log
from bookie.log.reserve import Reserve
from bookie.log.segments import Segments
from bookie.storage.answers import StorageStatistics
from bookie.storage.checkpoints import store_changes
from bookie.storage.cleaner import Cleaner
from bookie.storage.cleaning import CleaningRoom
from bookie.storage.cold_ledgers import ColdLedgers
from bookie.storage.commits import StoredCounts
from bookie.storage.disk_watch import DiskWatch
from bookie.storage.horizon import trim_tombstones
from bookie.storage.ledgers import Ledgers
from bookie.storage.reading import StorageReader
from bookie.storage.rebuild import Rebuilder
from bookie.storage.recent import RecentEntries
from bookie.storage.writability import Reason, Writability
from quire.server.latency import BOUNDS_S, LatencyCounts

REST_SHARE: Final = 9.0
"""Rest between the transactions of a checkpoint that nothing waits for, as a multiple of its work.
Bookies with the same load have their checkpoints at the same time, and a hundred thousand small
runs take half a second of a processor on each.
"""
REST_S_MAX: Final = 0.1
CHECKPOINTS_AHEAD_MAX: Final = 3
"""Adds wait when the records or changed ledgers of this many checkpoints are in memory, including
those of the running checkpoint.
"""
EVICTION_CHECKS_MAX: Final = 5_000
"""Maximum number of states that eviction checks in one iteration of the event loop after a
checkpoint.
"""


@dataclass(frozen=True, slots=True)
class UpkeepParts:
    """Parts of the storage that need background work."""

    ledgers: Ledgers
    cold: ColdLedgers
    index: Index
    segments: Segments
    log: Log
    reader: StorageReader
    checker: StorageReader
    """Reader of the scrub."""
    recent: RecentEntries


class Upkeep:
    """Background work of one storage."""

    _is_ending = False

    def __init__(
        self,
        disk: Disk,
        config: StorageConfig,
        parts: UpkeepParts,
        wake: Callable[[], None],
        rng: random.Random,
        limbo_text: str,
    ) -> None:
        self.writability = Writability(asyncio.get_running_loop().time)
        self._disk = disk
        self._config = config
        self._parts = parts
        # Attributes used after every group: a direct look-up is faster.
        self._index, self._ledgers, self._log = parts.index, parts.ledgers, parts.log
        self._records_ahead_max = CHECKPOINTS_AHEAD_MAX * config.checkpoint_records
        self._ledgers_ahead_max = CHECKPOINTS_AHEAD_MAX * config.checkpoint_ledgers
        self._wake = wake
        self._cleaner = Cleaner(disk, config, parts.ledgers, parts.index, parts.segments, rng)
        self._reserve = Reserve(disk, config)
        self._watch = DiskWatch(
            disk,
            config,
            self._reserve,
            self.writability,
            lambda: parts.log.written_bytes,
            parts.index.sizes,
        )
        self._rebuilder = Rebuilder(
            parts.ledgers, parts.cold, parts.index, parts.segments, parts.reader.unproven
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._checkpoint_count = 0
        self._may_wait = True
        """Whether adds may wait for a checkpoint: False after one that failed because the disk was
        full.
        """
        self.checkpoint_latency = LatencyCounts(BOUNDS_S)
        self._checkpoint_at_bytes = config.checkpoint_log_bytes - self._replayed_bytes()
        self.checkpointing = asyncio.Lock()
        self._cleaning = asyncio.Lock()
        self._due = asyncio.Event()
        self._pressed = asyncio.Event()
        self._measure_now = asyncio.Event()
        self._clean_now = asyncio.Event()
        if parts.index.is_limbo:
            self.writability.begin(Reason.LIMBO, limbo_text)
        if parts.index.may_have_lost_fences:
            self.writability.begin(Reason.FENCES_LOST, limbo_text)

    @property
    def may_have_lost_fences(self) -> bool:
        """Whether a ledger never seen here may have been fenced in lost data (rule 2.4)."""
        return self._index.may_have_lost_fences

    @property
    def is_writable(self) -> bool:
        """Whether ordinary adds are accepted."""
        return self.writability.is_writable

    @property
    def takes_recovery_adds(self) -> bool:
        """Whether recovery adds are accepted: they leave enough room for fences, tombstones and
        cleaning, and the bookie is not drained.
        """
        return self.writability.takes_recovery_adds and self._watch.takes_recovery_adds

    @property
    def disk_spaces(self) -> dict[str, DiskSpace]:
        """Space of each directory's file system, at the last measurement."""
        return self._watch.spaces

    @property
    def has_room(self) -> bool:
        """Whether memory has room for more changes that wait for a checkpoint. Always true while
        the disk has no room for a checkpoint: then ordinary adds are refused, and fences and reads
        must continue.
        """
        index = self._index
        return not self._may_wait or (
            index.record_count + index.moving_count < self._records_ahead_max
            and self._ledgers.changed_count < self._ledgers_ahead_max
        )

    def note_changes(self) -> None:
        """Check whether a checkpoint is due, after a change."""
        config = self._config
        if (
            self._index.record_count >= config.checkpoint_records
            or len(self._ledgers.unsaved.ledger_ids) >= config.checkpoint_ledgers
            or self._log.written_bytes >= self._checkpoint_at_bytes
        ):
            self._due.set()

    def note_disk_full(self, error: DiskFullError | None = None) -> None:
        """Become read-only at once, and start a measurement of the disk. No error means the log's
        disk.
        """
        self._watch.note_full("" if error is None else error.what)
        self._pressed.set()
        self._measure_now.set()

    async def run(self, log_task: asyncio.Task[None]) -> None:
        """Run all background tasks until cancelled, stopped or until the log fails."""
        tasks = self._tasks = [
            asyncio.create_task(work())
            for work in (
                self._watch_disk,
                self._checkpoint_when_due,
                self._clean_repeatedly,
                self._rebuild_repeatedly,
                self._reserve.keep,
            )
        ]
        try:
            await asyncio.gather(*map(asyncio.shield, (log_task, *tasks)))
        finally:
            self._cancel()

    async def stop(self) -> None:
        """Cancel the background tasks and wait for their ends, before what they use is closed."""
        self._cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cancel(self) -> None:
        if not self._is_ending:  # a second time would break off the close of a file
            self._is_ending = True
            for task in self._tasks:
                task.cancel()

    async def checkpoint(self, *, rests: bool = False) -> None:
        """Move the changes in memory to the index's store, and advance the mark. `rests`: pause
        between transactions while no other checkpoint is due. Raises DiskFullError.
        """
        async with self.checkpointing:
            self._due.clear()
            began_s = asyncio.get_running_loop().time()
            parts = self._parts
            log_bytes = parts.log.written_bytes
            self._checkpoint_at_bytes = log_bytes + self._config.checkpoint_log_bytes
            parts.index.drop_unstored(parts.ledgers.runs_left)
            removed = self._cleaner.take_removed()
            try:
                await store_changes(
                    parts.log.durable_lsn,
                    parts.ledgers,
                    parts.index,
                    parts.segments,
                    removed,
                    self._rest if rests else None,
                )
            except BaseException as error:  # also when cancelled
                self._checkpoint_at_bytes = log_bytes
                self._cleaner.put_back_removed(removed)
                if isinstance(error, DiskFullError):
                    self._may_wait = False
                    self.note_disk_full(error)
                    self._wake()
                raise
            self._may_wait = True
            self._watch.note_index_stored()
            self._checkpoint_count += 1
            self.checkpoint_latency.record(asyncio.get_running_loop().time() - began_s)
            self.note_changes()
            self._wake()
            checks_left = 2 * len(parts.ledgers.states)  # the first round keeps used states
            while parts.ledgers.evict(EVICTION_CHECKS_MAX) and checks_left > 0:
                checks_left -= EVICTION_CHECKS_MAX
                await asyncio.sleep(0)
            with contextlib.suppress(DiskFullError):  # the next checkpoint tries again
                await trim_tombstones(parts.ledgers, parts.index, self._config.tombstones_max)

    async def clean(self) -> int:
        """Run one pass of cleaning; return the bytes freed. Raises DiskFullError."""
        async with self._cleaning:
            if not self._watch.space.total_bytes:
                await self._watch.measure(is_pressed=False)
            return await self._cleaner.clean(self._room())

    def statistics(self, counts: StoredCounts, queue_bytes: int) -> StorageStatistics:
        """Return counters and gauges."""
        parts = self._parts
        segments = list(parts.segments.by_number.values())
        index_sizes = parts.index.sizes()
        return StorageStatistics(
            entries_added=counts.entries,
            bytes_added=counts.bytes,
            batches_added=counts.batches,
            entries_read=parts.reader.entries_read,
            bytes_read=parts.reader.bytes_read,
            syncs=parts.log.sync_count,
            log_bytes_written=parts.log.written_bytes,
            queue_bytes=queue_bytes,
            ledgers=parts.ledgers.count,
            segments=len(segments),
            segment_bytes=sum(segment.size for segment in segments),
            live_bytes=sum(segment.live_bytes for segment in segments),
            runs_in_memory=parts.index.run_count,
            records_since_checkpoint=parts.index.record_count,
            checkpoints=self._checkpoint_count,
            checkpoint_mark=parts.index.meta.mark_lsn,
            log_end=parts.log.durable_lsn,
            recent_bytes=parts.recent.size,
            damaged_segments=sum(segment.is_damaged for segment in segments),
            damaged_segment_bytes=sum(s.size for s in segments if s.is_damaged),
            damaged_ranges=parts.reader.bad.range_count,
            damaged_entries=parts.reader.bad.entry_count,
            checked_entries=parts.checker.entries_read,
            checked_bytes=parts.checker.bytes_read,
            cleaned_segments=self._cleaner.cleaned_count,
            cleaned_bytes=self._cleaner.freed_bytes,
            index_bytes=index_sizes.used_bytes,
            index_map_bytes=index_sizes.map_bytes,
            cleaning_written_bytes=self._cleaner.written_bytes,
            cleaning_backlog_bytes=self._cleaner.plan(self._watch.room(0)).backlog_bytes,
            disk_total_bytes=self._watch.space.total_bytes,
            disk_free_bytes=self._watch.space.free_bytes,
            is_writable=self.is_writable,
            is_limbo=parts.index.is_limbo,
        )

    def _replayed_bytes(self) -> int:
        """Return approximately how many bytes of log were behind the mark when the storage was
        opened.
        """
        mark, end = self._parts.index.meta.mark_lsn, self._parts.log.durable_lsn
        first, last = (max(1, records.segment_of(lsn)) for lsn in (mark, end))
        between = (last - first) * self._config.segment_bytes_max
        return between + records.offset_of(end) - records.offset_of(mark)

    async def _checkpoint_when_due(self) -> None:
        while True:
            await self._due.wait()
            try:
                await self.checkpoint(rests=True)
            except DiskFullError:
                await asyncio.sleep(self._config.disk_check_interval_s)
                self._due.set()

    async def _rest(self, worked_s: float) -> None:
        """Pause to leave the processor to requests, unless the next checkpoint is already due."""
        if not self._due.is_set():
            await asyncio.sleep(min(REST_S_MAX, REST_SHARE * worked_s))

    def _room(self) -> CleaningRoom:
        """Return the space and the pace of the next pass of cleaning; the pace follows the
        backlog.
        """
        return self._watch.room(self._cleaner.plan(self._watch.room(0)).backlog_bytes)

    async def _clean_repeatedly(self) -> None:
        """Repeat passes of cleaning while they free space; otherwise look for work at intervals."""
        config = self._config
        while True:
            self._clean_now.clear()
            freed = await self._clean_once()
            if freed:
                if self._watch.is_full:
                    self._measure_now.set()
                await asyncio.sleep(0)
                continue
            self._cleaner.retry_kept()
            if await self._count_once():
                continue
            is_full = self._watch.is_full
            seconds = config.disk_check_interval_s if is_full else config.clean_interval_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._clean_now.wait()

    async def _clean_once(self) -> int:
        try:
            if self._watch.is_full:
                # Segments above the mark cannot be cleaned, so advance it. Without room for index
                # pages, the segments below the mark can still be cleaned.
                with contextlib.suppress(DiskFullError):
                    await self.checkpoint()
            return await self.clean()
        except DiskFullError as error:
            self.note_disk_full(error)
            return 0

    async def _count_once(self) -> bool:
        """Check the live bytes of one segment; return whether garbage was found."""
        try:
            async with self._cleaning:
                return await self._cleaner.count_next()
        except DiskFullError as error:
            self.note_disk_full(error)
            return False

    async def _rebuild_repeatedly(self) -> None:
        """Search the segments for lost runs, in a separate task, because a search may take long."""
        while True:
            await asyncio.sleep(self._config.disk_check_interval_s)
            if await self._rebuilder.search(self._cleaning):
                self._due.set()

    async def _watch_disk(self) -> None:
        while True:
            is_pressed = self._pressed.is_set()
            self._pressed.clear()
            self._measure_now.clear()
            was_full = self._watch.is_full
            await self._watch.measure(is_pressed=is_pressed)
            if self._watch.is_full and (is_pressed or not was_full):
                self._clean_now.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.disk_check_interval_s):
                    await self._measure_now.wait()
