"""Codec of Fetch: responses are lists of buffers, in which no batch is copied.

Leaves headers to `kafka.frames`, and sessions to `server.fetch_sessions`.

Invariants: fields that a version lacks have the defaults of the schema. From version
`FETCH_TOPIC_ID_VERSION` on topics are identified by id only, before it by name only. Empty records
have length 0, never null.

Source: Kafka's message definitions of Fetch, versions 4 to 16; KIP-74, KIP-227, KIP-516, KIP-951.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.frames import Buffer
from broker_layer.kafka.primitives import (
    ELEMENTS_MAX,
    INT32,
    NO_EPOCH,
    NO_OFFSET,
    NO_TAGS,
    NODE_ENDPOINTS_TAG,
    UUID_BYTES,
    CurrentLeader,
    NodeEndpoint,
    count_of,
    encode_endpoints,
    parsing,
    read_count,
    read_text,
    read_uuid,
    skip_tags,
    string,
    tag,
    too_many_elements,
    varint,
)
from broker_layer.kafka.versions import FETCH_TOPIC_ID_VERSION, SERVED, ApiKey

CONSUMER_REPLICA_ID: Final = -1
CURRENT_LEADER_TAG: Final = 1
READ_COMMITTED: Final = 1
PIECE_PARTITIONS: Final = 100
"""Number of partitions of an answer that are encoded at once."""

_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_LEADER_EPOCH_FROM: Final = 9
_RACKS_FROM: Final = 11
_FLEXIBLE_FROM: Final = SERVED[ApiKey.FETCH].flexible_from
_NO_REPLICA_ID_FROM: Final = 15
_ENDPOINTS_FROM: Final = 16

_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION_4 = struct.Struct(">iqi")
_PARTITION_5 = struct.Struct(">iqqi")
_PARTITION_9 = struct.Struct(">iiqqi")
_PARTITION_12 = struct.Struct(">iiqiqi")
_PARTITION_12_UNTAGGED = struct.Struct(">iiqiqix")
"""One without tagged fields, as clients send them; the last byte is their number."""


class FetchPartition(NamedTuple):
    """The part of a request for one partition."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    bytes_max: int


TopicKey = str | bytes
"""A topic's name, or from FETCH_TOPIC_ID_VERSION on its id."""


class FetchTopic(NamedTuple):
    """The part of a request for one topic."""

    key: TopicKey
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions of one topic to remove from a session."""

    key: TopicKey
    partitions: tuple[int, ...]


class FetchRequest(NamedTuple):
    """A complete request."""

    replica_id: int
    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str


class FetchPartitionResult(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = ErrorCode.NONE
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of each aborted transaction; None for read_uncommitted."""
    batches: Sequence[Buffer] = ()
    current_leader: CurrentLeader | None = None


class FetchTopicResult(NamedTuple):
    """The answers for one topic; the version decides whether its name or its id is written."""

    name: str
    topic_id: bytes
    partitions: list[FetchPartitionResult]


@parsing
def decode_fetch(version: int, data: memoryview) -> FetchRequest:
    """Decode the body of a request. Raises KafkaFrameError if it is damaged."""
    flexible = version >= _FLEXIBLE_FROM
    replica_id, position = CONSUMER_REPLICA_ID, 0
    if version < _NO_REPLICA_ID_FROM:
        (replica_id,) = INT32.unpack_from(data, 0)
        position = INT32.size
    max_wait_ms, bytes_min, bytes_max, isolation_level = _LIMITS.unpack_from(data, position)
    position += _LIMITS.size
    session_id, session_epoch = 0, -1
    if version >= _SESSIONS_FROM:
        session_id, session_epoch = _SESSION.unpack_from(data, position)
        position += _SESSION.size
    layout = _partition_layout(version)
    count, position = read_count(data, position, 2, is_flexible=flexible)
    topics = []
    room = ELEMENTS_MAX
    for _ in range(count):
        topic, position = _read_topic(version, layout, data, position)
        topics.append(topic)
        room = _take(room, 1 + len(topic.partitions))
    forgotten = []
    if version >= _SESSIONS_FROM:
        count, position = read_count(data, position, 2, is_flexible=flexible)
        for _ in range(count):
            gone, position = _read_forgotten(version, data, position)
            forgotten.append(gone)
            room = _take(room, 1 + len(gone.partitions))
    rack_id = ""
    if version >= _RACKS_FROM:
        rack_id, position = read_text(data, position, is_flexible=flexible)
    if flexible:
        skip_tags(data, position)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        bytes_min,
        bytes_max,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )


def _take(room: int, count: int) -> int:
    if count > room:
        raise too_many_elements(ELEMENTS_MAX)
    return room - count


def _partition_layout(version: int) -> struct.Struct:
    if version >= _FLEXIBLE_FROM:
        return _PARTITION_12
    if version >= _LEADER_EPOCH_FROM:
        return _PARTITION_9
    return _PARTITION_5 if version >= _LOG_START_FROM else _PARTITION_4


def _read_topic(
    version: int, layout: struct.Struct, data: memoryview, position: int
) -> tuple[FetchTopic, int]:
    flexible = version >= _FLEXIBLE_FROM
    key, position = _read_topic_key(version, data, position)
    count, position = read_count(data, position, layout.size, is_flexible=flexible)
    if flexible:
        partitions, position = _read_tagged_partitions(data, position, count)
    else:
        end = position + count * layout.size
        rows = layout.iter_unpack(data[position:end])
        partitions, position = [_partition_of(version, row) for row in rows], end
    if flexible:
        position = skip_tags(data, position)
    return FetchTopic(key, partitions), position


