"""Does what goes on behind the requests: checkpoints, disk marks and the reserve, and cleaning when
it is due.

Leaves the requests to `bookie.storage`, and how segments are rewritten to `bookie.cleaner`.

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

from bookie import records
from bookie.answers import StorageStatistics
from bookie.cleaner import Cleaner
from bookie.commits import Counts
from bookie.config import StorageConfig
from bookie.disk import Disk, DiskSpace
from bookie.errors import DiskFullError
from bookie.index import Index
from bookie.index_pages import FLAG_FENCES_LOST, FLAG_LIMBO
from bookie.ledgers import Ledgers
from bookie.log import Log
from bookie.reading import Reader
from bookie.rebuild import rebuild_ledgers
from bookie.recent import RecentEntries
from bookie.reserve import Reserve
from bookie.segments import Segments

REST_SHARE: Final = 9.0
"""A checkpoint that nothing waits for rests nine times as long as it works: bookies that have the
same load have their checkpoints at the same time, and a hundred thousand small runs take half a
second of a processor each.
"""
REST_S_MAX: Final = 0.1


@dataclass(frozen=True, slots=True)
class UpkeepParts:
    """The parts of the storage that need upkeep."""

    ledgers: Ledgers
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
    ) -> None:
        self.is_read_only_wished = False
        self._disk = disk
        self._config = config
        self._parts = parts
        self._wake = wake
        self._cleaner = Cleaner(disk, config, parts.ledgers, parts.index, parts.segments, rng)
        self._reserve = Reserve(disk, config)
        self._is_full = False
        self._space = DiskSpace(0, 0)
        self._checkpoint_count = 0
        self._checkpoint_at_bytes = config.checkpoint_log_bytes - self._replayed_bytes()
        self._checkpointing = asyncio.Lock()
        self._cleaning = asyncio.Lock()
        self._due = asyncio.Event()
        self._pressed = asyncio.Event()
        self._writable_callbacks: list[Callable[[], None]] = []
        parts.reader.is_limbo = bool(parts.index.meta.flags & FLAG_LIMBO)

    @property
    def may_have_lost_fences(self) -> bool:
        """Tell whether a ledger never seen may have been fenced in what was lost (rule 2.4)."""
        return bool(self._parts.index.meta.flags & FLAG_FENCES_LOST)

    @property
    def is_writable(self) -> bool:
        """Tell whether ordinary adds are accepted."""
        return not (self.is_read_only_wished or self._is_full or self.may_have_lost_fences)

    def on_writable_change(self, callback: Callable[[], None]) -> None:
        """Register a callback."""
        self._writable_callbacks.append(callback)

    def note_writable(self) -> None:
        """Tell whoever wants to know that `is_writable` may have changed."""
        for callback in self._writable_callbacks:
            callback()

    def note_stored(self) -> None:
        """Take note that a group is durable: a checkpoint may be due."""
        index, config = self._parts.index, self._config
        if (
            index.record_count >= config.checkpoint_records
            or self._parts.log.written_bytes >= self._checkpoint_at_bytes
        ):
            self._due.set()

    def note_disk_full(self) -> None:
        """Become read-only at once, and look after the disk soon."""
        if not self._is_full:
            self._is_full = True
            self.note_writable()
        self._pressed.set()

    async def run(self, log_task: asyncio.Task[None]) -> None:
        """Work until cancelled or until the log ends."""
        tasks = [
            asyncio.create_task(work())
            for work in (
                self._watch_disk,
                self._checkpoint_on,
                self._clean_on,
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
        async with self._checkpointing:
            self._due.clear()
            parts = self._parts
            log_bytes = parts.log.written_bytes
            self._checkpoint_at_bytes = log_bytes + self._config.checkpoint_log_bytes
            unsaved = parts.ledgers.take_unsaved()
            live: list[tuple[int, int | None]] = [
                (number, segment.live_bytes) for number, segment in parts.segments.by_number.items()
            ]
            live += [(number, None) for number in self._cleaner.take_removed()]
            try:
                moved = await parts.index.checkpoint(
                    parts.log.durable_lsn,
                    unsaved,
                    parts.ledgers.encode,
                    live,
                    parts.ledgers.indexed_highest_of,
                    self._rest if rests else None,
                )
            except BaseException as error:  # also when cancelled: what was taken is not stored
                parts.ledgers.unsave(unsaved)
                self._checkpoint_at_bytes = log_bytes
                if isinstance(error, DiskFullError):
                    self.note_disk_full()
                raise
            parts.ledgers.note_indexed(moved)
            self._checkpoint_count += 1
            self._wake()

    async def clean(self) -> int:
        """Clean what is due; return the bytes freed."""
        async with self._cleaning:
            return await self._cleaner.clean(is_emergency=self._is_full)

    async def rebuild(self) -> None:
        """Index again the ledgers whose runs the index could not account for."""
        parts = self._parts
        unproven = list(parts.reader.unproven)
        if unproven:
            async with self._cleaning:
                await rebuild_ledgers(unproven, parts.ledgers, parts.index, parts.segments)
            for ledger_id in unproven:
                parts.reader.unproven.pop(ledger_id, None)
            self._due.set()

    def statistics(self, counts: Counts, queue_bytes: int) -> StorageStatistics:
        """Return counters and gauges."""
        parts = self._parts
        segments = list(parts.segments.by_number.values())
        return StorageStatistics(
            entries_added=counts.entries,
            bytes_added=counts.bytes,
            batches_added=counts.batches,
            entries_read=parts.reader.entries_read,
            bytes_read=parts.reader.bytes_read,
            syncs=parts.log.sync_count,
            log_bytes_written=parts.log.written_bytes,
            queue_bytes=queue_bytes,
            ledgers=len(parts.ledgers.states),
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
            disk_total_bytes=self._space.total_bytes,
            disk_free_bytes=self._space.free_bytes,
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

    async def _clean_on(self) -> None:
        while True:
            await asyncio.sleep(self._config.clean_interval_s)
            try:
                await self.clean()
            except DiskFullError:
                self.note_disk_full()

    async def _watch_disk(self) -> None:
        while True:
            self._space = space = await self._disk.space()
            used = 1.0 - space.free_bytes / max(1, space.total_bytes)
            if used >= self._config.disk_high_mark or self._pressed.is_set():
                await self._relieve()
            elif used < self._config.disk_low_mark and self._is_full:
                self._is_full = False
                self._reserve.want()
                self.note_writable()
            self._pressed.clear()
            await self.rebuild()
            try:
                async with asyncio.timeout(self._config.disk_check_interval_s):
                    await self._pressed.wait()
            except TimeoutError:
                continue

    async def _relieve(self) -> None:
        """Become read-only, give the reserve to fences, recovery adds, tombstones and index pages,
        and free dead segments.
        """
        if not self._is_full:
            self._is_full = True
            self.note_writable()
        await self._reserve.give_up()
        for work in (self.checkpoint, self.clean):
            with contextlib.suppress(DiskFullError):  # the next look at the disk tries again
                await work()
