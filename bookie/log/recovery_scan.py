"""Finds out at start what the log holds from the checkpoint's mark on, and makes all of it durable.

Leaves the bytes to `bookie.log.replay`, copying to `bookie.log.tail_copy`, and what records mean to
the caller's `apply`.

A process that dies leaves bytes in the page cache that the medium may never have seen, and after a
failed sync a second one proves nothing. So a record counts as durable only where the log itself
says so: below the mark, or below a synced LSN, which a process writes once its sync has returned.
What lies behind the largest of these is the unproved tail: at most the group written last.

Invariants: segments are read in order, each starting where the one before it ended; the head of a
segment says where that is, and older bytes at or beyond that place are no part of the log; a record
is applied once it is proved, or at the place of its copy; nothing is cut before the copy is
durable; a crash at any point changes nothing that was vouched for.
Source: protocol rules 2.4 and 2.5; storage design, "One log".
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bookie.errors import FormatError
from bookie.files.disk import Disk, File
from bookie.log import records, replay
from bookie.log.records import Record, RecordKind
from bookie.log.replay import Damage
from bookie.log.segments import DIRECTORY, UNFINISHED_SUFFIX, Segment, Segments, parse_name
from bookie.log.tail_copy import copy_tail


@dataclass(slots=True)
class ReplayOutcome:
    """What replay found besides the records."""

    end_lsn: int
    corrupt: list[tuple[int, str]] = field(default_factory=list)
    """Where durable bytes are missing or damaged, and what."""
    may_have_lost_fences: bool = False
    """What is missing may have held fences and other control records, not only entries."""
    record_count: int = 0
    """Records that were applied, besides heads and footers."""
    copied_bytes: int = 0
    """Bytes of the unproved tail that were copied into a new segment."""
    torn_bytes: int = 0
    """Bytes cut off that were no whole records."""

    def describe_loss(self) -> str:
        """Say what was lost, for an operator."""
        if not self.corrupt:
            return "stored data was lost before this start; an earlier log says what"
        lsn, what = self.corrupt[0]
        where = f"segment {records.segment_of(lsn):08x}, offset {records.offset_of(lsn)}"
        more = f", and {len(self.corrupt) - 1} places more" if len(self.corrupt) > 1 else ""
        return f"part of the log was lost: {what} ({where}{more})"


async def find_segments(disk: Disk) -> Segments:
    """List the segment files with their sizes and heads, and make their names durable. Raises
    FormatError for one of a newer release.
    """
    segments = Segments(disk)
    names = await disk.list_names(DIRECTORY)
    for name in names:
        if name.endswith(UNFINISHED_SUFFIX):
            await disk.unlink(f"{DIRECTORY}/{name}")  # no index names what is not finished
            continue
        parsed = parse_name(name)
        if parsed is None:
            continue
        number, is_cleaned = parsed
        file = await disk.open(f"{DIRECTORY}/{name}")
        try:
            head = await file.read(0, replay.HEAD_RECORD_BYTES)
            version = records.newer_version(head)
            if version is not None:
                raise FormatError(
                    name, f"it has format version {version}, written by a newer release"
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
    """Replays the log segments from the mark on. `prepare` is awaited with records before they are
    applied, and `after_apply` afterwards, with the LSN below which everything was applied.
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
        """Grows while `run` runs."""
        self._disk = disk
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
        """Whole records that nothing proves so far, in order."""

    async def run(self) -> ReplayOutcome:
        """Do both steps."""
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
        """Make the unproved tail durable and apply it, cut what is no part of the log, and report.
        Raises DiskFullError when there is no room for the copy of the tail: nothing was changed,
        and the call may be repeated.
        """
        await self._settle_tail()
        await self._cut_all()
        return self.outcome

    async def _replay_segment(
        self, segment: Segment, start: int, end: int, later: list[tuple[Segment, int]]
    ) -> bool:
        """Return whether the log ends in this segment, by a torn tail."""
        if end == 0 < segment.size:
            return False  # a later segment took the place of all of it
        number = segment.number
        file = await self._disk.open(segment.name)
        try:
            if file.size < start:
                self._note_missing(records.lsn_of(number, file.size), "bytes are missing")
                return False
            reader = replay.SegmentReader(file, number, start, end)
            while (part := await reader.next()) is not None:
                if isinstance(part, Damage):
                    if await self._ends_the_log(file, part, end, later):
                        self._is_torn = True
                        return True
                    await self._note_corruption(segment, part, end)
                else:
                    await self._take(part)
        finally:
            await file.close()
        return False

    async def _take(self, found: list[Record]) -> None:
        """Take note of records in the order of the log, and apply what is proved by now."""
        outcome = self.outcome
        for record in found:
            header = record.header
            if header.kind is RecordKind.HEAD:
                predecessor_end, _ = records.decode_head(record.body)
                if predecessor_end != outcome.end_lsn and predecessor_end > self._mark_lsn:
                    self._note_missing(outcome.end_lsn, f"the log goes on at {predecessor_end}")
            outcome.end_lsn = header.lsn + header.size
        self._proved_lsn = max(self._proved_lsn, found[-1].header.synced_lsn)
        self._waiting += found
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

    async def _apply_all(self, found: list[Record]) -> None:
        kinds = (RecordKind.HEAD, RecordKind.FOOTER)
        if self._prepare is not None:
            await self._prepare(found)
        for record in found:
            self._apply(record)
        self.outcome.record_count += sum([record.header.kind not in kinds for record in found])

    def _note_missing(self, lsn: int, what: str) -> None:
        self.outcome.corrupt.append((lsn, what))
        self.outcome.may_have_lost_fences = True

    async def _note_corruption(self, segment: Segment, damage: Damage, end: int) -> None:
        outcome = self.outcome
        next_lsn = damage.next_lsn or records.lsn_of(segment.number, min(segment.size, end))
        await self._apply_proved()
        outcome.end_lsn = next_lsn
        if damage.kind is RecordKind.FOOTER:
            return  # it says nothing that the records do not say
        segment.is_damaged = True
        outcome.corrupt.append((damage.lsn, "a record is damaged"))
        if damage.kind is not RecordKind.ADDS:
            outcome.may_have_lost_fences = True

    async def _ends_the_log(
        self, file: File, damage: Damage, end: int, later: list[tuple[Segment, int]]
    ) -> bool:
        """Tell a torn tail from corruption: by whether anything that follows was written after a
        sync beyond the damage.
        """
        if damage.lsn < self._proved_lsn:
            return False
        synced_lsn = 0
        if damage.next_lsn is not None:
            number, start = records.segment_of(damage.lsn), records.offset_of(damage.next_lsn)
            synced_lsn = await replay.largest_synced_lsn(file, number, start, end)
        for other, other_end in later:
            other_file = await self._disk.open(other.name)
            try:
                found = await replay.largest_synced_lsn(other_file, other.number, 0, other_end)
            finally:
                await other_file.close()
            synced_lsn = max(synced_lsn, found)
        self._proved_lsn = max(self._proved_lsn, synced_lsn)
        return damage.lsn >= synced_lsn

    async def _settle_tail(self) -> None:
        """Copy what is left unproved into a new segment, and apply it from there."""
        outcome, waiting = self.outcome, self._waiting
        if outcome.end_lsn <= self._proved_lsn and not self._is_torn:
            return
        tail = [r for r in waiting if r.header.kind not in (RecordKind.HEAD, RecordKind.FOOTER)]
        if not tail and self._proved_lsn == self._mark_lsn:
            outcome.end_lsn = self._mark_lsn
            return
        # Also without any records: what is cut may be all that proves what lies before it.
        copy, copied = await copy_tail(self._disk, self._segments, self._proved_lsn, tail)
        outcome.copied_bytes = sum(record.header.size for record in tail)
        outcome.end_lsn = records.lsn_of(copy.number, copy.size)
        await self._apply_all(copied)

    async def _cut_all(self) -> None:
        """Cut from the segments what is no part of the log, and remove those with nothing left."""
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
    """Return up to which offset each segment is part of the log: to where the heads of later ones
    say that it ended; all of it when they say nothing.
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
