"""The records of a batch: building a complete batch, and parsing the records of one; markers.

Leaves the header's layout to `record_batch.header`, and compression to `record_batch.compression`.

Format of a record; a varint is zigzag-coded, 7 bits a byte, lowest first:

| size | field |
|---|---|
| varint | bytes after this field |
| 1 | attributes, unused |
| varint | timestamp - first timestamp |
| varint | offset - base offset |
| varint, bytes | key, length -1 for none |
| varint, bytes | value, length -1 for none |
| varint | count of headers; each is key (UTF-8) and value as above |

Invariants: nothing is read after the end of a record, nor more records than the header counts;
counts and lengths are compared with the remaining bytes before they are used.

Source: Kafka's protocol guide, "Record"; KIP-98, "Control Messages" (markers).
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.record_batch.compression import compress, decompress
from broker_layer.kafka.record_batch.header import (
    APPEND_TIME_FLAG,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    Compression,
    RecordBatchHeader,
    read_header,
    seal,
)

RECORD_BYTES_MIN: Final = 7
"""A record without key, value and headers: its length and six fields of one byte."""
HEADER_ENTRY_BYTES_MIN: Final = 2
VARINT_BITS_MAX: Final = 64
_TIMESTAMP_MIN: Final = -(2**63)
_TIMESTAMP_MAX: Final = 2**63 - 1


class Record(NamedTuple):
    """One record as a consumer sees it. A tuple, because one is created for every record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer of a batch, and the batch's first sequence number."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER: Final = Producer()


def build_batch(
    records: Sequence[Record],
    *,
    compression: Compression = Compression.NONE,
    producer: Producer = NO_PRODUCER,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    uses_append_time: bool = False,
) -> bytearray:
    """Build the batch of one or more records, in the order of their offsets."""
    first = records[0]
    packed = compress(compression, b"".join(_encode_record(record, first) for record in records))
    attributes = (
        compression
        | is_transactional * TRANSACTIONAL_FLAG
        | is_control * CONTROL_FLAG
        | uses_append_time * APPEND_TIME_FLAG
    )
    header = HEADER.pack(
        first.offset,
        HEADER_BYTES + len(packed) - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        records[-1].offset - first.offset,
        first.timestamp_ms,
        max(record.timestamp_ms for record in records),
        producer.producer_id,
        producer.epoch,
        producer.base_sequence,
        len(records),
    )
    batch = bytearray(header)
    batch += packed
    seal(batch)
    return batch


def parse_records(
    data: bytes | bytearray | memoryview, *, bytes_max: int, with_headers: bool = True
) -> Iterator[Record]:
    """Parse the records of the complete batch at the start of `data`.

    Without their headers, which are then not checked either, no record takes long: a batch of 1 kB
    may have one with 16 million headers. At most `bytes_max` bytes are allocated for decompressed
    records. Raises DecompressionTooLargeError if there are more, RecordBatchError if they are
    damaged.
    """
    header = read_header(data)
    if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= len(data):
        raise RecordBatchError(ErrorCode.CORRUPT_MESSAGE, "it is not a complete batch of magic 2")
    packed = memoryview(data)[HEADER_BYTES : header.size_bytes]
    unpacked = decompress(header.compression, packed, bytes_max)
    if not 0 <= header.record_count <= len(unpacked) // RECORD_BYTES_MIN:
        raise _damaged(f"{header.record_count} records do not fit in {len(unpacked)} B")
    return _parse_all(unpacked, header, with_headers=with_headers)


def _parse_all(
    data: memoryview, header: RecordBatchHeader, *, with_headers: bool
) -> Iterator[Record]:
    position = 0
    for _ in range(header.record_count):
        length, position = _read_varint(data, position)
        end = position + length
        if length < RECORD_BYTES_MIN - 1 or end > len(data):
            raise _damaged(f"a record has an invalid length of {length} B")
        yield _parse_record(data[position:end], header, with_headers=with_headers)
        position = end
    if position != len(data):
        raise _damaged("there are bytes after the last record")


