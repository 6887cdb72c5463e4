"""Judges a batch by its bytes: whole, of magic 2, undamaged, and something a client may send.

Leaves what depends on a partition (sequence numbers, sizes, times) to whoever appends it.

Source: KIP-98; KAFKA-5194 and what Kafka's log checks of a batch before it appends it; the codes
are those with which Kafka 4.1 answers.
"""

import struct
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import BatchError
from broker_layer.kafka.record_batch.header import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    Compression,
    checksum,
    read_header,
)
from broker_layer.kafka.record_batch.records import RECORD_BYTES_MIN, parse_records

FLAGS_OF_LEADERS: Final = CONTROL_FLAG | DELETE_HORIZON_FLAG
"""What leaders and coordinators write into batches, and clients do not."""
MESSAGE_BYTES_MIN: Final = 14
"""No batch, and no message of the formats before, has a smaller length."""
MAGIC_AT: Final = 16
"""Where the number of the format is, in all of them."""
RECORDS_MAX: Final = 2**24
"""In one batch: what is packed is not opened, and may claim to be any number of offsets."""

_LENGTH = struct.Struct(">i")
_LENGTH_AT: Final = 8


def only_batch(data: memoryview) -> tuple[BatchHeader, memoryview]:
    """Return the one batch of magic 2 that a client sent for a partition; the beginning of another
    one behind it does not count. What is whole is no more judged than that.

    Raises BatchError with the code for the client.
    """
    if len(data) >= HEADER_BYTES:
        header = read_header(data)
        if header.size_bytes == len(data) and header.magic == MAGIC:
            return header, data
    size = _whole_size(data)
    if size is None:
        raise _refused("no whole record batch")
    if data[MAGIC_AT] != MAGIC:
        raise _refused(f"record batches are of magic {MAGIC}, not {data[MAGIC_AT]}")
    header = read_header(data[:size])
    if _whole_size(data[size:]) is not None:
        raise _refused("more than one batch")
    return header, data[:size]


def _whole_size(data: memoryview) -> int | None:
    """Return the size of the batch or message that begins `data`, None if its end is missing."""
    if len(data) < LENGTH_END:
        return None
    (length,) = _LENGTH.unpack_from(data, _LENGTH_AT)
    if length < MESSAGE_BYTES_MIN:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"a batch of length {length}")
    if len(data) <= MAGIC_AT:
        return None
    if data[MAGIC_AT] > MAGIC:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"magic {data[MAGIC_AT]}")
    size: int = length + LENGTH_END
    return size if size <= len(data) else None


def check_batch(data: bytes | bytearray | memoryview, header: BatchHeader) -> None:
    """Check that `data` is exactly the batch of `header`, undamaged, and that a client may send it.

    Raises BatchError with the code for the client.
    """
    check_whole(data, header)
    if header.attributes & FLAGS_OF_LEADERS:
        what = "control batches" if header.is_control else "delete horizons"
        raise _refused(f"a client does not write {what}")
    if header.record_count != header.last_offset_delta + 1:
        raise _refused(f"{header.record_count} records, last is {header.last_offset_delta}")
    if header.producer_id != NO_PRODUCER_ID:
        if header.producer_id < 0 or header.base_sequence < 0:
            raise _refused("a producer without a sequence number")
        if header.producer_epoch < 0:
            text = f"producer epoch {header.producer_epoch}"
            raise BatchError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
    elif header.is_transactional:  # an epoch or a sequence number means nothing: kafkajs writes 0
        raise _refused("a transaction without a producer")


def check_whole(data: bytes | bytearray | memoryview, header: BatchHeader) -> None:
    """Check that `data` is exactly the batch of `header`, and undamaged. Raises BatchError."""
    if header.magic != MAGIC:
        raise _refused(f"record batches are of magic {MAGIC}, not {header.magic}")
    if header.size_bytes < HEADER_BYTES or header.size_bytes > len(data):
        text = f"a batch of {header.size_bytes} B in {len(data)} B"
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, text)
    if header.size_bytes != len(data):
        raise _refused("more than one batch")
    if checksum(data) != header.crc:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, "the checksum is wrong")
    compression = header.attributes & COMPRESSION_MASK
    if compression > Compression.ZSTD:
        text = f"compression {compression}"
        raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if header.record_count < 1 or header.last_offset_delta < header.record_count - 1:
        raise _refused(f"{header.record_count} records, last is {header.last_offset_delta}")
    room = header.size_bytes - HEADER_BYTES
    if not compression and header.record_count * RECORD_BYTES_MIN > room:
        raise _refused(f"{header.record_count} records in {room} B")
    if header.record_count > RECORDS_MAX:
        raise _refused(f"{header.record_count} records in a batch, more than {RECORDS_MAX}")


def check_keys(
    data: bytes | bytearray | memoryview, header: BatchHeader, *, records_max: int, bytes_max: int
) -> None:
    """Check that every record of the whole batch of `header` has a key.

    Raises BatchError: MESSAGE_TOO_LARGE, upon which clients send smaller batches, if there are more
    than `records_max` records, or more than `bytes_max` bytes of them once they are unpacked.
    """
    if header.record_count > records_max:
        text = f"{header.record_count} records in a batch of a compacted topic"
        raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, f"{text}: at most {records_max}")
    for number, record in enumerate(parse_records(data, bytes_max=bytes_max)):
        if record.key is None:
            raise _refused(f"record {number} of the batch has no key, and the topic is compacted")


def _refused(text: str) -> BatchError:
    return BatchError(ErrorCode.INVALID_RECORD, text)
