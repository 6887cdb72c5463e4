"""Codec of the log's records, and of the bodies that are not batches.

Leaves batches to `bookie.wire.batch`, the order of records to `bookie.log.log` and damage to
`bookie.log.replay`.

Format of a record's header, little-endian; the body follows it:

| offset | size | field |
|---|---|---|
| 0 | 2, 1, 1 | magic, version, kind |
| 4 | 4 | body bytes |
| 8 | 8 | LSN: segment number * 2^32 + the record's offset in its file |
| 16 | 8 | synced LSN: everything below it was durable when this was written |
| 24 | 4 | CRC32C of the body; 0 for adds, which carry their own CRC |
| 28 | 4 | CRC32C of bytes 0..27 |

Invariant: a record is accepted only at the place that its LSN names, so bytes from an earlier use
of a block are never read.
Source: storage design, "One log".
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from bookie.wire.batch import Buffer
from bookie.wire.messages import MASTER_KEY_BYTES
from metadata.ids import EntryId, LedgerId

RECORD_MAGIC: Final = 0x5152
RECORD_VERSION: Final = 1
RECORD_HEADER_BYTES: Final = 32
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
SEGMENT_SHIFT: Final = 32
OFFSET_MAX: Final = 2**SEGMENT_SHIFT - 1

_CHECKED = struct.Struct("<HBBIQQI")
_HEADER = struct.Struct("<HBBIQQII")
_CRC = struct.Struct("<I")
_PEEK = struct.Struct("<4sIQ16x4xIQQ")
_MAGIC_BYTES: Final = struct.pack("<HB", RECORD_MAGIC, RECORD_VERSION)
ADDS_PREFIX: Final = struct.pack("<HBB", RECORD_MAGIC, RECORD_VERSION, 1)
"""First bytes of every adds record."""
PEEK_BYTES: Final = _PEEK.size
_LEDGER = struct.Struct("<Q")
_LEDGER_LAC = struct.Struct("<Qq")
_HEAD = struct.Struct("<QII")
_PLACE = struct.Struct("<II")
_FOOTER_RUN = struct.Struct("<IQQII")
FOOTER_RUN_BYTES: Final = _FOOTER_RUN.size
HEAD_IS_CLEANED: Final = 1
assert _HEADER.size == RECORD_HEADER_BYTES


class RecordKind(IntEnum):
    """Kind of a record, which says what its body is."""

    ADDS = 1
    """A batch, unchanged from the wire."""
    FENCE = 2
    """Ledger id u64."""
    EXPLICIT_LAC = 3
    """Ledger id u64, LAC i64."""
    TOMBSTONE = 4
    """Ledger id u64."""
    MASTER_KEY = 5
    """Ledger id u64, the key."""
    HEAD = 6
    """First in every segment: end LSN of the previous log segment u64, flags u32 (1 = cleaned),
    reserved u32.
    """
    FOOTER = 7
    """Last in a sealed segment: its runs, then the offset of this record u32, so that it can be
    found from the file's end.
    """
    RELEASED = 8
    """Ledger id u64: the ledger moved away, and its entries before this record are dropped."""


ADDS: Final = int(RecordKind.ADDS)
_CONTROL_BODY_BYTES: Final = {
    RecordKind.FENCE: _LEDGER.size,
    RecordKind.EXPLICIT_LAC: _LEDGER_LAC.size,
    RecordKind.TOMBSTONE: _LEDGER.size,
    RecordKind.MASTER_KEY: _LEDGER.size + MASTER_KEY_BYTES,
    RecordKind.HEAD: _HEAD.size,
    RecordKind.RELEASED: _LEDGER.size,
}
_KINDS: Final = {int(kind): kind for kind in RecordKind}


class RecordHeader(NamedTuple):
    """Fixed part of a record. A tuple, because a replay creates hundreds of thousands of them."""

    kind: RecordKind
    body_bytes: int
    lsn: int
    synced_lsn: int
    body_crc: int

    @property
    def size(self) -> int:
        """Bytes of the record, header included."""
        return RECORD_HEADER_BYTES + self.body_bytes


class Record(NamedTuple):
    """A complete, checked record."""

    header: RecordHeader
    body: memoryview


class FooterRun(NamedTuple):
    """One adds record in a footer's list; `size` is the record's size, header included. A tuple,
    because a footer lists up to a million records.
    """

    count: int  # type: ignore[assignment]  # tuple.count is not used
    ledger_id: LedgerId
    first_entry_id: EntryId
    offset: int
    size: int


def encode_header(kind: int, body: Buffer, lsn: int, synced_lsn: int) -> bytes:
    """Return the 32 header bytes for a body."""
    body_crc = 0 if kind == ADDS else crc32c(body)
    checked = _CHECKED.pack(
        RECORD_MAGIC, RECORD_VERSION, kind, len(body), lsn, synced_lsn, body_crc
    )
    return checked + _CRC.pack(crc32c(checked))


def decode_header(data: Buffer, offset: int, lsn: int) -> RecordHeader | None:
    """Decode the header at `offset`, which must name `lsn` as its place; None when it is not
    valid.
    """
    if len(data) - offset < RECORD_HEADER_BYTES:
        return None
    magic, version, kind, body_bytes, found_lsn, synced_lsn, body_crc, crc = _HEADER.unpack_from(
        data, offset
    )
    if magic != RECORD_MAGIC or version != RECORD_VERSION or found_lsn != lsn:
        return None
    if crc32c(memoryview(data)[offset : offset + _CHECKED.size]) != crc or kind not in _KINDS:
        return None
    if body_bytes > BODY_BYTES_MAX:
        return None
    return RecordHeader(_KINDS[kind], body_bytes, lsn, synced_lsn, body_crc)


def peek_adds(data: Buffer, offset: int) -> tuple[bytes, int, int, int, int, int]:
    """Return fields of an adds record at `offset` without checking them: its first four bytes, body
    bytes, LSN, entry count, ledger id and first entry id. `data` must hold `PEEK_BYTES` there.
    """
    return _PEEK.unpack_from(data, offset)


def newer_version(data: Buffer) -> int | None:
    """Return the version of a segment written by a newer release, else None."""
    if len(data) < RECORD_HEADER_BYTES:
        return None
    magic, version, *_, crc = _HEADER.unpack_from(data)
    if magic != RECORD_MAGIC or version <= RECORD_VERSION:
        return None
    return version if crc32c(memoryview(data)[: _CHECKED.size]) == crc else None


def find_header(data: Buffer, start: int, base_lsn: int) -> int | None:
    """Return the offset of the next record header at or after `start`; byte 0 of `data` is at
    `base_lsn`.
    """
    whole = bytes(data)
    while (start := whole.find(_MAGIC_BYTES, start)) >= 0:
        if decode_header(whole, start, base_lsn + start) is not None:
            return start
        start += 1
    return None


def lsn_of(segment: int, offset: int) -> int:
    """Return the LSN of a place in the log."""
    assert offset >> SEGMENT_SHIFT == 0, "a segment is smaller than its numbers are apart"
    return segment << SEGMENT_SHIFT | offset


def segment_of(lsn: int) -> int:
    """Return the number of the segment that holds a place."""
    return lsn >> SEGMENT_SHIFT


def offset_of(lsn: int) -> int:
    """Return a place's offset within its segment's file."""
    return lsn & OFFSET_MAX


def may_be_body(kind: RecordKind, size: int) -> bool:
    """Return whether a control record's body may have `size` bytes."""
    if kind is RecordKind.FOOTER:
        return size % FOOTER_RUN_BYTES == _CRC.size
    return size == _CONTROL_BODY_BYTES[kind]


