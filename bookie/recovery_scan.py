"""Finds out at start what the log holds from the checkpoint's mark on, and cuts its torn tail.

Leaves the bytes to `bookie.replay`, and what records mean to the caller's `apply`.

Invariants: segments are read in order, each starting where the one before it ended; the torn tail
is cut and synced before anything is served; a second crash at any point changes nothing that is
durable.
Source: protocol rule 2.4; storage design, "One log".
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from bookie import records, replay
from bookie.disk import Disk, File
from bookie.errors import FormatError
from bookie.records import Record, RecordKind
from bookie.replay import Damage
from bookie.segments import DIRECTORY, UNFINISHED_SUFFIX, Segment, Segments, parse_name


@dataclass(slots=True)
class ReplayOutcome:
    """What replay found besides the records."""

    end_lsn: int
    corrupt: list[tuple[int, str]] = field(default_factory=list)
    """Where durable bytes are missing or damaged, and what."""
    may_have_lost_fences: bool = False
    """What is missing may have held fences and other control records, not only entries."""
    record_count: int = 0
    torn_bytes: int = 0


async def find_segments(disk: Disk) -> Segments:
    """List the segment files with their sizes. Raises FormatError for one of a newer release."""
    segments = Segments(disk)
    for name in await disk.list_names(DIRECTORY):
        if name.endswith(UNFINISHED_SUFFIX):
            await disk.unlink(f"{DIRECTORY}/{name}")  # no index names what is not finished
            continue
        parsed = parse_name(name)
        if parsed is None:
            continue
        number, is_cleaned = parsed
        file = await disk.open(f"{DIRECTORY}/{name}")
        try:
            version = records.newer_version(await file.read(0, records.RECORD_HEADER_BYTES))
            if version is not None:
                raise FormatError(
                    name, f"it has format version {version}, written by a newer release"
                )
            segments.add(Segment(number, is_cleaned=is_cleaned, size=file.size))
        finally:
            await file.close()
    return segments


class LogReplay:
    """Replays the log segments from the mark on."""

    def __init__(
        self, disk: Disk, segments: Segments, mark_lsn: int, apply: Callable[[Record], None]
    ) -> None:
        self._disk = disk
        self._segments = segments
        self._apply = apply
        self._mark_lsn = mark_lsn
        self._synced_lsn = mark_lsn
        self._outcome = ReplayOutcome(end_lsn=mark_lsn)

    async def run(self) -> ReplayOutcome:
        """Apply every durable record at or above the mark, cut the torn tail, and report."""
        mark_segment, outcome = records.segment_of(self._mark_lsn), self._outcome
        numbers = [
            number
            for number, segment in sorted(self._segments.by_number.items())
            if number >= mark_segment and not segment.is_cleaned
        ]
        if mark_segment and mark_segment not in numbers:
            self._note_missing(self._mark_lsn, "the segment that the checkpoint names is missing")
        for place, number in enumerate(numbers):
            start = records.offset_of(self._mark_lsn) if number == mark_segment else 0
            if await self._replay_segment(number, start, numbers[place + 1 :]):
                await self._drop(numbers[place + 1 :])
                break
        empty = [number for number in numbers if number in self._segments.by_number]
        await self._drop([n for n in empty if not self._segments.by_number[n].size])
        return outcome

    async def _replay_segment(self, number: int, start: int, later: list[int]) -> bool:
        """Return whether the log ends in this segment, by a torn tail."""
        segment = self._segments.by_number[number]
        file = await self._disk.open(segment.name)
        try:
            if file.size < start:
                self._note_missing(records.lsn_of(number, file.size), "bytes are missing")
                return False
            reader = replay.SegmentReader(file, number, start)
            while (part := await reader.next()) is not None:
                if isinstance(part, Damage):
                    if await self._is_torn(file, number, part, later):
                        await self._cut(segment, file, records.offset_of(part.lsn))
                        return True
                    self._note_corruption(segment, part)
                else:
                    self._apply_all(part)
        finally:
            await file.close()
        return False

    def _apply_all(self, found: list[Record]) -> None:
        outcome = self._outcome
        for record in found:
            header = record.header
            if header.kind is RecordKind.HEAD:
                predecessor_end, _ = records.decode_head(record.body)
                if predecessor_end != outcome.end_lsn and predecessor_end > self._mark_lsn:
                    self._note_missing(outcome.end_lsn, f"the log goes on at {predecessor_end}")
            outcome.end_lsn = header.lsn + header.size
            self._apply(record)
        self._synced_lsn = max(self._synced_lsn, found[-1].header.synced_lsn)
        outcome.record_count += len(found)

    def _note_missing(self, lsn: int, what: str) -> None:
        self._outcome.corrupt.append((lsn, what))
        self._outcome.may_have_lost_fences = True

    def _note_corruption(self, segment: Segment, damage: Damage) -> None:
        next_lsn = damage.next_lsn or records.lsn_of(segment.number, segment.size)
        self._outcome.end_lsn = next_lsn
        if damage.kind is RecordKind.FOOTER:
            return  # it says nothing that the records do not say
        segment.is_damaged = True
        self._outcome.corrupt.append((damage.lsn, "a record is damaged"))
        if damage.kind is not RecordKind.ADDS:
            self._outcome.may_have_lost_fences = True

    async def _is_torn(self, file: File, number: int, damage: Damage, later: list[int]) -> bool:
        """Tell a torn tail from corruption: by whether anything that follows was written after a
        sync beyond the damage.
        """
        if damage.lsn < self._synced_lsn:
            return False
        synced_lsn = 0
        if damage.next_lsn is not None:
            start = records.offset_of(damage.next_lsn)
            synced_lsn = await replay.largest_synced_lsn(file, number, start)
        for other in later:
            other_file = await self._disk.open(self._segments.by_number[other].name)
            try:
                synced_lsn = max(synced_lsn, await replay.largest_synced_lsn(other_file, other, 0))
            finally:
                await other_file.close()
        return damage.lsn >= synced_lsn

    async def _cut(self, segment: Segment, file: File, offset: int) -> None:
        self._outcome.torn_bytes += segment.size - offset
        await file.truncate(offset)
        segment.size = offset

    async def _drop(self, numbers: list[int]) -> None:
        """Remove segments that hold nothing durable."""
        for number in numbers:
            await self._segments.remove(number)
        if numbers:
            await self._disk.sync_directory(DIRECTORY)
