"""Check of the batch that a Produce contains for one partition.

Leaves checks that depend on the log to the partition's log, and transactions to
`produce_verification`.

Invariant: the result is one complete batch that a client may send in a request of its version.

Source: KIP-98, KIP-110 (zstd), and the answers of Kafka 4.1.
"""

from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.record_batch import (
    Compression,
    RecordBatchHeader,
    check_batch,
    only_batch,
    read_header,
    without_append_time,
)

ZSTD_VERSION_MIN: Final = 7
"""The first version of Produce that allows zstd."""


def read_batch(
    records: memoryview | None, api_version: int, transactional_id: str | None
) -> tuple[RecordBatchHeader, memoryview | bytearray]:
    """Return the header and the bytes of a partition's one batch.

    Raises RecordBatchError or TopicError. The bytes are a view of the request. If the
    client set the flag of append times, they are a copy without that flag.
    """
    if records is None:
        raise RecordBatchError(ErrorCode.INVALID_RECORD, "there is no record batch")
    header, batch = only_batch(records)
    if header.is_transactional and transactional_id is None:
        text = "the batch is transactional, but the request has no transactional id"
        raise TopicError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    check_batch(batch, header)
    if header.base_offset:
        text = f"the base offset is {header.base_offset}: it must be 0"
        raise RecordBatchError(ErrorCode.INVALID_RECORD, text)
    if api_version < ZSTD_VERSION_MIN and header.compression is Compression.ZSTD:
        text = f"zstd needs version {ZSTD_VERSION_MIN} of Produce, or later"
        raise RecordBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if header.uses_append_time:
        placed = without_append_time(batch)
        return read_header(placed), placed
    return header, batch
