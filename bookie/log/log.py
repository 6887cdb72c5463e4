"""Writer of the segmented log. It appends records in groups and reports when they are durable.

Leaves reading the log to `bookie.log.replay`, and the effect of durable records to
`bookie.storage.commits`.

Invariants: one commit takes everything queued, within the limits of a group; records that arrive
during a commit wait for the next; groups are answered in the order of the log; a group is answered
as stored only after its sync; after a failed sync nothing more is written or answered as stored; a
file whose sync found the disk full is not written or synced again, and the head of the next segment
excludes the bytes of its last group.
Source: storage design, "One log", "Threads" and "Limits and refusals"; protocol rules 2.5 and 4.3;
reliability design, D7, D9.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bookie.config import StorageConfig
from bookie.errors import (
    BookieError,
    DescriptorsExhaustedError,
    DiskFailedError,
    DiskFullError,
    StorageClosedError,
    SyncFullError,
)
from bookie.files.disk import Buffer, Disk, File
from bookie.log import records
from bookie.log.records import ADDS, RECORD_HEADER_BYTES, RecordKind
from bookie.log.segments import DIRECTORY, Segment, Segments
from bookie.queued_adds import QueuedAdds
from quire.server.latency import BOUNDS_S, LatencyCounts
from quire.tracing import spans as tracing

ITEM_OVERHEAD_BYTES: Final = 256
"""Memory of a queued record besides its body, counted against the queue's limit."""
GROUP_RECORDS_MAX: Final = 2_048
"""Maximum number of records in one commit. Each costs about ten microseconds, all in one
callback.
"""
CACHE_DROP_BYTES: Final = 4 * 1024 * 1024
"""Minimum number of synced bytes to drop from the system's page cache at once."""
BEGIN_AT_SHARE: Final = 0.75
"""The next file is created once the active segment is this full. The rest of the segment takes
longer to fill than a file takes to create. Earlier creation would use space that cleaning may need.
"""


class LogItem:
    """One queued record; `lsn` is set when its group is gathered. `context` is the caller's; it
    goes to the group handler with the record.
    """

    __slots__ = ("body", "context", "kind", "lsn")

    def __init__(self, kind: int, body: Buffer, context: object) -> None:
        self.kind = kind
        self.body = body
        self.context = context
        self.lsn = -1


GroupHandler = Callable[[list[LogItem], BookieError | None], None]
"""Called on the loop with each group, which is stored if the error is None."""


@dataclass(frozen=True, slots=True)
class EmptySegment:
    """A new segment and its open file, which has no records yet."""

    segment: Segment
    file: File


class NextSegment:
    """Next segment of one log: its file is created before the log needs it.

    Invariants: a file is returned only after its name is durable; at most one file is created
    ahead, and no other segment has its number; a file without a head holds nothing, so a start
    removes a file that a crash left.
    """

    def __init__(self, disk: Disk, config: StorageConfig, segments: Segments) -> None:
        self._disk = disk
        self._config = config
        self._segments = segments
        self._ahead: asyncio.Task[EmptySegment | None] | None = None

    def begin(self) -> None:
        """Start to create the file, unless that has happened since the last `take`."""
        if self._ahead is None:
            self._ahead = asyncio.create_task(self._create_ahead())

    async def take(self) -> EmptySegment:
        """Return the next segment; create it now if it was not created ahead. Raises DiskFullError,
        DescriptorsExhaustedError, DiskFailedError.
        """
        ahead, self._ahead = self._ahead, None
        created = None if ahead is None else await ahead
        return created or await self._create()

    async def remove(self, empty: EmptySegment) -> None:
        """Remove an empty file; its number is not used again before a restart."""
        await self._disk.unlink(empty.segment.name)
        await empty.file.close()

    async def discard(self) -> None:
        """Remove the file that was created ahead, because the log ends."""
        ahead, self._ahead = self._ahead, None
        created = None if ahead is None else await ahead
        if created is not None:
            await self.remove(created)

    async def _create_ahead(self) -> EmptySegment | None:
        try:
            return await self._create()
        except (DiskFullError, DescriptorsExhaustedError):
            return None  # the roll tries again and reports the error

    async def _create(self) -> EmptySegment:
        segment = Segment(self._segments.take_number(), is_cleaned=False, size=0)
        size = self._config.segment_bytes_max
        try:
            file = await self._disk.create(segment.name, preallocate_bytes=size)
        except DiskFullError:
            file = await self._disk.create(segment.name)
        # Before the head is written: from then on a checkpoint may name the place after it.
        await self._disk.sync_directory(DIRECTORY)
        return EmptySegment(segment, file)


