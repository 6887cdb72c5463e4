"""Copy of the log's unproved tail into a new segment.

Leaves finding the tail, and removing it from the old segment afterwards, to
`bookie.log.recovery_scan`.

Invariants, in this order: the copy is written under an unfinished name and synced; it gets its
name; the directory is synced. The copy's head names the proved end of the log. So once the name
exists, bytes at or beyond that place in older segments are no part of the log.
Source: protocol rule 2.5.
"""

from collections.abc import Sequence

from bookie.errors import DiskFullError
from bookie.files.disk import Buffer, Disk
from bookie.log import records
from bookie.log.records import ADDS, RECORD_HEADER_BYTES, Record, RecordHeader, RecordKind
from bookie.log.segments import DIRECTORY, UNFINISHED_SUFFIX, Segment, Segments


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
