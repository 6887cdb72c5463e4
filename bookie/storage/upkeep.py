"""Does what goes on behind the requests: checkpoints, disk marks and the reserve, and cleaning when
it is due.

Leaves the requests to `bookie.storage.bookie_storage`, and how segments are rewritten to
`bookie.storage.cleaner`.

Invariants: one checkpoint and one cleaning at a time; a failed sync, of the log or of the index,
ends `run` with DiskFailedError.
Source: storage design, "Index", "Cleaning" and "Limits and refusals"; reliability D9, D10.
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
from bookie.index.index_pages import FLAG_FENCES_LOST, FLAG_LIMBO
from bookie.log import records
from bookie.log.log import Log
from bookie.log.reserve import Reserve
from bookie.log.segments import Segments
from bookie.storage.answers import StorageStatistics
from bookie.storage.cleaner import Cleaner
from bookie.storage.cleaning import CleaningRoom
from bookie.storage.cold_ledgers import ColdLedgers
from bookie.storage.commits import Counts
from bookie.storage.disk_watch import DiskWatch
from bookie.storage.horizon import trim_tombstones
from bookie.storage.ledgers import Ledgers
from bookie.storage.reading import Reader
from bookie.storage.rebuild import Rebuilder
from bookie.storage.recent import RecentEntries
from bookie.storage.writability import Reason, Writability
from serving.latency import BOUNDS_S, LatencyCounts

REST_SHARE: Final = 9.0
"""A checkpoint that nothing waits for rests nine times as long as it works: bookies that have the
same load have their checkpoints at the same time, and a hundred thousand small runs take half a
second of a processor each.
"""
REST_S_MAX: Final = 0.1
CHECKPOINTS_AHEAD_MAX: Final = 3
"""Adds wait once this many checkpoints' worth of records or of changed ledgers are in memory,
those of the checkpoint under way included.
"""
EVICTION_LOOKS_MAX: Final = 5_000
"""States that eviction looks at in one loop step behind a checkpoint."""


@dataclass(frozen=True, slots=True)
class UpkeepParts:
    """The parts of the storage that need upkeep."""

    ledgers: Ledgers
    cold: ColdLedgers
    index: Index
    segments: Segments
    log: Log
    reader: Reader
    recent: RecentEntries


class Upkeep:
    """Keeps one storage in order."""

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
        # Looked up after every group.
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
        self._checkpoint_count = 0
        self._may_wait = True
        """Whether waiting helps: the last checkpoint did not fail for lack of room."""
        self.checkpoint_latency = LatencyCounts(BOUNDS_S)
        self._checkpoint_at_bytes = config.checkpoint_log_bytes - self._replayed_bytes()
        self.checkpointing = asyncio.Lock()
        self._cleaning = asyncio.Lock()
        self._due = asyncio.Event()
        self._pressed = asyncio.Event()
        self._look_now = asyncio.Event()
        self._clean_now = asyncio.Event()
        parts.reader.is_limbo = bool(parts.index.meta.flags & FLAG_LIMBO)
        if parts.reader.is_limbo:
            self.writability.begin(Reason.LIMBO, limbo_text)
        if self.may_have_lost_fences:
            self.writability.begin(Reason.FENCES_LOST, limbo_text)

    @property
    def may_have_lost_fences(self) -> bool:
        """Return whether a ledger never seen may have been fenced in what was lost (rule 2.4)."""
        return bool(self._parts.index.meta.flags & FLAG_FENCES_LOST)

    @property
    def is_writable(self) -> bool:
        """Return whether ordinary adds are accepted."""
        return self.writability.is_writable

    @property
    def takes_recovery_adds(self) -> bool:
        """Return whether recovery adds leave enough room for fences, tombstones and cleaning."""
        return self._watch.takes_recovery_adds

    @property
    def disk_spaces(self) -> dict[str, DiskSpace]:
        """Return the room of each directory's file system at the last look."""
        return self._watch.spaces

    @property
    def has_room(self) -> bool:
        """Return whether the memory has room for more that waits for a checkpoint. Nothing waits
        for that while the disk has no room for a checkpoint: ordinary adds are refused then, and
        fences and reads must go on.
        """
        index = self._index
        return not self._may_wait or (
            index.record_count + index.moving_count < self._records_ahead_max
            and self._ledgers.changed_count < self._ledgers_ahead_max
        )

    def note_changes(self) -> None:
        """Take note that something changed: a checkpoint may be due."""
        config = self._config
        if (
            self._index.record_count >= config.checkpoint_records
            or len(self._ledgers.unsaved.ledger_ids) >= config.checkpoint_ledgers
            or self._log.written_bytes >= self._checkpoint_at_bytes
        ):
            self._due.set()

    def note_disk_full(self, error: DiskFullError | None = None) -> None:
        """Become read-only at once, and look after the disk soon; without an error, the log's."""
        self._watch.note_full("" if error is None else error.what)
        self._pressed.set()
        self._look_now.set()

    async def run(self, log_task: asyncio.Task[None]) -> None:
        """Work until cancelled or until the log ends."""
        tasks = [
            asyncio.create_task(work())
            for work in (
                self._watch_disk,
                self._checkpoint_on,
                self._clean_on,
                self._rebuild_on,
                self._reserve.keep,
            )
        ]
        try:
            await asyncio.gather(asyncio.shield(log_task), *tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def checkpoint(self, *, rests: bool = False) -> None:
        """Move what the memory holds into the index's store, and advance the mark; resting between
        its transactions if nothing waits for it. Raises DiskFullError.
        """
        async with self.checkpointing:
            self._due.clear()
            began_s = asyncio.get_running_loop().time()
            parts = self._parts
            log_bytes = parts.log.written_bytes
            self._checkpoint_at_bytes = log_bytes + self._config.checkpoint_log_bytes
            parts.index.drop_unstored(parts.ledgers.runs_left)
            unsaved = parts.ledgers.take_unsaved()
            removed = self._cleaner.take_removed()
            try:
                await parts.index.store_damaged(parts.segments.damaged())
                await parts.index.checkpoint(
                    parts.log.durable_lsn,
                    unsaved,
                    parts.ledgers.encode,
                    removed,
                    parts.ledgers.indexed_highest_of,
                    self._rest if rests else None,
                )
            except BaseException as error:  # also when cancelled: what was taken is not stored
                parts.ledgers.unsave()
                self._checkpoint_at_bytes = log_bytes
                self._cleaner.put_back_removed(removed)
                if isinstance(error, DiskFullError):
                    self._may_wait = False
                    self.note_disk_full(error)
                    self._wake()
                raise
            self._may_wait = True
            self._watch.note_index_stored()
            parts.ledgers.note_saved()
            for number, segment in parts.segments.by_number.items():
                segment.live_bytes = parts.index.live_bytes(number)
            self._checkpoint_count += 1
            self.checkpoint_latency.record(asyncio.get_running_loop().time() - began_s)
            self.note_changes()
            self._wake()
            looks = 2 * len(parts.ledgers.states)  # the first one spares what was used since
            while parts.ledgers.evict(EVICTION_LOOKS_MAX) and looks > 0:
                looks -= EVICTION_LOOKS_MAX
                await asyncio.sleep(0)
            with contextlib.suppress(DiskFullError):  # the next checkpoint tries again
                await trim_tombstones(parts.ledgers, parts.index, self._config.tombstones_max)

    async def clean(self) -> int:
        """Do one pass of cleaning; return the bytes freed. Raises DiskFullError."""
        async with self._cleaning:
            if not self._watch.space.total_bytes:
                await self._watch.look(is_pressed=False)
            return await self._cleaner.clean(self._room())

    def statistics(self, counts: Counts, queue_bytes: int) -> StorageStatistics:
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
            damaged_ranges=len(parts.reader.damaged),
            cleaned_segments=self._cleaner.cleaned_count,
            cleaned_bytes=self._cleaner.freed_bytes,
            index_bytes=index_sizes.used_bytes,
            index_map_bytes=index_sizes.map_bytes,
            cleaning_written_bytes=self._cleaner.written_bytes,
            cleaning_backlog_bytes=self._cleaner.plan(self._watch.room(0)).backlog_bytes,
            disk_total_bytes=self._watch.space.total_bytes,
            disk_free_bytes=self._watch.space.free_bytes,
            is_writable=self.is_writable,
            is_limbo=parts.reader.is_limbo,
        )

    def _replayed_bytes(self) -> int:
        """Bytes of log behind the mark as the storage was opened, about."""
        mark, end = self._parts.index.meta.mark_lsn, self._parts.log.durable_lsn
        first, last = (max(1, records.segment_of(lsn)) for lsn in (mark, end))
        between = (last - first) * self._config.segment_bytes_max
        return between + records.offset_of(end) - records.offset_of(mark)

    async def _checkpoint_on(self) -> None:
        while True:
            await self._due.wait()
            try:
                await self.checkpoint(rests=True)
            except DiskFullError:
                await asyncio.sleep(self._config.disk_check_interval_s)
                self._due.set()

    async def _rest(self, worked_s: float) -> None:
        """Leave the processor to requests, unless the next checkpoint is due already."""
        if not self._due.is_set():
            await asyncio.sleep(min(REST_S_MAX, REST_SHARE * worked_s))

    def _room(self) -> CleaningRoom:
        """Return what the next pass of cleaning may use, at a pace that follows the backlog."""
        return self._watch.room(self._cleaner.plan(self._watch.room(0)).backlog_bytes)

    async def _clean_on(self) -> None:
        """Clean pass after pass while passes free something, and look for work now and then."""
        config = self._config
        while True:
            self._clean_now.clear()
            freed = await self._clean_once()
            if freed:
                if self._watch.is_full:
                    self._look_now.set()
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
                # What is above the mark cannot be cleaned. Without room for index pages, the rest
                # can.
                with contextlib.suppress(DiskFullError):
                    await self.checkpoint()
            return await self.clean()
        except DiskFullError as error:
            self.note_disk_full(error)
            return 0

    async def _count_once(self) -> bool:
        """Check one segment's live bytes; return whether garbage was found."""
        try:
            async with self._cleaning:
                return await self._cleaner.count_next()
        except DiskFullError as error:
            self.note_disk_full(error)
            return False

    async def _rebuild_on(self) -> None:
        """Search the segments for what the index lost, in a task of its own: it may take long."""
        while True:
            await asyncio.sleep(self._config.disk_check_interval_s)
            if await self._rebuilder.search(self._cleaning):
                self._due.set()

    async def _watch_disk(self) -> None:
        while True:
            is_pressed = self._pressed.is_set()
            self._pressed.clear()
            self._look_now.clear()
            was_full = self._watch.is_full
            await self._watch.look(is_pressed=is_pressed)
            if self._watch.is_full and (is_pressed or not was_full):
                self._clean_now.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.disk_check_interval_s):
                    await self._look_now.wait()
