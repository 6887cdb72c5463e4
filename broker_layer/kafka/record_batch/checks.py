"""Checks of a batch's bytes: it is complete, of magic 2, undamaged, and allowed from a client.

Leaves checks that depend on a partition (sequence numbers, sizes, times) to the partition's log.

Source: KIP-98; KAFKA-5194, and the checks of Kafka's log before an append; the error codes are
those of Kafka 4.1.
"""

import struct
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.record_batch.header import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_ID,
    Compression,
    RecordBatchHeader,
    checksum,
    read_header,
)
from broker_layer.kafka.record_batch.records import RECORD_BYTES_MIN, parse_records

FLAGS_OF_LEADERS: Final = CONTROL_FLAG | DELETE_HORIZON_FLAG
"""Attributes that only leaders and coordinators may set."""
MESSAGE_BYTES_MIN: Final = 14
"""Minimum length of a batch, and of a message of the older formats."""
RECORDS_MAX: Final = 2**24
"""Maximum number of records in one batch. Compressed records are not opened, so a batch could state
any number of them."""

_LENGTH = struct.Struct(">i")
_LENGTH_AT: Final = 8


def only_batch(data: memoryview) -> tuple[RecordBatchHeader, memoryview]:
    """Return the one batch of magic 2 that a client sent for a partition, and its header.

    An incomplete batch after it is ignored. Nothing else of the batch is checked here. Raises
    RecordBatchError with the code for the client.
    """
    if len(data) >= HEADER_BYTES:
        header = read_header(data)
        if header.size_bytes == len(data) and header.magic == MAGIC:
            return header, data
    size = _whole_size(data)
    if size is None:
        raise _refused("there is no complete record batch")
    if data[MAGIC_AT] != MAGIC:
        raise _refused(f"the record batch has magic {data[MAGIC_AT]}: only {MAGIC} is supported")
    header = read_header(data[:size])
    if _whole_size(data[size:]) is not None:
        raise _refused("there is more than one batch for the partition")
    return header, data[:size]


def _whole_size(data: memoryview) -> int | None:
    """Return the size of the batch or message at the start of `data`; None if it is incomplete."""
    if len(data) < LENGTH_END:
        return None
    (length,) = _LENGTH.unpack_from(data, _LENGTH_AT)
    if length < MESSAGE_BYTES_MIN:
        raise RecordBatchError(ErrorCode.CORRUPT_MESSAGE, f"a batch has a length of {length} B")
    if len(data) <= MAGIC_AT:
        return None
    if data[MAGIC_AT] > MAGIC:
        text = f"magic {data[MAGIC_AT]} is unknown: only {MAGIC} is supported"
        raise RecordBatchError(ErrorCode.CORRUPT_MESSAGE, text)
    size: int = length + LENGTH_END
    return size if size <= len(data) else None


def check_batch(data: bytes | bytearray | memoryview, header: RecordBatchHeader) -> None:
    """Check that `data` is exactly the batch of `header`, undamaged, and that a client may send it.

    Raises RecordBatchError with the code for the client.
    """
    check_whole(data, header)
    if header.attributes & FLAGS_OF_LEADERS:
        what = "control batches" if header.is_control else "delete horizons"
        raise _refused(f"clients must not write {what}")
    if header.record_count != header.last_offset_delta + 1:
        raise _refused(_count_mismatch(header))
    if header.producer_id != NO_PRODUCER_ID:
        if header.producer_id < 0 or header.base_sequence < 0:
            raise _refused("the producer id or the sequence number is negative")
        if header.producer_epoch < 0:
            text = f"the producer epoch {header.producer_epoch} is negative"
            raise RecordBatchError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
    elif header.is_transactional:  # kafkajs writes epoch and sequence 0: they are not checked here
        raise _refused("a transactional batch has no producer id: request one with InitProducerId")


def check_whole(data: bytes | bytearray | memoryview, header: RecordBatchHeader) -> None:
    """Check that `data` is exactly the undamaged batch of `header`. Raises RecordBatchError."""
    if header.magic != MAGIC:
        raise _refused(f"the record batch has magic {header.magic}: only {MAGIC} is supported")
    if header.size_bytes < HEADER_BYTES or header.size_bytes > len(data):
        text = f"the batch states a size of {header.size_bytes} B and has {len(data)} B"
        raise RecordBatchError(ErrorCode.CORRUPT_MESSAGE, text)
    if header.size_bytes != len(data):
        raise _refused("there are bytes after the batch")
    if checksum(data) != header.crc:
        raise RecordBatchError(
            ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong: send it again"
        )
    compression = header.attributes & COMPRESSION_MASK
    if compression > Compression.ZSTD:
        text = f"compression type {compression} is unknown"
        raise RecordBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if header.record_count < 1 or header.last_offset_delta < header.record_count - 1:
        raise _refused(_count_mismatch(header))
    room = header.size_bytes - HEADER_BYTES
    if not compression and header.record_count * RECORD_BYTES_MIN > room:
        raise _refused(f"{header.record_count} records do not fit in {room} B")
    if header.record_count > RECORDS_MAX:
        text = f"the batch has {header.record_count} records; the limit is {RECORDS_MAX}"
        raise _refused(f"{text}: send smaller batches")


def keyless_records(
    data: bytes | bytearray | memoryview,
    header: RecordBatchHeader,
    *,
    records_max: int,
    bytes_max: int,
) -> list[int]:
    """Return the positions of the records without a key in the complete batch of `header`.

    Raises RecordBatchError. The code is MESSAGE_TOO_LARGE, after which clients send smaller
    batches, if there are more than `records_max` records or more than `bytes_max` decompressed
    bytes.
    """
    if header.record_count > records_max:
        text = f"the batch has {header.record_count} records; the limit of a compacted topic is"
        raise RecordBatchError(ErrorCode.MESSAGE_TOO_LARGE, f"{text} {records_max}")
    records = parse_records(data, bytes_max=bytes_max, with_headers=False)
    return [number for number, record in enumerate(records) if record.key is None]


def _count_mismatch(header: RecordBatchHeader) -> str:
    count, delta = header.record_count, header.last_offset_delta
    return f"the batch has {count} records, which does not match its last offset delta {delta}"


def _refused(text: str) -> RecordBatchError:
    return RecordBatchError(ErrorCode.INVALID_RECORD, text)
