"""Replay of the log from the checkpoint's mark at a start; makes every replayed record durable.

Leaves the bytes to `bookie.log.replay`, and the meaning of records to the caller's `apply`.

A process that dies leaves bytes in the page cache that may never reach the medium, and after a
failed sync a second sync proves nothing. So a record counts as durable only if the log proves it:
below the mark, or below a synced LSN, which a process writes after its sync has returned. The
records after the largest of these are the unproved tail: at most the group written last.

Invariants: segments are read in order, each from where the one before it ended; the head of a
segment names that place, and older bytes at or beyond it are no part of the log; bytes that the
disk cannot read are corruption, never a torn tail; a record is applied once it is proved, or at the
place of its copy; no byte is removed before the copy is durable; a crash at any point loses no
proved record.
Source: protocol rules 2.4 and 2.5; storage design, "One log".
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bookie.errors import DiskFullError, FormatError
from bookie.files.disk import Buffer, Disk
from bookie.log import records, replay
from bookie.log.records import ADDS, RECORD_HEADER_BYTES, Record, RecordHeader, RecordKind
from bookie.log.replay import Damage
from bookie.log.segments import (
    DIRECTORY,
    UNFINISHED_SUFFIX,
    ReadableFile,
    Segment,
    Segments,
    StartFiles,
    parse_name,
)


@dataclass(slots=True)
class ReplayOutcome:
    """Results of a replay besides the records."""

    end_lsn: int
    corrupt: list[tuple[int, str]] = field(default_factory=list)
    """Places where durable bytes are missing or damaged: LSN, and a text that says what."""
    may_have_lost_fences: bool = False
    """Whether the missing bytes may have held fences and other control records, not only
    entries.
    """
    record_count: int = 0
    """Number of applied records, without heads and footers."""
    copied_bytes: int = 0
    """Bytes of the unproved tail that were copied into a new segment."""
    torn_bytes: int = 0
    """Removed bytes that were no complete records."""

    def describe_loss(self) -> str:
        """Return a description of the loss for an operator."""
        if not self.corrupt:
            return "stored data was lost before this start; the log of an earlier start says what"
        lsn, what = self.corrupt[0]
        where = f"segment {records.segment_of(lsn):08x}, offset {records.offset_of(lsn)}"
        more = f", and {len(self.corrupt) - 1} places more" if len(self.corrupt) > 1 else ""
        return f"part of the log was lost: {what} ({where}{more})"


async def find_segments(disk: Disk) -> Segments:
    """List the segment files with their sizes and heads, and make their names durable. Raises
    FormatError for a file of a newer release.
    """
    segments, files = Segments(disk), StartFiles(disk)
    names = await disk.list_names(DIRECTORY)
    for name in names:
        if name.endswith(UNFINISHED_SUFFIX):
            await disk.unlink(f"{DIRECTORY}/{name}")  # no index refers to an unfinished file
            continue
        parsed = parse_name(name)
        if parsed is None:
            continue
        number, is_cleaned = parsed
        file = await files.open(f"{DIRECTORY}/{name}")
        try:
            head = await file.read(0, replay.HEAD_RECORD_BYTES)
            version = records.newer_version(head)
            if version is not None:
                raise FormatError(
                    name,
                    f"it has format version {version}, so start the newer release that wrote it",
                )
            segment = Segment(number, is_cleaned=is_cleaned, size=file.size)
            segment.predecessor_end = replay.predecessor_end(head, number)
            segments.add(segment)
        finally:
            await file.close()
    if names:
        await disk.sync_directory(DIRECTORY)
    return segments


class LogReplay:
    """Replay of the log segments from the mark on. `prepare` is awaited with records before they
    are applied; `after_apply` is awaited afterwards, with the LSN below which everything was
    applied.
    """

    def __init__(
        self,
        disk: Disk,
        segments: Segments,
        mark_lsn: int,
        apply: Callable[[Record], None],
        prepare: Callable[[list[Record]], Awaitable[None]] | None = None,
        after_apply: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self.outcome = ReplayOutcome(end_lsn=mark_lsn)
        """Updated while `run` runs."""
        self._disk = disk
        self._files = StartFiles(disk)
        self._segments = segments
        self._apply = apply
        self._prepare = prepare
        self._after_apply = after_apply
        self._mark_lsn = mark_lsn
        self._proved_lsn = mark_lsn
        self._log = [
            segment
            for number, segment in sorted(segments.by_number.items())
            if number >= records.segment_of(mark_lsn) and not segment.is_cleaned
        ]
        self._limits = _limits(self._log)
        self._is_torn = False
        self._waiting: list[Record] = []
        """Complete records that are not proved yet, in order."""

    async def run(self) -> ReplayOutcome:
        """Run `read`, then `settle`."""
        await self.read()
        return await self.settle()

    async def read(self) -> None:
        """Apply every proved record at or above the mark; change nothing on the disk."""
        mark_segment, log, limits = records.segment_of(self._mark_lsn), self._log, self._limits
        if mark_segment and all(segment.number != mark_segment for segment in log):
            self._note_missing(self._mark_lsn, "the segment that the checkpoint names is missing")
        ends = [segment.predecessor_end or 0 for segment in log]
        self._proved_lsn = max([self._proved_lsn, *ends])
        for place, segment in enumerate(log):
            start = records.offset_of(self._mark_lsn) if segment.number == mark_segment else 0
            later = [(other, limits[other.number]) for other in log[place + 1 :]]
            if await self._replay_segment(segment, start, limits[segment.number], later):
                break
        await self._apply_proved()

    async def settle(self) -> ReplayOutcome:
        """Make the unproved tail durable and apply it, remove bytes that are not part of the log,
        and return the outcome. Raises DiskFullError when there is no room for the copy of the tail:
        nothing was changed, and the call may be repeated.
        """
        await self._settle_tail()
        await self._cut_all()
        return self.outcome

    async def _replay_segment(
        self, segment: Segment, start: int, end: int, later: list[tuple[Segment, int]]
    ) -> bool:
        """Replay one segment; return whether the log ends in it with a torn tail."""
        if end == 0 < segment.size:
            return False  # a later segment replaced all of it
        number = segment.number
        file = await self._files.open(segment.name)
        try:
            if file.size < start:
                self._note_missing(records.lsn_of(number, file.size), "bytes are missing")
                return False
            reader = replay.SegmentReader(file, number, start, end)
            while (part := await reader.next()) is not None:
                if isinstance(part, Damage):
                    is_read = not self._is_unreadable(segment, part, end)
                    if is_read and await self._ends_the_log(file, part, end, later):
                        self._is_torn = True
                        return True
                    await self._note_corruption(segment, part, end)
                else:
                    await self._take(part)
        finally:
            await file.close()
        return False

    async def _take(self, parsed: list[Record]) -> None:
        """Add records in the order of the log, and apply those that are proved by now."""
        outcome = self.outcome
        for record in parsed:
            header = record.header
            if header.kind is RecordKind.HEAD:
                predecessor_end, _ = records.decode_head(record.body)
                if predecessor_end != outcome.end_lsn and predecessor_end > self._mark_lsn:
                    self._note_missing(outcome.end_lsn, f"the log continues at {predecessor_end}")
            outcome.end_lsn = header.lsn + header.size
        self._proved_lsn = max(self._proved_lsn, parsed[-1].header.synced_lsn)
        self._waiting += parsed
        await self._apply_proved()

    async def _apply_proved(self) -> None:
        waiting, proved_lsn = self._waiting, self._proved_lsn
        count = len(waiting) if waiting and waiting[0].header.lsn < proved_lsn else 0
        while count and waiting[count - 1].header.lsn + waiting[count - 1].header.size > proved_lsn:
            count -= 1
        if not count:
            return
        applied_lsn = waiting[count - 1].header.lsn + waiting[count - 1].header.size
        await self._apply_all(waiting[:count])
        del waiting[:count]
        if self._after_apply is not None:
            await self._after_apply(applied_lsn)

    async def _apply_all(self, parsed: list[Record]) -> None:
        kinds = (RecordKind.HEAD, RecordKind.FOOTER)
        if self._prepare is not None:
            await self._prepare(parsed)
        for record in parsed:
            self._apply(record)
        self.outcome.record_count += sum([record.header.kind not in kinds for record in parsed])

    def _note_missing(self, lsn: int, what: str) -> None:
        self.outcome.corrupt.append((lsn, what))
        self.outcome.may_have_lost_fences = True

    async def _note_corruption(self, segment: Segment, damage: Damage, end: int) -> None:
        outcome = self.outcome
        next_lsn = damage.next_lsn or records.lsn_of(segment.number, min(segment.size, end))
        await self._apply_proved()
        outcome.end_lsn = next_lsn
        if damage.kind is RecordKind.FOOTER:
            return  # the records hold the same information
        segment.is_damaged = True
        outcome.corrupt.append((damage.lsn, "a record is damaged"))
        if damage.kind is not RecordKind.ADDS:
            outcome.may_have_lost_fences = True

    def _is_unreadable(self, segment: Segment, damage: Damage, end: int) -> bool:
        """Return whether the disk could not read some of the damaged bytes."""
        after = end if damage.next_lsn is None else records.offset_of(damage.next_lsn)
        return self._files.overlap(segment.name, records.offset_of(damage.lsn), after)

    async def _ends_the_log(
        self, file: ReadableFile, damage: Damage, end: int, later: list[tuple[Segment, int]]
    ) -> bool:
        """Return whether damage is a torn tail: no later record was written after a sync beyond the
        damage. Otherwise it is corruption.
        """
        if damage.lsn < self._proved_lsn:
            return False
        synced_lsn = 0
        if damage.next_lsn is not None:
            number, start = records.segment_of(damage.lsn), records.offset_of(damage.next_lsn)
            synced_lsn = await replay.largest_synced_lsn(file, number, start, end)
        for other, other_end in later:
            other_file = await self._files.open(other.name)
            try:
                largest = await replay.largest_synced_lsn(other_file, other.number, 0, other_end)
            finally:
                await other_file.close()
            synced_lsn = max(synced_lsn, largest)
        self._proved_lsn = max(self._proved_lsn, synced_lsn)
        return damage.lsn >= synced_lsn

    async def _settle_tail(self) -> None:
        """Copy the unproved records into a new segment, and apply them from there."""
        outcome, waiting = self.outcome, self._waiting
        if outcome.end_lsn <= self._proved_lsn and not self._is_torn:
            return
        tail = [r for r in waiting if r.header.kind not in (RecordKind.HEAD, RecordKind.FOOTER)]
        if not tail and self._proved_lsn == self._mark_lsn:
            outcome.end_lsn = self._mark_lsn
            return
        # Also without any records: the removed bytes may be the only proof of the records before
        # them.
        copy, copied = await copy_tail(self._disk, self._segments, self._proved_lsn, tail)
        outcome.copied_bytes = sum(record.header.size for record in tail)
        outcome.end_lsn = records.lsn_of(copy.number, copy.size)
        await self._apply_all(copied)

    async def _cut_all(self) -> None:
        """Remove bytes that are not part of the log, and segments with nothing left."""
        proved_segment = records.segment_of(self._proved_lsn)
        whole_bytes = sum(record.header.size for record in self._waiting)
        cut_bytes = 0
        removed: list[int] = []
        for segment in self._log:
            end = min(segment.size, self._limits[segment.number])
            if segment.number == proved_segment:
                end = min(end, records.offset_of(self._proved_lsn))
            elif segment.number > proved_segment:
                end = 0
            is_torn = segment.number >= proved_segment
            cut_bytes += (segment.size - end) * is_torn
            if not end:
                removed.append(segment.number)
            elif end < segment.size:
                await self._truncate(segment, end)
        for number in removed:
            await self._segments.remove(number)
        if removed:
            await self._disk.sync_directory(DIRECTORY)
        self.outcome.torn_bytes = cut_bytes - whole_bytes

    async def _truncate(self, segment: Segment, size: int) -> None:
        file = await self._disk.open(segment.name)
        try:
            await file.truncate(size)
        finally:
            await file.close()
        segment.size = size


def _limits(log: list[Segment]) -> dict[int, int]:
    """Return the offset up to which each segment is part of the log: where the heads of later
    segments say that it ended, or the segment's end if no head says so.
    """
    limits: dict[int, int] = {}
    ended_at: int | None = None
    for segment in reversed(log):
        limits[segment.number] = segment.size
        if ended_at is not None and records.segment_of(ended_at) <= segment.number:
            is_within = records.segment_of(ended_at) == segment.number
            limits[segment.number] = (
                min(segment.size, records.offset_of(ended_at)) if is_within else 0
            )
        named = segment.predecessor_end
        if named is not None:
            ended_at = named if ended_at is None else min(named, ended_at)
    return limits


async def copy_tail(
    disk: Disk, segments: Segments, proved_lsn: int, tail: Sequence[Record]
) -> tuple[Segment, list[Record]]:
    """Write validated records into a new log segment after `proved_lsn`. Return the segment and
    the records at their new places. They are durable on return.

    Raises DiskFullError with nothing left behind, DiskFailedError.
    """
    segment = Segment(segments.take_number(), is_cleaned=False, size=0)
    copied, buffers = _encode(segment, proved_lsn, tail)
    unfinished = segment.name + UNFINISHED_SUFFIX
    file = await disk.create(unfinished)
    try:
        await file.commit(0, buffers)
    except DiskFullError:
        await disk.unlink(unfinished)
        raise
    finally:
        await file.close()
    await disk.rename(unfinished, segment.name)
    await disk.sync_directory(DIRECTORY)
    segments.add(segment)
    return segment, copied


def _encode(
    segment: Segment, proved_lsn: int, tail: Sequence[Record]
) -> tuple[list[Record], list[Buffer]]:
    """Encode a sealed segment of these records, and set the segment's size."""
    copied: list[Record] = []
    buffers: list[Buffer] = []
    footer = bytearray()

    def put(kind: RecordKind, body: Buffer) -> RecordHeader:
        lsn = records.lsn_of(segment.number, segment.size)
        encoded = records.encode_header(kind, body, lsn, proved_lsn)
        buffers.extend((encoded, body))
        segment.size += RECORD_HEADER_BYTES + len(body)
        header = records.decode_header(encoded, 0, lsn)
        assert header is not None
        return header

    put(RecordKind.HEAD, records.encode_head(proved_lsn, 0))
    for record in tail:
        offset = segment.size
        header = put(record.header.kind, record.body)
        if header.kind == ADDS:
            footer += records.footer_run(record.body, offset, header.size)
        copied.append(Record(header, record.body))
    records.end_footer(footer, segment.size)
    put(RecordKind.FOOTER, footer)
    return copied, buffers
