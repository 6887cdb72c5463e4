"""Contents of the segment files of a stopped bookie: one row per file, and the records of one file
with their places and checksums.

Leaves the format to `bookie.log.records`, and following damage to `bookie.log.replay`.

Invariant: memory is bounded by one piece of one file, and by the ledgers that one file names.
Source: protocol rule 2.4; storage design, "One log" and "Index".
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bookie.files.disk import Disk, OrderedStore
from bookie.index.stored_runs import bytes_by_segment, scan_runs
from bookie.log import records
from bookie.log.records import Record, RecordKind
from bookie.log.replay import Damage, SegmentReader
from bookie.log.segments import ReadableFile, Segment, StartFiles
from bookie.storage.opening import INDEX_NAME
from bookie.wire.batch import parse_header
from quire.offline.stopped import MAP_BYTES, list_segments

RUNS_PER_VIEW: Final = 2_000


@dataclass(slots=True)
class SegmentReport:
    """One segment file."""

    number: int
    name: str
    is_cleaned: bool
    byte_count: int
    live_bytes: int | None
    """Bytes of the runs that the index's store names; None without an index. Records after the
    checkpoint's mark are not in the store yet."""
    record_count: int = 0
    entry_count: int = 0
    ledger_count: int = 0
    first_lsn: int | None = None
    last_lsn: int | None = None
    has_footer: bool = False
    """Whether the last record is a complete footer."""
    damaged_bytes: int = 0
    """Bytes that are not a record, before the end of what any record of the log names as synced."""
    tail_bytes: int = 0
    """Bytes that are not a record, after everything that is known to be synced: a torn tail."""


async def report_segments(
    disk: Disk, on_read: Callable[[int], None], *, has_index: bool
) -> list[SegmentReport]:
    """Read every segment; return a report of each, ascending. Call `on_read` with each number of
    bytes read. The directory must be locked. Raises DiskFailedError.
    """
    segments = await list_segments(disk)
    live: dict[int, int] | None = None
    if has_index:
        store = await disk.open_index(INDEX_NAME, MAP_BYTES)
        try:
            live = await count_live_bytes(store)
        finally:
            await store.close()
    reports, damages, synced_lsn = dict[int, SegmentReport](), list[tuple[Damage, int]](), 0
    for number, segment in sorted(segments.by_number.items()):
        live_bytes = None if live is None else live.get(number, 0)
        reading = _Reading(segment, live_bytes)
        await reading.run(disk)
        reports[number] = reading.report
        damages += reading.damages
        synced_lsn = max(synced_lsn, reading.synced_lsn)
        on_read(segment.size)
    for damage, size in damages:
        report = reports[records.segment_of(damage.lsn)]
        if damage.lsn < synced_lsn:
            report.damaged_bytes += size
        else:
            report.tail_bytes += size
    return list(reports.values())


async def count_live_bytes(store: OrderedStore) -> dict[int, int]:
    """Sum the bytes of all runs in an index by segment, without damaged runs."""
    sizes: dict[int, int] = {}
    after = (-1, -1)
    while page := await store.view(partial(scan_runs, after=after, limit=RUNS_PER_VIEW)):
        runs = [stored.run for stored in page if stored.run is not None]
        for number, size in bytes_by_segment(runs).items():
            sizes[number] = sizes.get(number, 0) + size
        after = (page[-1].ledger_id, page[-1].last)
    return sizes


