"""Judges a batch by its bytes: whole, of magic 2, undamaged, and something a client may send.

Leaves what depends on a partition (sequence numbers, sizes, times) to whoever appends it.

Source: KIP-98; KAFKA-5194 and what Kafka's log checks of a batch before it appends it.
"""

from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import BatchError
from broker_layer.kafka.record_batch.header import (
    APPEND_TIME_FLAG,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    Compression,
    checksum,
)
from broker_layer.kafka.record_batch.records import RECORD_BYTES_MIN

FLAGS_OF_LEADERS: Final = APPEND_TIME_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
"""What leaders and coordinators write into batches, and clients do not."""


def check_batch(data: bytes | bytearray | memoryview, header: BatchHeader) -> None:
    """Check that `data` is exactly the batch of `header`, undamaged, and that a client may send it.

    Raises BatchError with the code for the client.
    """
    check_whole(data, header)
    if header.attributes & FLAGS_OF_LEADERS:
        raise _refused_flags(header)
    if header.record_count != header.last_offset_delta + 1:
        raise _refused(f"{header.record_count} records, last is {header.last_offset_delta}")
    if header.producer_id != NO_PRODUCER_ID:
        if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
            raise _refused("a producer without an epoch or a sequence number")
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


def _refused_flags(header: BatchHeader) -> BatchError:
    if header.uses_append_time:
        return BatchError(ErrorCode.INVALID_TIMESTAMP, "append time is the leader's to write")
    what = "control batches" if header.is_control else "delete horizons"
    return _refused(f"a client does not write {what}")


def _refused(text: str) -> BatchError:
    return BatchError(ErrorCode.INVALID_RECORD, text)
