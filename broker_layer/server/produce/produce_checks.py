"""Finds the batch that a Produce holds for one partition, and judges it as Kafka does.

Leaves what depends on the partition's log to the log, and transactions to `produce_verification`.

Invariant: what gets out of here is one whole batch that a client may send, in a request that may
carry it.

Source: KIP-98, KIP-110 (zstd), and what Kafka 4.1 answers.
"""

from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import BatchError
from broker_layer.kafka.record_batch import (
    BatchHeader,
    Compression,
    check_batch,
    only_batch,
    read_header,
    without_append_time,
)

ZSTD_VERSION_MIN: Final = 7
"""The first version of Produce whose clients know of zstd."""


def read_batch(
    records: memoryview | None, api_version: int, transactional_id: str | None
) -> tuple[BatchHeader, memoryview | bytearray]:
    """Return the one batch of a partition, with its header. Raises BatchError or TopicError.

    The bytes are a view of what came, but for a client that claims the leader's append time: this
    is taken out of a copy.
    """
    if records is None:
        raise BatchError(ErrorCode.INVALID_RECORD, "no record batch")
    header, batch = only_batch(records)
    if header.is_transactional and transactional_id is None:
        text = "no transactional id is given"
        raise TopicError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    check_batch(batch, header)
    if header.base_offset:
        text = f"base offset {header.base_offset}: a client begins at 0"
        raise BatchError(ErrorCode.INVALID_RECORD, text)
    if api_version < ZSTD_VERSION_MIN and header.compression is Compression.ZSTD:
        text = f"zstd needs version {ZSTD_VERSION_MIN} of Produce"
        raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if header.uses_append_time:
        placed = without_append_time(batch)
        return read_header(placed), placed
    return header, batch
