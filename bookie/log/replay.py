"""Decoding of log segments into records, detection of damage, and the list of a segment's adds
records: from its footer, or by scanning a segment without one.

Leaves the meaning of records to `bookie.storage.bookie_storage`.

Invariants: damage at or above the largest synced LSN in the log is a torn tail (unsynced pages
reach the disk in any order); damage below it is corruption, after which replay continues with the
next complete record.
Source: protocol rule 2.4; storage design, "One log", "Index" and "Cleaning"; reliability design,
D1-D4, D14.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from bookie.errors import DamagedRecordError, DiskFailedError
from bookie.files.disk import File
from bookie.log import records
from bookie.log.records import (
    FOOTER_RUN_BYTES,
    RECORD_HEADER_BYTES,
    FooterRun,
    Record,
    RecordHeader,
    RecordKind,
)
from bookie.log.segments import ReadableFile, Segment, Segments
from bookie.wire.batch import Buffer, is_intact

CHUNK_BYTES: Final = 256 * 1024
"""Bytes read and checked at once: with tiny records, thousands of them in one callback of the
loop.
"""
SEARCH_BYTES: Final = 64 * 1024
"""Bytes searched at once for the next record after damage: up to every third byte may look like
the start of a header.
"""
HEAD_RECORD_BYTES: Final = RECORD_HEADER_BYTES + len(records.encode_head(0, 0))


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not a record: from `lsn` to `next_lsn`, or to the end of the file if that is
    None.
    """

    lsn: int
    next_lsn: int | None
    kind: RecordKind | None
    """Kind of the lost record, if exactly one record was lost and its header is readable."""


def scan(data: memoryview, base_lsn: int) -> tuple[list[Record], int, RecordHeader | None]:
    """Return the complete, valid records at the start of `data`, their size in bytes, and the
    header of the record that stopped the scan: None when no header is readable there.
    """
    parsed: list[Record] = []
    offset = 0
    while (header := records.decode_header(data, offset, base_lsn + offset)) is not None:
        end = offset + header.size
        if end > len(data):
            break
        body = data[offset + RECORD_HEADER_BYTES : end]
        if not is_whole(header, body):
            break
        parsed.append(Record(header, body))
        offset = end
    return parsed, offset, header


def is_whole(header: RecordHeader, body: Buffer) -> bool:
    """Return whether a body matches the CRC that covers it and has a size that its kind allows."""
    if header.kind is not RecordKind.ADDS:
        return crc32c(body) == header.body_crc and records.may_be_body(header.kind, len(body))
    return is_intact(body)


def predecessor_end(data: Buffer, segment: int) -> int | None:
    """Return the end of the log before a segment, from the first `HEAD_RECORD_BYTES` of it; None
    when there is no head, or it does not name a place before its segment.
    """
    parsed, _, _ = scan(memoryview(data), records.lsn_of(segment, 0))
    if not parsed or parsed[0].header.kind is not RecordKind.HEAD:
        return None
    end_lsn, flags = records.decode_head(parsed[0].body)
    if flags & records.HEAD_IS_CLEANED or end_lsn >= records.lsn_of(segment, 0):
        return None
    return end_lsn


class SegmentReader:
    """Reads a segment from an offset to the end of the file, or to `end`, in chunks."""

    def __init__(
        self, file: ReadableFile, segment: int, start: int, end: int | None = None
    ) -> None:
        self._file = file
        self._segment = segment
        self._offset = start
        self._end = file.size if end is None else min(file.size, end)
        self._wanted = CHUNK_BYTES

    async def next(self) -> list[Record] | Damage | None:
        """Return the next records, the next damage, or None at the end of the file."""
        file, segment, file_end = self._file, self._segment, self._end
        while self._offset < file_end:
            room = file_end - self._offset
            data = memoryview(await file.read(self._offset, min(self._wanted, room)))
            base_lsn = records.lsn_of(segment, self._offset)
            parsed, taken, stopper = scan(data, base_lsn)
            if parsed:
                self._offset, self._wanted = self._offset + taken, CHUNK_BYTES
                return parsed
            if stopper is not None and stopper.size > len(data) and len(data) == self._wanted:
                self._wanted = stopper.size
                continue
            resumed = await _find_next(file, segment, self._offset, stopper)
            if resumed is not None and resumed >= file_end:
                resumed = None
            damaged, self._offset = self._offset, file_end if resumed is None else resumed
            self._wanted = CHUNK_BYTES
            next_lsn = None if resumed is None else records.lsn_of(segment, resumed)
            lost = None
            if stopper is not None and self._offset == damaged + stopper.size:
                lost = stopper.kind
            return Damage(base_lsn, next_lsn, lost)
        return None


