"""Fetch as a client sends it, for tools that read a few records of one partition.

Leaves the broker's side, the hot path, to `kafka.fetch_codec`.

Invariants: an answer is checked against its schema before it is decoded, like every other message;
for any bytes, `decode_fetched` returns an answer of one partition or raises KafkaFrameError.

Source: Kafka's message definitions of Fetch, version 12.
"""

import struct
from typing import Final, NamedTuple

from kafka.protocol.consumer import FetchRequest, FetchResponse

from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.schema_guard import guard_of

VERSION: Final = 12
"""The last version that names topics, and a flexible one."""
_GUARD: Final = guard_of(FetchResponse.json, VERSION)


class Fetched(NamedTuple):
    """The answer for the one partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    records: bytes
    """Record batches; the last one may be incomplete."""


def encode_fetch(
    topic: str, partition: int, offset: int, *, bytes_max: int, max_wait_ms: int = 0
) -> bytes:
    """Encode a request for records from an offset on, uncommitted ones included."""
    kind = FetchRequest.FetchTopic
    asked = kind.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max
    )
    request = FetchRequest(
        topics=[kind(topic=topic, partitions=[asked])],
        forgotten_topics_data=[],
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
    )
    return bytes(request.encode(version=VERSION))


def decode_fetched(data: memoryview) -> Fetched:
    """Decode the answer to a request for one partition. Raises KafkaFrameError."""
    _GUARD(data)
    try:
        answer = FetchResponse.decode(data, version=VERSION)
    except (ValueError, IndexError, struct.error) as error:
        raise KafkaFrameError(f"FetchResponse version {VERSION}: {error}") from error
    if answer.error_code:
        return Fetched(answer.error_code, -1, -1, b"")
    if len(answer.responses) != 1 or len(answer.responses[0].partitions) != 1:
        raise KafkaFrameError("an answer to a Fetch of one partition has another number of them")
    row = answer.responses[0].partitions[0]
    records = bytes(row.records) if row.records is not None else b""
    return Fetched(row.error_code, row.high_watermark, row.log_start_offset, records)
