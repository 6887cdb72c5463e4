"""Codec of Produce: requests become views of their frame, a response is one buffer.

Leaves headers to `kafka.frames`, and checking the batches to `kafka.record_batch`.

Invariants: no byte of a batch is copied here. Versions below `PRODUCE_VERSION_MIN` are decoded too,
so that each of their partitions can be answered with an error; they contain no record batches.

Source: Kafka's message definitions of Produce, versions 0 to 11.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError, RecordError
from broker_layer.kafka.primitives import (
    DAMAGED,
    ELEMENTS_MAX,
    INT32,
    NO_OFFSET,
    NO_TAGS,
    NODE_ENDPOINTS_TAG,
    VARINT_MORE,
    CurrentLeader,
    NodeEndpoint,
    count_of,
    encode_endpoints,
    read_bytes,
    read_count,
    read_string,
    read_text,
    read_varint,
    skip_tags,
    string,
    tag,
    too_many_elements,
    varint,
)
from broker_layer.kafka.record_batch import NO_TIMESTAMP
from broker_layer.kafka.versions import PRODUCE_VERSION_MIN, SERVED, ApiKey

CURRENT_LEADER_TAG: Final = 0

_APPEND_TIME_FROM: Final = 2
_LOG_START_FROM: Final = 5
_ERROR_MESSAGES_FROM: Final = 8
_FLEXIBLE_FROM: Final = SERVED[ApiKey.PRODUCE].flexible_from
_LEADERS_FROM: Final = 10

_ACKS = struct.Struct(">hi")
_ACKS_AT: Final = 1
_TOPICS_AT: Final = 7
_NAME_AT: Final = 9
_ONE: Final = 2
"""The count of an array with one element in flexible versions."""
_NO_TAGS_ANYWHERE: Final = bytes(3)
"""The bytes after the only batch: no tagged fields of its partition, topic and request."""
TOPICS_REMEMBERED: Final = 1_024
"""Maximum number of topics whose part of an answer is cached in its encoded form."""
_TOPIC_BYTES_MIN: Final = 2
_PARTITION_BYTES_MIN: Final = 5


class ProducePartition(NamedTuple):
    """The part of a request for one partition; `records` is a view of the frame."""

    partition: int
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """The part of a request for one topic."""

    name: str
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    """A complete request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducePartitionResult(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = ErrorCode.NONE
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    current_leader: CurrentLeader | None = None
    record_errors: Sequence[RecordError] = ()


class ProduceTopicResult(NamedTuple):
    """The answers for one topic."""

    name: str
    partitions: Sequence[ProducePartitionResult]


def decode_produce(version: int, data: memoryview) -> ProduceRequest:
    """Decode the body of a request. Raises KafkaFrameError if it is damaged."""
    try:
        return _decode(version, data)
    except DAMAGED as error:
        raise KafkaFrameError(f"a Produce request is damaged: {error}") from error


def _decode(version: int, data: memoryview) -> ProduceRequest:
    flexible = version >= _FLEXIBLE_FROM
    if flexible and (request := _decode_single(data)) is not None:
        return request
    transactional_id, position = None, 0
    if flexible and not data[0]:
        position = 1  # null: most requests have no transactional id
    elif version >= PRODUCE_VERSION_MIN:
        transactional_id, position = read_string(data, 0, is_flexible=flexible)
    acks, timeout_ms = _ACKS.unpack_from(data, position)
    count, position = read_count(
        data, position + _ACKS.size, _TOPIC_BYTES_MIN, is_flexible=flexible
    )
    topics = list[ProduceTopic]()
    room = ELEMENTS_MAX
    for _ in range(count):
        topic, position = _read_topic(data, position, flexible=flexible)
        topics.append(topic)
        room -= 1 + len(topic.partitions)
        if room < 0:
            raise too_many_elements(ELEMENTS_MAX)
    if flexible:
        skip_tags(data, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_single(data: memoryview) -> ProduceRequest | None:
    """Decode a request with one batch outside of transactions; return None for any other request.

    With many partitions most requests are of this form. Others are read field by field.
    """
    length = data[_NAME_AT - 1]
    if data[0] or data[_TOPICS_AT] != _ONE or not 1 < length < VARINT_MORE:
        return None
    name_end = _NAME_AT - 1 + length
    if data[name_end] != _ONE:
        return None
    size, start = read_varint(data, name_end + 1 + INT32.size)
    end = start + size - 1
    if not size or data[end:] != _NO_TAGS_ANYWHERE:
        return None
    (partition,) = INT32.unpack_from(data, name_end + 1)
    name = str(data[_NAME_AT:name_end], "utf-8")
    topics = [ProduceTopic(name, [ProducePartition(partition, data[start:end])])]
    acks, timeout_ms = _ACKS.unpack_from(data, _ACKS_AT)
    return ProduceRequest(None, acks, timeout_ms, topics)


def _read_topic(data: memoryview, position: int, *, flexible: bool) -> tuple[ProduceTopic, int]:
    name, position = read_text(data, position, is_flexible=flexible)
    count, position = read_count(data, position, _PARTITION_BYTES_MIN, is_flexible=flexible)
    if flexible:
        partitions, position = _read_flexible_partitions(data, position, count)
        position = position + 1 if not data[position] else skip_tags(data, position)
        return ProduceTopic(name, partitions), position
    partitions = []
    for _ in range(count):
        (partition,) = INT32.unpack_from(data, position)
        records, position = read_bytes(data, position + 4, is_flexible=False)
        partitions.append(ProducePartition(partition, records))
    return ProduceTopic(name, partitions), position


def _read_flexible_partitions(
    data: memoryview, position: int, count: int
) -> tuple[list[ProducePartition], int]:
    """Read the elements of the array, with few calls: they are most of the work of decoding."""
    partitions = []
    unpack, size = INT32.unpack_from, len(data)
    records: memoryview | None
    for _ in range(count):
        (partition,) = unpack(data, position)
        start = position + 4
        length = data[start]
        position = start + 1
        if length & 0x80:
            length, position = read_varint(data, start)
        end = position + length - 1
        if length and end < size:
            records, position = data[position:end], end
        else:  # null, or a length that `read_bytes` refuses
            records, position = read_bytes(data, start, is_flexible=True)
        partitions.append(ProducePartition(partition, records))
        position = position + 1 if not data[position] else skip_tags(data, position)
    return partitions, position


def encode_produce_response(
    version: int,
    topics: Sequence[ProduceTopicResult],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode the body of a response; fields that the version lacks are left out."""
    flexible = version >= _FLEXIBLE_FROM
    parts = [count_of(len(topics), is_flexible=flexible)]
    for topic in topics:
        parts.append(string(topic.name, is_flexible=flexible))
        parts.append(count_of(len(topic.partitions), is_flexible=flexible))
        parts += [_encode_partition(version, partition) for partition in topic.partitions]
        if flexible:
            parts.append(NO_TAGS)
    if version >= 1:
        parts.append(INT32.pack(throttle_time_ms))
    if flexible:
        parts.append(NO_TAGS)
        if node_endpoints and version >= _LEADERS_FROM:
            parts[-1] = varint(1) + tag(NODE_ENDPOINTS_TAG, encode_endpoints(node_endpoints))
    return b"".join(parts)


def encode_appended(
    version: int, topic: str, partition: int, appended: tuple[int, int, int]
) -> bytes:
    """Encode the body of a response for a request with one batch that was appended.

    `appended` is the base offset, the append time in ms and the log start offset.
    """
    if version < _FLEXIBLE_FROM:
        result = ProducePartitionResult(partition, ErrorCode.NONE, *appended)
        return encode_produce_response(version, [ProduceTopicResult(topic, [result])])
    result_bytes = _RESULT_WITH_START.pack(partition, 0, *appended)
    return _only_topic(topic) + result_bytes + _ONLY_RESULT_END


@lru_cache(maxsize=TOPICS_REMEMBERED)
def _only_topic(name: str) -> bytes:
    one = count_of(1, is_flexible=True)
    return one + string(name, is_flexible=True) + one


_RESULT = struct.Struct(">ihq")
_RESULT_WITH_TIME = struct.Struct(">ihqq")
_RESULT_WITH_START = struct.Struct(">ihqqq")
_PLAIN_END: Final = b"\x01\x00\x00"
"""In flexible versions: no record errors, no message, no tagged fields. A result with record errors
has a message."""


def _encode_partition(version: int, result: ProducePartitionResult) -> bytes:
    if version >= _FLEXIBLE_FROM and result.error_message is None and result.current_leader is None:
        return _RESULT_WITH_START.pack(*result[:5]) + _PLAIN_END
    if version < _APPEND_TIME_FROM:
        return _RESULT.pack(*result[:3])
    if version < _LOG_START_FROM:
        return _RESULT_WITH_TIME.pack(*result[:4])
    start = _RESULT_WITH_START.pack(*result[:5])
    if version < _ERROR_MESSAGES_FROM:
        return start
    if version < _FLEXIBLE_FROM:
        errors = _encode_record_errors(result.record_errors, is_flexible=False)
        return start + errors + string(result.error_message, is_flexible=False)
    errors = _encode_record_errors(result.record_errors, is_flexible=True)
    message = errors + string(result.error_message, is_flexible=True)
    if result.current_leader is None or version < _LEADERS_FROM:
        return start + message + NO_TAGS
    leader = tag(CURRENT_LEADER_TAG, result.current_leader.encode())
    return start + message + varint(1) + leader


def _encode_record_errors(errors: Sequence[RecordError], *, is_flexible: bool) -> bytes:
    parts = [count_of(len(errors), is_flexible=is_flexible)]
    for index, text in errors:
        parts += [INT32.pack(index), string(text, is_flexible=is_flexible)]
        if is_flexible:
            parts.append(NO_TAGS)
    return b"".join(parts)


_ONLY_RESULT_END: Final = _PLAIN_END + NO_TAGS + INT32.pack(0) + NO_TAGS
"""The bytes after the only result: end of its topic, no throttling, end of the response."""