async def _find_next(
    file: ReadableFile, segment: int, damaged: int, stopper: RecordHeader | None
) -> int | None:
    """Return the offset of the next record header after damage. A valid header with a damaged body
    gives the offset directly.
    """
    if stopper is not None:
        after = damaged + stopper.size
        data = await file.read(after, RECORD_HEADER_BYTES)
        if records.decode_header(data, 0, records.lsn_of(segment, after)) is not None:
            return after
    offset = damaged + 1
    while offset < file.size:
        data = await file.read(offset, SEARCH_BYTES)
        position = records.find_header(data, 0, records.lsn_of(segment, offset))
        if position is not None:
            return offset + position
        if len(data) < RECORD_HEADER_BYTES:
            return None
        offset += len(data) - RECORD_HEADER_BYTES + 1  # a header may cross two chunks
    return None


async def largest_synced_lsn(file: ReadableFile, segment: int, start: int, end: int) -> int:
    """Return the largest synced LSN in the complete records from `start` to `end`; 0 without
    any.
    """
    largest = 0
    reader = SegmentReader(file, segment, start, end)
    while (part := await reader.next()) is not None:
        if not isinstance(part, Damage):
            largest = max(largest, part[-1].header.synced_lsn)
    return largest


FOOTER_OFFSET_BYTES: Final = 4
SLICE_RUNS: Final = 8_192
SAMPLED_ONE_IN: Final = 64
"""The places to cut a list come from a sample of one record in SAMPLED_ONE_IN."""


