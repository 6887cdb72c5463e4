"""List of a segment's adds records: from its footer, or by scanning a segment without one.

Leaves the use of the list to `bookie.storage.cleaner` and `bookie.storage.rebuild`.

Source: storage design, "One log", "Index" and "Cleaning".
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Final

from bookie.errors import DamagedRecordError, DiskFailedError
from bookie.files.disk import File
from bookie.log import records, replay
from bookie.log.records import FOOTER_RUN_BYTES, FooterRun, RecordKind
from bookie.log.segments import Segment, Segments
from bookie.wire.batch import Buffer

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
            found = records.decode_runs(self._packed[start * FOOTER_RUN_BYTES : end])
            yield found[::-1] if newest_first else found
            await asyncio.sleep(0)

    async def parts(self, records_max: int) -> list["ListedRuns"]:
        """Split the list into lists of about `records_max` records, by ledger and first entry id,
        ascending. Every record is in exactly one of them.
        """
        if len(self) <= records_max:
            return [self]
        sample: list[tuple[int, int]] = []
        async for found in self.slices():
            sample += [(run.ledger_id, run.first_entry_id) for run in found[::SAMPLED_ONE_IN]]
        sample.sort()
        step = max(1, records_max // SAMPLED_ONE_IN)
        bounds = sample[step::step]
        parts = [bytearray() for _ in range(len(bounds) + 1)]
        place = 0
        async for found in self.slices():
            for _, ledger_id, first, _, _ in found:
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
        async for found in self.slices():
            for entry_count, ledger_id, first, offset, size in found:
                if first != next_entry_id or offset != next_offset or ledger_id != next_ledger_id:
                    count += 1
                total += size
                next_ledger_id = ledger_id
                next_entry_id, next_offset = first + entry_count, offset + size
        return total // count if count else 0

    async def spans(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and the highest entry id of each ledger in the segment."""
        spans: dict[int, tuple[int, int]] = {}
        async for found in self.slices():
            for entry_count, ledger_id, first, _, _ in found:
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
