"""Decoding of log segments into records, and detection of damage.

Leaves the meaning of records to `bookie.storage.bookie_storage`.

Invariants: damage at or above the largest synced LSN in the log is a torn tail (unsynced pages
reach the disk in any order); damage below it is corruption, after which replay continues with the
next complete record.
Source: protocol rule 2.4; storage design, "One log"; reliability design, D1-D4, D14.
"""

from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from bookie.log import records
from bookie.log.records import RECORD_HEADER_BYTES, Record, RecordHeader, RecordKind
from bookie.log.segments import ReadableFile
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
    found: list[Record] = []
    offset = 0
    while (header := records.decode_header(data, offset, base_lsn + offset)) is not None:
        end = offset + header.size
        if end > len(data):
            break
        body = data[offset + RECORD_HEADER_BYTES : end]
        if not is_whole(header, body):
            break
        found.append(Record(header, body))
        offset = end
    return found, offset, header


def is_whole(header: RecordHeader, body: Buffer) -> bool:
    """Return whether a body matches the CRC that covers it and has a size that its kind allows."""
    if header.kind is not RecordKind.ADDS:
        return crc32c(body) == header.body_crc and records.may_be_body(header.kind, len(body))
    return is_intact(body)


def predecessor_end(data: Buffer, segment: int) -> int | None:
    """Return the end of the log before a segment, from the first `HEAD_RECORD_BYTES` of it; None
    when there is no head, or it does not name a place before its segment.
    """
    found, _, _ = scan(memoryview(data), records.lsn_of(segment, 0))
    if not found or found[0].header.kind is not RecordKind.HEAD:
        return None
    end_lsn, flags = records.decode_head(found[0].body)
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
            found, taken, stopper = scan(data, base_lsn)
            if found:
                self._offset, self._wanted = self._offset + taken, CHUNK_BYTES
                return found
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
        found = records.find_header(data, 0, records.lsn_of(segment, offset))
        if found is not None:
            return offset + found
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