class ListedRuns:
    """Adds records of one segment in a compact list, iterated in slices with pauses: a segment may
    hold a million records, and the event loop runs other callbacks between two slices.
    """

    def __init__(self, packed: Buffer) -> None:
        self._packed = memoryview(packed)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._packed) // FOOTER_RUN_BYTES

    async def slices(self, *, newest_first: bool = False) -> AsyncIterator[list[FooterRun]]:
        """Yield the records slice by slice, in the order of the file or in reverse order."""
        starts = range(0, len(self), SLICE_RUNS)
        for start in reversed(starts) if newest_first else starts:
            end = (start + SLICE_RUNS) * FOOTER_RUN_BYTES
            runs = records.decode_runs(self._packed[start * FOOTER_RUN_BYTES : end])
            yield runs[::-1] if newest_first else runs
            await asyncio.sleep(0)

    async def parts(self, records_max: int) -> list["ListedRuns"]:
        """Split the list into lists of about `records_max` records, by ledger and first entry id,
        ascending. Every record is in exactly one of them.
        """
        if len(self) <= records_max:
            return [self]
        sample: list[tuple[int, int]] = []
        async for runs in self.slices():
            sample += [(run.ledger_id, run.first_entry_id) for run in runs[::SAMPLED_ONE_IN]]
        sample.sort()
        step = max(1, records_max // SAMPLED_ONE_IN)
        bounds = sample[step::step]
        parts = [bytearray() for _ in range(len(bounds) + 1)]
        place = 0
        async for runs in self.slices():
            for _, ledger_id, first, _, _ in runs:
                part = parts[bisect_right(bounds, (ledger_id, first))]
                part += self._packed[place : place + FOOTER_RUN_BYTES]
                place += FOOTER_RUN_BYTES
        return [ListedRuns(part) for part in parts]

    async def mean_bytes(self) -> int:
        """Return the mean size of the segment's runs, with adjacent records of one ledger
        joined.
        """
        count = total = 0
        next_ledger_id = next_entry_id = next_offset = -1
        async for runs in self.slices():
            for entry_count, ledger_id, first, offset, size in runs:
                if first != next_entry_id or offset != next_offset or ledger_id != next_ledger_id:
                    count += 1
                total += size
                next_ledger_id = ledger_id
                next_entry_id, next_offset = first + entry_count, offset + size
        return total // count if count else 0

    async def spans(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and the highest entry id of each ledger in the segment."""
        spans: dict[int, tuple[int, int]] = {}
        async for runs in self.slices():
            for entry_count, ledger_id, first, _, _ in runs:
                last = first + entry_count - 1
                low, high = spans.get(ledger_id, (first, last))
                spans[ledger_id] = (
                    first if first < low else low,
                    last if last > high else high,
                )
        return spans


async def list_records(
    segments: Segments, segment: Segment, *, skips_damage: bool = False
) -> ListedRuns | None:
    """Return a segment's adds records in the order of the file. If the segment is damaged, mark it
    and return None; `skips_damage`: return the records that are left, unless bytes cannot be read.
    """
    try:
        file = await segments.open_file(segment.number)
    except DamagedRecordError:
        return None
    try:
        listed = await _read_footer(segment, file)
        if listed is not None:
            return listed
        return await _walk(segment, file, skips_damage=skips_damage)
    except DiskFailedError:
        segment.is_damaged = True
        return None
    finally:
        await file.close()


async def count_records(segments: Segments, segment: Segment) -> int:
    """Return how many adds records a segment's footer lists, by its size; 0 without a footer."""
    try:
        file = await segments.open_file(segment.number)
    except DamagedRecordError:
        return 0
    try:
        tail = await file.read(max(0, segment.size - FOOTER_OFFSET_BYTES), FOOTER_OFFSET_BYTES)
    except DiskFailedError:
        return 0
    finally:
        await file.close()
    offset = records.footer_offset(tail) if len(tail) == FOOTER_OFFSET_BYTES else 0
    if not 0 < offset < segment.size:
        return 0
    listed = segment.size - offset - records.RECORD_HEADER_BYTES - FOOTER_OFFSET_BYTES
    return max(0, listed // records.FOOTER_RUN_BYTES)


async def _read_footer(segment: Segment, file: File) -> ListedRuns | None:
    tail = await file.read(max(0, segment.size - FOOTER_OFFSET_BYTES), FOOTER_OFFSET_BYTES)
    offset = records.footer_offset(tail) if len(tail) == FOOTER_OFFSET_BYTES else 0
    if not 0 < offset < segment.size:
        return None
    data = memoryview(await file.read(offset, segment.size - offset))
    header = records.decode_header(data, 0, records.lsn_of(segment.number, offset))
    if header is None or header.kind is not RecordKind.FOOTER or header.size != len(data):
        return None
    body = data[records.RECORD_HEADER_BYTES :]
    return ListedRuns(records.packed_runs(body)) if is_whole(header, body) else None


async def _walk(segment: Segment, file: File, *, skips_damage: bool) -> ListedRuns | None:
    end = segment.size  # in a segment that is being written, bytes after it are not durable
    reader, listed = SegmentReader(file, segment.number, 0), bytearray()
    while (part := await reader.next()) is not None:
        if isinstance(part, Damage):
            if records.offset_of(part.lsn) >= end:
                return ListedRuns(listed)
            if part.kind is RecordKind.FOOTER:
                continue
            segment.is_damaged = True
            if not skips_damage:
                return None
            continue
        for record in part:
            offset = records.offset_of(record.header.lsn)
            if offset >= end:
                return ListedRuns(listed)
            if record.header.kind is RecordKind.ADDS:
                listed += records.footer_run(record.body, offset, record.header.size)
    return ListedRuns(listed)
