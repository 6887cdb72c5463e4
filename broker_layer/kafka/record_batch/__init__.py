"""Record batches (magic 2): what producers send, the log keeps and consumers get, byte by byte."""

from broker_layer.kafka.errors import BatchError, DecompressionTooLargeError
from broker_layer.kafka.record_batch.header import (
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    place,
    read_header,
    stamp,
)

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchError",
    "BatchHeader",
    "Compression",
    "DecompressionTooLargeError",
    "place",
    "read_header",
    "stamp",
]
