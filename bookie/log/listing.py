"""Listing of a segment's adds records: from its footer, or by scanning a segment without one.

Leaves the use of the list to `bookie.storage.cleaner` and `bookie.storage.rebuild`.

Source: storage design, "One log" and "Index".
"""

from typing import Final

from bookie.errors import DamagedRecordError, DiskFailedError
from bookie.files.disk import File
from bookie.log import records, replay
from bookie.log.listed_runs import ListedRuns
from bookie.log.records import RecordKind
from bookie.log.segments import Segment, Segments

FOOTER_OFFSET_BYTES: Final = 4


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
    return ListedRuns(records.packed_runs(body)) if replay.is_whole(header, body) else None


async def _walk(segment: Segment, file: File, *, skips_damage: bool) -> ListedRuns | None:
    end = segment.size  # in a segment that is being written, bytes after it are not durable
    reader, listed = replay.SegmentReader(file, segment.number, 0), bytearray()
    while (part := await reader.next()) is not None:
        if isinstance(part, replay.Damage):
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
