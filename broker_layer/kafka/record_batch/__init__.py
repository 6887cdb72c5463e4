"""Record batches (magic 2). Logs store them, and consumers get them, as producers sent them.

- `header`: header of a batch, and what a leader writes into it.
- `checks`: whether a batch is complete, of magic 2, undamaged and allowed.
- `records`: builds a batch, and parses its records; markers that end a transaction.
- `compression`: the four ways of packing records.
"""

from broker_layer.kafka.errors import DecompressionTooLargeError, RecordBatchError
from broker_layer.kafka.record_batch.checks import (
    check_batch,
    check_whole,
    keyless_records,
    only_batch,
)
from broker_layer.kafka.record_batch.header import (
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Compression,
    RecordBatchHeader,
    place,
    read_header,
    read_last_offset,
    stamp,
    without_append_time,
)
from broker_layer.kafka.record_batch.records import (
    NO_PRODUCER,
    ControlKind,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    parse_records,
    read_control,
)

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "NO_PRODUCER",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "Compression",
    "ControlKind",
    "DecompressionTooLargeError",
    "Producer",
    "Record",
    "RecordBatchError",
    "RecordBatchHeader",
    "build_batch",
    "build_control_batch",
    "check_batch",
    "check_whole",
    "keyless_records",
    "only_batch",
    "parse_records",
    "place",
    "read_control",
    "read_header",
    "read_last_offset",
    "stamp",
    "without_append_time",
]
