"""The records of one segment file, with their places and checksums.

Leaves the format to `bookie.log.records`, and following damage to `bookie.log.replay`.

Invariant: memory is bounded by one piece of the file.
Source: protocol rule 2.4; storage design, "One log".
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from bookie.log import records
from bookie.log.records import Record, RecordKind
from bookie.log.replay import Damage, SegmentReader
from bookie.log.start_file import ReadableFile
from bookie.wire.batch import parse_header

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