def _parse_record(data: memoryview, header: RecordBatchHeader, *, with_headers: bool) -> Record:
    timestamp_delta, position = _read_varint(data, 1)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    headers = _parse_headers(data, position) if with_headers else ()
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise _damaged(f"offset delta {offset_delta} is outside of the batch")
    timestamp = header.first_timestamp_ms + timestamp_delta
    if header.uses_append_time:
        timestamp = header.max_timestamp_ms
    if not _TIMESTAMP_MIN <= timestamp <= _TIMESTAMP_MAX:
        raise _damaged("a timestamp exceeds 64 bits")
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers)


def _parse_headers(data: memoryview, position: int) -> tuple[tuple[str, bytes | None], ...]:
    count, position = _read_varint(data, position)
    if not 0 <= count <= (len(data) - position) // HEADER_ENTRY_BYTES_MIN:
        raise _damaged(f"{count} headers do not fit in the record")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        content, position = _read_bytes(data, position)
        headers.append((_header_name(name), content))
    if position != len(data):
        raise _damaged("there are bytes after the last header")
    return tuple(headers)


def _damaged(text: str) -> RecordBatchError:
    return RecordBatchError(ErrorCode.CORRUPT_MESSAGE, f"damaged records: {text}")


def _header_name(name: bytes | None) -> str:
    if name is None:
        raise _damaged("a header has no name")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise _damaged("the name of a header is not UTF-8") from error


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[position : position + VARINT_BITS_MAX // 7 + 1]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            if value >> VARINT_BITS_MAX:
                break
            return (value >> 1) ^ -(value & 1), position + shift // 7
    raise _damaged("a varint has no end, or more than 64 bits")


def _read_bytes(data: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length == -1:
        return None, position
    end = position + length
    if length < 0 or end > len(data):
        raise _damaged(f"a field has an invalid length of {length} B")
    return bytes(data[position:end]), end


def _encode_record(record: Record, first: Record) -> bytes:
    headers = b"".join(
        _encode_bytes(name.encode()) + _encode_bytes(content) for name, content in record.headers
    )
    body = b"".join(
        (
            b"\0",
            _encode_varint(record.timestamp_ms - first.timestamp_ms),
            _encode_varint(record.offset - first.offset),
            _encode_bytes(record.key),
            _encode_bytes(record.value),
            _encode_varint(len(record.headers)),
            headers,
        )
    )
    return _encode_varint(len(body)) + body


def _encode_bytes(data: bytes | None) -> bytes:
    return _encode_varint(-1) if data is None else _encode_varint(len(data)) + data


def _encode_varint(number: int) -> bytes:
    value = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while value >> 7:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


CONTROL_RECORD_BYTES_MAX: Final = 4096

_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")


class ControlKind(IntEnum):
    """The outcome of a transaction."""

    ABORT = 0
    COMMIT = 1


def build_control_batch(
    kind: ControlKind,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
) -> bytearray:
    """Build the control batch that ends a transaction: its marker.

    Format of the one record, big-endian: key = version i16 (0), kind i16; value = version i16 (0),
    coordinator epoch i32. The log sets its offset and leader epoch.
    """
    record = Record(
        0, timestamp_ms, _CONTROL_KEY.pack(0, kind), _CONTROL_VALUE.pack(0, coordinator_epoch)
    )
    producer = Producer(producer_id, producer_epoch)
    return build_batch([record], producer=producer, is_transactional=True, is_control=True)


def read_control(data: bytes | bytearray | memoryview) -> tuple[ControlKind, int]:
    """Read the outcome of a transaction, and the epoch of the coordinator that decided it.

    Raises RecordBatchError if the batch is not the marker of a transaction.
    """
    header = read_header(data)
    if not header.is_control or header.compression != Compression.NONE:
        raise _no_marker("the batch is not a control batch")
    record = next(parse_records(data, bytes_max=CONTROL_RECORD_BYTES_MAX), None)
    if record is None or record.key is None or record.value is None:
        raise _no_marker("a control record has no key or no value")
    if len(record.key) < _CONTROL_KEY.size or len(record.value) < _CONTROL_VALUE.size:
        raise _no_marker("the key or value of a control record is too short")
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    _, coordinator_epoch = _CONTROL_VALUE.unpack_from(record.value)
    if kind not in (ControlKind.ABORT, ControlKind.COMMIT):
        raise _no_marker(f"the kind {kind} of a control record is unknown")
    return ControlKind(kind), coordinator_epoch


def _no_marker(text: str) -> RecordBatchError:
    return RecordBatchError(ErrorCode.CORRUPT_MESSAGE, text)
