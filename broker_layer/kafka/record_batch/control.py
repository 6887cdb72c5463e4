"""Control batches: the markers that end a producer's transaction in a partition.

Leaves the decision to write them to the transaction coordinator.

Format of the one record, big-endian: key = version i16 (0), kind i16; value = version i16 (0),
coordinator epoch i32.

Source: KIP-98, "Control Messages".
"""

import struct
from enum import IntEnum
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.record_batch.header import Compression, read_header
from broker_layer.kafka.record_batch.records import Producer, Record, build_batch, parse_records

CONTROL_RECORD_BYTES_MAX: Final = 4096

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


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
    """Build the marker that ends a transaction; `place` sets its offset and leader epoch."""
    record = Record(0, timestamp_ms, _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch))
    producer = Producer(producer_id, producer_epoch)
    return build_batch([record], producer=producer, is_transactional=True, is_control=True)


def read_control(data: bytes | bytearray | memoryview) -> tuple[ControlKind, int]:
    """Read the outcome of a transaction, and the epoch of the coordinator that decided it.

    Raises RecordBatchError if the batch is not the marker of a transaction.
    """
    header = read_header(data)
    if not header.is_control or header.compression != Compression.NONE:
        raise _damaged("the batch is not a control batch")
    record = next(parse_records(data, bytes_max=CONTROL_RECORD_BYTES_MAX), None)
    if record is None or record.key is None or record.value is None:
        raise _damaged("a control record has no key or no value")
    if len(record.key) < _KEY.size or len(record.value) < _VALUE.size:
        raise _damaged("the key or value of a control record is too short")
    _, kind = _KEY.unpack_from(record.key)
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    if kind not in (ControlKind.ABORT, ControlKind.COMMIT):
        raise _damaged(f"the kind {kind} of a control record is unknown")
    return ControlKind(kind), coordinator_epoch


def _damaged(text: str) -> RecordBatchError:
    return RecordBatchError(ErrorCode.CORRUPT_MESSAGE, text)