class Log:
    """Writer of the log. `run()` must run as a task."""

    def __init__(
        self,
        disk: Disk,
        config: StorageConfig,
        segments: Segments,
        end_lsn: int,
        on_group: GroupHandler,
    ) -> None:
        self.durable_lsn = end_lsn
        """All records below it are durable."""
        self.queued = QueuedAdds(config.queue_bytes_max)
        """Account of the bookie's adds; all of its queues use this one."""
        self.sync_count = 0
        self.written_bytes = 0
        self.sync_latency = LatencyCounts(BOUNDS_S)
        """Durations of writing and syncing a group."""
        self.failure: BookieError | None = None
        self._config = config
        self._segments = segments
        self._on_group = on_group
        self._queue: deque[LogItem] = deque()
        self._committing: list[LogItem] = []
        self._idle: asyncio.Future[None] | None = None
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._appended_count = 0
        self._answered_count = 0
        self._next = NextSegment(disk, config, segments)
        self._active: Segment | None = None
        self._file: File | None = None
        self._footer = bytearray()
        self._footer_bytes_max = config.segment_records_max * records.FOOTER_RUN_BYTES
        self._segment_bytes_max = config.segment_bytes_max
        self._filled_share = 0.0
        """Filled share of the active segment, by its bytes or by its records."""
        self._dropped = 0
        self._is_closing = False
        self._now = asyncio.get_running_loop().time

    def append(self, kind: int, body: Buffer, context: object) -> None:
        """Queue a record. Raises the log's failure after it has failed, StorageClosedError while it
        is closing.
        """
        if self.failure is not None:
            raise self.failure
        if self._is_closing:
            raise StorageClosedError
        self._queue.append(LogItem(kind, body, context))
        self._appended_count += 1
        self.queued.log_bytes += len(body) + ITEM_OVERHEAD_BYTES
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def unanswered(self) -> list[LogItem]:
        """Return the records that are queued or being committed, in order."""
        return [*self._committing, *self._queue]

    async def barrier(self) -> None:
        """Wait until everything queued before the call has been answered."""
        if self._answered_count < self._appended_count and self.failure is None:
            future = asyncio.get_running_loop().create_future()
            self._waiters.append((self._appended_count, future))
            await future

    async def run(self) -> None:
        """Commit groups until `close`. Raises DiskFailedError when the disk has failed. After any
        error nothing more is stored.
        """
        try:
            await self._commit_groups()
            with contextlib.suppress(DiskFullError):  # without a footer, readers scan the segment
                await self._seal()
            await self._next.discard()
        except Exception as error:
            await self._fail(error)
            raise

    async def _commit_groups(self) -> None:
        while not (self._is_closing and not self._queue):
            if not self._queue:
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
                self._idle = None
                continue
            group = self._committing = self._gather()
            try:
                await self._commit(group)
            except (DiskFullError, DescriptorsExhaustedError) as error:
                self._committing = []
                await self._refuse(group, error)
            else:
                self._committing = []
                self._answer(group, None)

    def close(self) -> None:
        """Make `run` end after everything queued is answered and the segment is sealed."""
        self._is_closing = True
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _gather(self) -> list[LogItem]:
        if (
            self.queued.log_bytes <= self._config.group_bytes_max
            and len(self._queue) <= GROUP_RECORDS_MAX
        ):
            return self._take_all()
        queue, room, group = self._queue, self._config.group_bytes_max, list[LogItem]()
        while queue and room > 0 and len(group) < GROUP_RECORDS_MAX:
            item = queue.popleft()
            room -= len(item.body) + RECORD_HEADER_BYTES
            group.append(item)
        return group

    def _take_all(self) -> list[LogItem]:
        items = list(self._queue)
        self._queue.clear()
        return items

    async def _commit(self, group: list[LogItem]) -> None:
        segment = self._active
        if segment is None or self._filled_share >= 1.0:
            segment = await self._roll()
        await self._write(segment, group)
        if self._filled_share >= BEGIN_AT_SHARE:
            self._next.begin()

    async def _write(self, segment: Segment, group: list[LogItem]) -> None:
        """Write records at the segment's end and sync; on a full disk, remove them again."""
        assert self._file is not None
        offset, listed = segment.size, len(self._footer)
        buffers: list[Buffer] = []
        segment_lsn, synced_lsn = records.lsn_of(segment.number, 0), self.durable_lsn
        for item in group:
            body, kind = item.body, item.kind
            item.lsn = segment_lsn + offset
            size = RECORD_HEADER_BYTES + len(body)
            buffers += (records.encode_header(kind, body, item.lsn, synced_lsn), body)
            if kind == ADDS:
                self._footer += records.footer_run(body, offset, size)
            offset += size
        assert offset <= records.OFFSET_MAX, "a segment is smaller than its numbers are apart"
        began_s = self._now()
        try:
            await self._file.commit(segment.size, buffers)
        except DiskFullError as error:
            del self._footer[listed:]
            await self._take_back(segment, self._file, error)
            raise
        took_s = self._now() - began_s
        self.sync_latency.record(took_s)
        if tracing.is_on():
            attributes = {tracing.BATCH_BYTES: offset - segment.size, "quire.records": len(group)}
            tracing.record("bookie.commit", tracing.SpanKind.INTERNAL, took_s, attributes)
        self.sync_count += 1
        self.written_bytes += offset - segment.size
        segment.size = offset
        self._filled_share = max(
            offset / self._segment_bytes_max, len(self._footer) / self._footer_bytes_max
        )
        self.durable_lsn = records.lsn_of(segment.number, offset)
        self._drop_cached(self._file, offset - self._config.cached_bytes_max)

    async def _take_back(self, segment: Segment, file: File, error: DiskFullError) -> None:
        """Remove bytes that did not fit. If a sync found the disk full, stop using the segment
        instead.
        """
        if isinstance(error, SyncFullError):
            self._drop_active()
            return
        try:
            await file.truncate(segment.size)
        except SyncFullError:
            self._drop_active()

    def _drop_cached(self, file: File, end: int) -> None:
        """Drop the synced bytes up to `end` from the page cache, so that the next group reuses
        their memory (decision 0007).
        """
        if end - self._dropped >= CACHE_DROP_BYTES:
            file.drop_cached(self._dropped, end - self._dropped)
            self._dropped = end

    async def _roll(self) -> Segment:
        """Seal the active segment and begin the next one. Raises DiskFullError when the next
        segment cannot be begun; a later call tries again.
        """
        try:
            await self._seal()
        except DiskFullError:
            self._drop_active()
        empty = await self._next.take()
        segment, file = empty.segment, empty.file
        self._active, self._file = segment, file
        head = LogItem(RecordKind.HEAD, records.encode_head(self.durable_lsn, 0), None)
        try:
            await self._write(segment, [head])
        except DiskFullError:
            self._drop_active()
            await self._next.remove(empty)
            raise
        self._segments.adopt(segment, file)
        self._segments.pinned = segment.number
        return segment

    async def _seal(self) -> None:
        """Write the footer of the active segment and truncate the file to its size."""
        segment, file = self._active, self._file
        if segment is None or file is None:
            return
        records.end_footer(self._footer, segment.size)
        await self._write(segment, [LogItem(RecordKind.FOOTER, self._footer, None)])
        if file.size > segment.size:
            await file.truncate(segment.size)
        self._drop_active()

    def _drop_active(self) -> None:
        self._active, self._file = None, None
        self._footer = bytearray()
        self._dropped = 0

    async def _fail(self, error: Exception) -> None:
        """Answer everything as failed. Nothing more is stored."""
        self.failure = (
            error if isinstance(error, DiskFailedError) else DiskFailedError("log", repr(error))
        )
        group, self._committing = self._committing, []
        await self._refuse(group, self.failure)

    async def _refuse(self, group: list[LogItem], error: BookieError) -> None:
        """Answer a group, and everything queued now, as not stored; at most GROUP_RECORDS_MAX
        records in each callback. Records queued later wait for the next commit.
        """
        left = len(self._queue)
        self._answer(group, error)
        while left:
            await asyncio.sleep(0)
            part = [self._queue.popleft() for _ in range(min(left, GROUP_RECORDS_MAX))]
            left -= len(part)
            self._answer(part, error)

    def _answer(self, group: list[LogItem], error: BookieError | None) -> None:
        self._answered_count += len(group)
        size = sum([len(item.body) for item in group])
        self.queued.log_bytes -= size + ITEM_OVERHEAD_BYTES * len(group)
        if group:
            self._on_group(group, error)
        while self._waiters and self._waiters[0][0] <= self._answered_count:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