class _Reading:
    """Reads one segment."""

    def __init__(self, segment: Segment, live_bytes: int | None) -> None:
        self.report = SegmentReport(
            segment.number, segment.name, segment.is_cleaned, segment.size, live_bytes
        )
        self.damages: list[tuple[Damage, int]] = []
        self.synced_lsn = 0

    async def run(self, disk: Disk) -> None:
        report, ledgers = self.report, dict[int, None]()
        file = await StartFiles(disk).open(report.name)
        try:
            reader = SegmentReader(file, report.number, 0)
            while (part := await reader.next()) is not None:
                if isinstance(part, Damage):
                    end = part.next_lsn or records.lsn_of(report.number, file.size)
                    self.damages.append((part, end - part.lsn))
                    report.has_footer = False
                else:
                    self._count(part, ledgers)
        finally:
            await file.close()
        report.ledger_count = len(ledgers)

    def _count(self, parsed: list[Record], ledgers: dict[int, None]) -> None:
        report = self.report
        if report.first_lsn is None:
            report.first_lsn = parsed[0].header.lsn
        last = parsed[-1].header
        report.last_lsn, report.has_footer = last.lsn, last.kind is RecordKind.FOOTER
        self.synced_lsn = max(self.synced_lsn, last.synced_lsn)
        report.record_count += len(parsed)
        for record in parsed:
            kind = record.header.kind
            if kind is RecordKind.ADDS:
                batch = parse_header(record.body)
                report.entry_count += batch.count
                ledgers[batch.ledger_id] = None
            elif kind not in (RecordKind.HEAD, RecordKind.FOOTER):
                ledgers[records.decode_ledger(record.body)] = None


DAMAGE = "damage"


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One record, or damaged bytes. Fields that a kind does not have are None."""

    offset: int
    lsn: int
    size: int
    kind: str
    """Name of the record's kind; `damage` for bytes that are not a complete record."""
    crc: str
    """`valid` or `damaged`."""
    synced_lsn: int | None = None
    ledger_id: int | None = None
    first_entry_id: int | None = None
    last_entry_id: int | None = None
    lac: int | None = None
    predecessor_end_lsn: int | None = None
    """Of a segment's first record: end of the previous log segment."""
    run_count: int | None = None
    """Of a footer: number of adds records that it lists."""
    damaged_kind: str | None = None
    """Of damage: kind of the lost record, if its header can still be read."""


async def dump_records(
    file: ReadableFile, number: int, *, first_offset: int = 0, ledger_id: int | None = None
) -> AsyncIterator[DumpedRecord]:
    """Yield what replay finds from an offset on; with a ledger id, its records and all damage."""
    reader = SegmentReader(file, number, first_offset)
    while (part := await reader.next()) is not None:
        if isinstance(part, Damage):
            yield _describe_damage(part, records.lsn_of(number, file.size))
            continue
        for record in part:
            described = _describe(record)
            if ledger_id is None or described.ledger_id == ledger_id:
                yield described


def _describe_damage(damage: Damage, end_lsn: int) -> DumpedRecord:
    kind = None if damage.kind is None else damage.kind.name.lower()
    size = (damage.next_lsn or end_lsn) - damage.lsn
    offset = records.offset_of(damage.lsn)
    return DumpedRecord(offset, damage.lsn, size, DAMAGE, "damaged", damaged_kind=kind)


def _describe(record: Record) -> DumpedRecord:
    header, body = record.header, record.body
    name, offset = header.kind.name.lower(), records.offset_of(header.lsn)
    plain = DumpedRecord(offset, header.lsn, header.size, name, "valid", header.synced_lsn)
    match header.kind:
        case RecordKind.ADDS:
            batch = parse_header(body)
            return replace(
                plain,
                ledger_id=batch.ledger_id,
                first_entry_id=batch.first_entry_id,
                last_entry_id=batch.last_entry_id,
                lac=batch.lac,
            )
        case RecordKind.HEAD:
            return replace(plain, predecessor_end_lsn=records.decode_head(body)[0])
        case RecordKind.FOOTER:
            return replace(plain, run_count=len(body) // records.FOOTER_RUN_BYTES)
        case RecordKind.EXPLICIT_LAC:
            ledger_id, lac = records.decode_ledger(body), records.decode_lac(body)
            return replace(plain, ledger_id=ledger_id, lac=lac)
        case _:
            return replace(plain, ledger_id=records.decode_ledger(body))
