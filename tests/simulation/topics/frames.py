"""Codecs for the bodies of Produce and Fetch on the client's side, in one version of each.

Leaves other messages to `broker_layer.kafka.messages`, whose codecs are slower.

Format: Produce version 7 and Fetch version 11, neither flexible, of one partition each.
"""

import struct
from dataclasses import dataclass
from typing import Final

from broker_layer.kafka.record_batch import RecordBatchHeader, read_header

PRODUCE_VERSION: Final = 7
FETCH_VERSION: Final = 11
ALL_ACKS: Final = -1

_ACKS = struct.Struct(">hi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FETCH = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_PRODUCED = struct.Struct(">ihqqq")
_FETCHED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class Produced:
    """Answer for one partition."""

    error: int
    base_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Answer for one partition."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """(Producer id, first offset)."""
    batches: tuple[tuple[RecordBatchHeader, bytes], ...]


@dataclass(frozen=True, slots=True)
class FetchAsked:
    """Request for one partition."""

    offset: int
    is_committed: bool
    wait_ms: int = 500
    bytes_max: int = 65_536
    leader_epoch: int = -1


def produce_body(
    topic: str,
    partition: int,
    batch: bytes,
    *,
    transactional_id: str | None,
    timeout_ms: int,
    acks: int = ALL_ACKS,
) -> bytes:
    """Encode a Produce of one batch."""
    identity = _INT16.pack(-1) if transactional_id is None else _string(transactional_id)
    head = identity + _ACKS.pack(acks, timeout_ms) + _INT32.pack(1) + _string(topic)
    return head + struct.pack(">iii", 1, partition, len(batch)) + batch


def read_produced(body: memoryview) -> Produced:
    """Read the answer to `produce_body`."""
    position = _after_topic(body, 0) + _INT32.size
    _, error, base_offset, _, log_start = _PRODUCED.unpack_from(body, position)
    return Produced(error, base_offset, log_start)


def fetch_body(topic: str, partition: int, asked: FetchAsked) -> bytes:
    """Encode a Fetch of one partition, outside of any session."""
    head = _FETCH.pack(-1, asked.wait_ms, 1, asked.bytes_max, asked.is_committed, 0, -1)
    ask = _FETCH_PARTITION.pack(partition, asked.leader_epoch, asked.offset, -1, asked.bytes_max)
    return (
        head
        + _INT32.pack(1)
        + _string(topic)
        + _INT32.pack(1)
        + ask
        + _INT32.pack(0)
        + _INT16.pack(0)
    )


def read_fetched(body: memoryview) -> Fetched:
    """Read the answer to `fetch_body`. Raises ValueError if its error is for all partitions."""
    _, error, _ = struct.unpack_from(">ihi", body, 0)
    position = 10
    if error:
        raise ValueError(f"the complete Fetch was answered with {error}")
    position = _after_topic(body, position) + _INT32.size
    _, code, high_watermark, stable, log_start = _FETCHED.unpack_from(body, position)
    position += _FETCHED.size
    (count,) = _INT32.unpack_from(body, position)
    position += _INT32.size
    aborted = []
    for _ in range(max(0, count)):
        aborted.append(_ABORTED.unpack_from(body, position))
        position += _ABORTED.size
    _, length = struct.unpack_from(">ii", body, position)
    position += 8
    records = bytes(body[position : position + max(0, length)])
    return Fetched(
        code, high_watermark, stable, log_start, tuple(aborted), tuple(_batches(records))
    )


def _batches(records: bytes) -> list[tuple[RecordBatchHeader, bytes]]:
    found = []
    position = 0
    while position < len(records):
        header = read_header(records, position)
        found.append((header, records[position : position + header.size_bytes]))
        position += header.size_bytes
    return found


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _after_topic(body: memoryview, position: int) -> int:
    """Return the offset where the partitions of the first topic begin."""
    (length,) = _INT16.unpack_from(body, position + _INT32.size)
    return position + _INT32.size + _INT16.size + int(length)