def encode_ledger(ledger_id: LedgerId) -> bytes:
    """Return the body of a fence, a tombstone or a release."""
    return _LEDGER.pack(ledger_id)


def encode_lac(ledger_id: LedgerId, lac: EntryId) -> bytes:
    """Return the body of an explicit LAC."""
    return _LEDGER_LAC.pack(ledger_id, lac)


def encode_master_key(ledger_id: LedgerId, master_key: bytes) -> bytes:
    """Return the body of a master key."""
    return _LEDGER.pack(ledger_id) + master_key


def decode_ledger(body: Buffer) -> LedgerId:
    """Read the ledger id that every control body starts with."""
    (ledger_id,) = _LEDGER.unpack_from(body)
    return LedgerId(ledger_id)


def decode_lac(body: Buffer) -> EntryId:
    """Read the LAC of an explicit LAC's body."""
    _, lac = _LEDGER_LAC.unpack_from(body)
    return EntryId(lac)


def decode_master_key(body: Buffer) -> bytes:
    """Read the key of a master key's body."""
    return bytes(body[_LEDGER.size :])


def encode_head(predecessor_end_lsn: int, flags: int) -> bytes:
    """Return the body of a segment's first record."""
    return _HEAD.pack(predecessor_end_lsn, flags, 0)


def decode_head(body: Buffer) -> tuple[int, int]:
    """Return the predecessor's end LSN and the flags."""
    predecessor_end_lsn, flags, _ = _HEAD.unpack_from(body)
    return predecessor_end_lsn, flags


def footer_run(batch: Buffer, offset: int, record_size: int) -> bytes:
    """Return a footer's item for one adds record: the batch's count, ledger id and first entry id,
    then the record's offset and size.
    """
    return bytes(batch[4:24]) + _PLACE.pack(offset, record_size)


def end_footer(runs: bytearray, offset: int) -> None:
    """Turn joined `footer_run`s into the body of the footer at `offset`. This changes `runs` in
    place, because it may hold a million items.
    """
    runs += _CRC.pack(offset)


def footer_offset(tail: Buffer) -> int:
    """Return the offset that the last four bytes of a sealed segment name."""
    (offset,) = _CRC.unpack_from(tail, len(tail) - _CRC.size)
    return int(offset)


def packed_runs(body: Buffer) -> memoryview:
    """Return the runs of a footer's body, packed as `footer_run` makes them."""
    return memoryview(body)[: -_CRC.size]


def decode_runs(packed: Buffer) -> list[FooterRun]:
    """Return the runs of joined `footer_run`s."""
    return list(map(FooterRun._make, _FOOTER_RUN.iter_unpack(packed)))
