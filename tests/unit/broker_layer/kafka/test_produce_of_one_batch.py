"""Tests of the fast path of a Produce with one batch: it has the result of the general path."""

import itertools

import pytest
from kafka.protocol.producer import ProduceRequest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.produce_codec import (
    ProducePartition,
    ProducePartitionResult,
    ProduceTopic,
    ProduceTopicResult,
    decode_produce,
    encode_appended,
    encode_produce_response,
)

TOPICS = ("t", "other", "x" * 249)
PRODUCE_VERSIONS = range(3, 12)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("name", ["t", "x" * 125, "x" * 126, "x" * 127, "x" * 249, "\u00e9"])
def test_request_of_one_batch(version: int, name: str) -> None:
    topic = ProduceRequest.TopicProduceData
    for records in (None, b"", b"r", bytes(126), bytes(127), bytes(20_000)):
        for transactional_id in (None, "transaction"):
            only = topic.PartitionProduceData(index=2**31 - 1, records=records)
            theirs = ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=1_234_567,
                topic_data=[topic(name=name, partition_data=[only])],
            )
            data = bytes(theirs.encode(version=version))
            found = decode_produce(version, memoryview(data))
            assert found[:3] == (transactional_id, -1, 1_234_567)
            assert found.topics == [(name, [(2**31 - 1, records)])]
            for size in range(len(data) - 4, len(data)):
                with pytest.raises(KafkaFrameError):
                    decode_produce(version, memoryview(data[:size]))


def test_tagged_fields_of_one_batch_request_are_ignored() -> None:
    head = b"\x00\xff\xff\x00\x00\x00\x01\x02\x02t\x02\x00\x00\x00\x07\x04abc"
    tags = b"\x01\x05\x01z"
    for ends in itertools.product((b"\x00", tags), repeat=3):
        found = decode_produce(9, memoryview(head + b"".join(ends)))
        assert found.topics == [ProduceTopic("t", [ProducePartition(7, memoryview(b"abc"))])]
        assert (found.transactional_id, found.acks, found.timeout_ms) == (None, -1, 1)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_answer_to_request_of_one_batch(version: int) -> None:
    for name in TOPICS:
        for appended in ((0, -1, 0), (2**62, 2**40, 2**61)):
            result = ProducePartitionResult(2**31 - 1, ErrorCode.NONE, *appended)
            expected = encode_produce_response(version, [ProduceTopicResult(name, [result])])
            assert encode_appended(version, name, 2**31 - 1, appended) == expected
