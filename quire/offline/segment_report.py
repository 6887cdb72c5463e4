"""Contents of each segment file of a stopped bookie, one row per file.

Leaves reading records to `bookie.log.replay`, and single records to `quire.offline.dump`.

Invariant: memory is bounded by one piece of one file, and by the ledgers that one file names.
Source: storage design, "One log" and "Index".
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from bookie.files.disk import Disk
from bookie.files.index_store import OrderedStore
from bookie.index.stored_runs import bytes_by_segment, scan_runs
from bookie.log import records
from bookie.log.records import Record, RecordKind
from bookie.log.replay import Damage, SegmentReader
from bookie.log.segments import Segment
from bookie.log.start_file import StartFiles
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
    found: dict[int, int] = {}
    after = (-1, -1)
    while page := await store.view(partial(scan_runs, after=after, limit=RUNS_PER_VIEW)):
        runs = [stored.run for stored in page if stored.run is not None]
        for number, size in bytes_by_segment(runs).items():
            found[number] = found.get(number, 0) + size
        after = (page[-1].ledger_id, page[-1].last)
    return found


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

    def _count(self, found: list[Record], ledgers: dict[int, None]) -> None:
        report = self.report
        if report.first_lsn is None:
            report.first_lsn = found[0].header.lsn
        last = found[-1].header
        report.last_lsn, report.has_footer = last.lsn, last.kind is RecordKind.FOOTER
        self.synced_lsn = max(self.synced_lsn, last.synced_lsn)
        report.record_count += len(found)
        for record in found:
            kind = record.header.kind
            if kind is RecordKind.ADDS:
                batch = parse_header(record.body)
                report.entry_count += batch.count
                ledgers[batch.ledger_id] = None
            elif kind not in (RecordKind.HEAD, RecordKind.FOOTER):
                ledgers[records.decode_ledger(record.body)] = None