def _read_tagged_partitions(
    data: memoryview, position: int, count: int
) -> tuple[list[FetchPartition], int]:
    step = _PARTITION_12_UNTAGGED.size
    end = position + count * step
    if end <= len(data) and not any(data[position + step - 1 : end : step]):
        rows = _PARTITION_12_UNTAGGED.iter_unpack(data[position:end])
        return list(map(FetchPartition._make, rows)), end
    partitions = []
    for _ in range(count):
        partitions.append(FetchPartition._make(_PARTITION_12.unpack_from(data, position)))
        position = skip_tags(data, position + _PARTITION_12.size)
    return partitions, position


def _partition_of(version: int, fields: tuple[int, ...]) -> FetchPartition:
    if version >= _LEADER_EPOCH_FROM:
        partition, leader_epoch, offset, log_start, bytes_max = fields
        return FetchPartition(partition, leader_epoch, offset, NO_EPOCH, log_start, bytes_max)
    partition, offset, *log_start_if_any, bytes_max = fields
    log_start = log_start_if_any[0] if log_start_if_any else NO_OFFSET
    return FetchPartition(partition, NO_EPOCH, offset, NO_EPOCH, log_start, bytes_max)


def _read_topic_key(version: int, data: memoryview, position: int) -> tuple[TopicKey, int]:
    if version >= FETCH_TOPIC_ID_VERSION:
        return read_uuid(data, position)
    return read_text(data, position, is_flexible=version >= _FLEXIBLE_FROM)


def _read_forgotten(version: int, data: memoryview, position: int) -> tuple[ForgottenTopic, int]:
    flexible = version >= _FLEXIBLE_FROM
    key, position = _read_topic_key(version, data, position)
    count, position = read_count(data, position, INT32.size, is_flexible=flexible)
    partitions = struct.unpack_from(f">{count}i", data, position)
    position += INT32.size * count
    if flexible:
        position = skip_tags(data, position)
    return ForgottenTopic(key, partitions), position


_RESPONSE_4 = struct.Struct(">i")
_RESPONSE_7 = struct.Struct(">ihi")
_RESULT_4 = struct.Struct(">ihqq")
_RESULT_5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_NULL_ARRAY: Final = INT32.pack(-1)
_NO_PREFERRED_REPLICA: Final = INT32.pack(-1)


def encode_fetch_response(
    version: int,
    topics: Sequence[FetchTopicResult],
    *,
    error_code: int = ErrorCode.NONE,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Iterator[list[Buffer]]:
    """Encode the body of a response as lists of buffers, each of PIECE_PARTITIONS partitions, so
    that a server can do other work meanwhile; batches are put in them without a copy.
    """
    flexible = version >= _FLEXIBLE_FROM
    buffers, left = list[Buffer](), PIECE_PARTITIONS
    head = bytearray()
    if version >= _SESSIONS_FROM:
        head += _RESPONSE_7.pack(throttle_time_ms, error_code, session_id)
    else:
        head += _RESPONSE_4.pack(throttle_time_ms)
    head += count_of(len(topics), is_flexible=flexible)
    for topic in topics:
        if version >= FETCH_TOPIC_ID_VERSION:
            assert len(topic.topic_id) == UUID_BYTES, topic.topic_id
            head += topic.topic_id
        else:
            head += string(topic.name, is_flexible=flexible)
        head += count_of(len(topic.partitions), is_flexible=flexible)
        for result in topic.partitions:
            _encode_result_head(version, result, head)
            if result.batches:
                buffers.append(head)
                buffers += result.batches
                head = bytearray()
            if flexible:
                head += NO_TAGS if result.current_leader is None else _tags(result.current_leader)
            left -= 1
            if not left:
                yield [*buffers, head]
                buffers, left, head = [], PIECE_PARTITIONS, bytearray()
        if flexible:
            head += NO_TAGS
    if flexible:
        head += _response_tags(version, node_endpoints)
    if head:
        buffers.append(head)
    yield buffers


def _encode_result_head(version: int, result: FetchPartitionResult, head: bytearray) -> None:
    flexible = version >= _FLEXIBLE_FROM
    if version >= _LOG_START_FROM:
        head += _RESULT_5.pack(*result[:5])
    else:
        head += _RESULT_4.pack(*result[:4])
    if result.aborted is None:
        head += NO_TAGS if flexible else _NULL_ARRAY
    else:
        _encode_aborted(result.aborted, head, flexible=flexible)
    if version >= _RACKS_FROM:
        head += _NO_PREFERRED_REPLICA
    size = sum(map(len, result.batches)) if result.batches else 0
    head += varint(size + 1) if flexible else INT32.pack(size)


def _encode_aborted(aborted: Sequence[tuple[int, int]], head: bytearray, *, flexible: bool) -> None:
    head += count_of(len(aborted), is_flexible=flexible)
    for producer_id, first_offset in aborted:
        head += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            head += NO_TAGS


def _tags(current_leader: CurrentLeader) -> bytes:
    return varint(1) + tag(CURRENT_LEADER_TAG, current_leader.encode())


def _response_tags(version: int, node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    if not node_endpoints or version < _ENDPOINTS_FROM:
        return NO_TAGS
    return varint(1) + tag(NODE_ENDPOINTS_TAG, encode_endpoints(node_endpoints))
