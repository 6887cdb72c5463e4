"""A request has a bounded number of elements, and a large answer is encoded piece by piece."""

import re
import struct
from functools import partial
from random import Random

import pytest

from benchmarks.brokers.filled_request import Filling, filled, ways_of
from broker_layer.kafka import messages
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.fetch_codec import decode_fetch
from broker_layer.kafka.frames import read_request_header
from broker_layer.kafka.messages import (
    ApiMessage,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    answer_pieces,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_class,
)
from broker_layer.kafka.primitives import ELEMENTS_MAX, TAGS_MAX, varint
from broker_layer.kafka.produce_codec import decode_produce
from broker_layer.kafka.versions import SERVED, ApiKey
from tests.support.broker_layer.sample_messages import sample

HOT = (ApiKey.PRODUCE, ApiKey.FETCH)
TOO_MANY = re.escape(f"a message has more than {ELEMENTS_MAX} elements")


@pytest.mark.parametrize("key", [api_key for api_key in ApiKey if api_key not in HOT])
def test_every_array_of_a_request_is_bounded(key: ApiKey) -> None:
    version = SERVED[key].max
    is_flexible = version >= SERVED[key].flexible_from
    schema = request_class(key).json
    for way in ways_of(schema, version):
        most = filled(schema, way, ELEMENTS_MAX, Filling(version, is_flexible))
        decode_request(key, version, most)
        more = filled(schema, way, 2 * ELEMENTS_MAX, Filling(version, is_flexible))
        with pytest.raises(KafkaFrameError, match=TOO_MANY):
            decode_request(key, version, more)


def test_the_topics_of_a_fetch_and_of_a_produce_are_bounded() -> None:
    start = struct.pack(">iiiib", -1, 1, 1, 1, 0)
    many = struct.pack(">i", ELEMENTS_MAX) + struct.pack(">hi", 0, 0) * ELEMENTS_MAX
    more = struct.pack(">i", ELEMENTS_MAX + 1) + struct.pack(">hi", 0, 0) * (ELEMENTS_MAX + 1)
    assert len(decode_fetch(4, memoryview(start + many)).topics) == ELEMENTS_MAX
    with pytest.raises(KafkaFrameError, match=TOO_MANY):
        decode_fetch(4, memoryview(start + more))
    start = struct.pack(">hhi", -1, 1, 1)
    assert len(decode_produce(3, memoryview(start + many)).topics) == ELEMENTS_MAX
    with pytest.raises(KafkaFrameError, match=TOO_MANY):
        decode_produce(3, memoryview(start + more))


def _tags(count: int) -> bytes:
    return varint(count) + b"\x63\0" * count


def test_the_tagged_fields_of_a_header_a_fetch_and_a_produce_are_bounded() -> None:
    header = struct.pack(">hhih", ApiKey.PRODUCE, 9, 1, -1)
    produce = b"\0" + struct.pack(">hi", -1, 1) + b"\1"
    fetch = struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, -1) + b"\1\1\1"
    for decode, start in (
        (read_request_header, header),
        (partial(decode_produce, 9), produce),
        (partial(decode_fetch, 12), fetch),
    ):
        decode(memoryview(start + _tags(TAGS_MAX)))
        with pytest.raises(KafkaFrameError, match=f"more than {TAGS_MAX}"):
            decode(memoryview(start + _tags(TAGS_MAX + 1)))


def test_the_tagged_fields_of_other_requests_count_as_elements() -> None:
    body = b"\1\0\0\0"
    decode_request(ApiKey.METADATA, 9, memoryview(body + _tags(ELEMENTS_MAX)))
    with pytest.raises(KafkaFrameError, match=TOO_MANY):
        decode_request(ApiKey.METADATA, 9, memoryview(body + _tags(ELEMENTS_MAX + 1)))


def test_a_request_that_the_other_broker_refuses_is_not_sent() -> None:
    names = [f"group-{number}" for number in range(ELEMENTS_MAX + 1)]
    encode_request(DescribeGroupsRequest(groups=names[:-1]), 5)
    with pytest.raises(KafkaFrameError, match=TOO_MANY):
        encode_request(DescribeGroupsRequest(groups=names), 5)


def test_an_answer_may_have_more_elements() -> None:
    row = DescribeGroupsResponse.DescribedGroup
    groups = [row(group_id=f"group-{number}") for number in range(ELEMENTS_MAX + 1)]
    encoded = encode_response(DescribeGroupsResponse(groups=groups), 5)
    answer = decode_response(ApiKey.DESCRIBE_GROUPS, 5, bytes(encoded))
    assert isinstance(answer, DescribeGroupsResponse)
    assert len(answer.groups) == ELEMENTS_MAX + 1


def _response_of(key: ApiKey, version: int, rng: Random) -> ApiMessage:
    return sample(messages._MESSAGES[key][1], version, rng)


@pytest.mark.parametrize("key", [api_key for api_key in ApiKey if api_key not in HOT])
def test_the_pieces_of_an_answer_are_the_answer(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "PIECE_ELEMENTS", 1)
    rng = Random(key)
    for version in range(SERVED[key].min, SERVED[key].max + 1):
        for _ in range(10):
            response = _response_of(key, version, rng)
            whole = bytes(encode_response(response, version))
            assert b"".join(answer_pieces(response, version)) == whole
            assert bytes(encode_response(response, version)) == whole, "it is as it was"


def test_a_large_answer_has_several_pieces() -> None:
    kind = FindCoordinatorResponse.Coordinator
    rows = [kind(key=f"group-{number}") for number in range(1_000)]
    response = FindCoordinatorResponse(coordinators=rows)
    pieces = list(answer_pieces(response, 4))
    assert len(pieces) > 1_000 // messages.PIECE_ELEMENTS
    assert b"".join(pieces) == encode_response(response, 4)
