"""The header of a record batch: reading it, and writing the fields that a leader sets.

Leaves the records after the header to `record_batch.records`, and checking it to
`record_batch.checks`.

Format (magic 2), big-endian:

| offset | size | field |
|---|---|---|
| 0 | 8 | base offset |
| 8 | 4 | bytes after this field |
| 12 | 4 | leader epoch |
| 16 | 1 | magic |
| 17 | 4 | CRC-32C of everything from offset 21 on |
| 21 | 2 | attributes |
| 23 | 4 | last offset - base offset |
| 27 | 8 | first timestamp, ms |
| 35 | 8 | greatest timestamp, ms |
| 43 | 8 | producer id, -1 for none |
| 51 | 2 | producer epoch |
| 53 | 4 | base sequence |
| 57 | 4 | count of records |
| 61 | | records |

Invariant: base offset and leader epoch are before the bytes that the CRC covers, so a leader sets
them without computing the CRC.

Source: Kafka's protocol guide, "Record Batch"; KIP-98.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

import crc32c

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError

HEADER_BYTES: Final = 61
MAGIC_AT: Final = 16
"""Position of the format number, in all formats."""
LENGTH_END: Final = 12
"""End of the length field; the length counts the bytes after it."""
CRC_START: Final = 17
CHECKED_START: Final = 21
"""Start of the bytes that the CRC covers."""
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
SEQUENCE_MODULUS: Final = 2**31

COMPRESSION_MASK: Final = 0x07
APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40
"""The first timestamp is the time from which compaction may remove tombstones (KIP-534)."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_BYTES
_OFFSET = struct.Struct(">q")
_FIRST_AND_LAST = struct.Struct(">q15xi")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")

_EPOCH_START: Final = 12
_ATTRIBUTES_START: Final = 21
_MAX_TIMESTAMP_START: Final = 35


class Compression(IntEnum):
    """The compression of a batch's records."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class RecordBatchHeader(NamedTuple):
    """The header of a batch; immutable. A tuple, because one is created for every batch."""

    base_offset: int
    size_bytes: int
    """Size of the complete batch, header included."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; 0 follows 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def compression(self) -> Compression:
        """The compression of the records. Raises RecordBatchError if its number is unknown."""
        number = self.attributes & COMPRESSION_MASK
        if number > Compression.ZSTD:
            text = f"compression type {number} is unknown"
            raise RecordBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
        return Compression(number)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction; true also for the marker that ends one."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker of a transaction's end."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def uses_append_time(self) -> bool:
        """Whether the greatest timestamp, set by the leader, is the time of every record."""
        return self.attributes & APPEND_TIME_FLAG != 0

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent producer wrote the batch."""
        return self.producer_id != NO_PRODUCER_ID


def read_header(data: bytes | bytearray | memoryview, start: int = 0) -> RecordBatchHeader:
    """Read the header of the batch that begins at `start`; its fields are not checked.

    Raises RecordBatchError (CORRUPT_MESSAGE) if there are too few bytes for a header.
    """
    if start < 0 or len(data) - start < HEADER_BYTES:
        raise RecordBatchError(ErrorCode.CORRUPT_MESSAGE, "a record batch ends within its header")
    fields = HEADER.unpack_from(data, start)
    return RecordBatchHeader(fields[0], fields[1] + LENGTH_END, *fields[2:])


def read_last_offset(data: bytes | bytearray | memoryview) -> int:
    """Return the offset of a batch's last record, without reading the rest of its header.

    Raises RecordBatchError (CORRUPT_MESSAGE) if there are too few bytes for a header.
    """
    if len(data) < HEADER_BYTES:
        raise RecordBatchError(ErrorCode.CORRUPT_MESSAGE, "a record batch ends within its header")
    base_offset, delta = _FIRST_AND_LAST.unpack_from(data)
    return int(base_offset + delta)


def place(data: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch into a batch. The CRC stays valid."""
    _OFFSET.pack_into(data, 0, base_offset)
    _EPOCH.pack_into(data, _EPOCH_START, leader_epoch)


def stamp(data: bytearray | memoryview, timestamp_ms: int) -> None:
    """Set the time of every record of a complete batch (LogAppendTime), and write a new CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, _ATTRIBUTES_START)
    _ATTRIBUTES.pack_into(data, _ATTRIBUTES_START, attributes | APPEND_TIME_FLAG)
    _OFFSET.pack_into(data, _MAX_TIMESTAMP_START, timestamp_ms)
    seal(data)


def without_append_time(data: bytes | bytearray | memoryview) -> bytearray:
    """Return a copy of a complete batch in which records keep their own times, with a new CRC."""
    copy = bytearray(data)
    (attributes,) = _ATTRIBUTES.unpack_from(copy, _ATTRIBUTES_START)
    _ATTRIBUTES.pack_into(copy, _ATTRIBUTES_START, attributes & ~APPEND_TIME_FLAG)
    seal(copy)
    return copy


def seal(data: bytearray | memoryview) -> None:
    """Write the CRC of a batch whose other bytes are final."""
    _CRC.pack_into(data, CRC_START, checksum(data))


def checksum(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C of a complete batch."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    return crc32c.crc32c(view[CHECKED_START:])


_PLACE: Final = struct.Struct(">qii")
"""Base offset, bytes after the length field, leader epoch."""


def placed(
    header: RecordBatchHeader,
    data: bytes | bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> tuple[RecordBatchHeader, bytes]:
    """Return the header and the bytes of a batch with its base offset and leader epoch. The
    producer's bytes are copied, once more for append times, and are not changed.

    The offset and the epoch in the returned header may be those of the producer. Unless
    `append_time_ms` is NO_TIMESTAMP, the records get that time.
    """
    place = _PLACE.pack(base_offset, header.size_bytes - LENGTH_END, leader_epoch)
    parts = (place, memoryview(data)[MAGIC_AT:])
    if append_time_ms != NO_TIMESTAMP:
        stamped = bytearray().join(parts)
        stamp(stamped, append_time_ms)
        return read_header(stamped), bytes(stamped)
    return header, b"".join(parts)
