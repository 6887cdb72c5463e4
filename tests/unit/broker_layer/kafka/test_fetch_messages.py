"""Fetch as a client sends it: the broker reads it, and any bytes are an answer or refused."""

import struct
from itertools import chain
from random import Random

import pytest

from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.fetch_codec import (
    FetchPartitionResult,
    FetchTopicResult,
    decode_fetch,
    encode_fetch_response,
)
from broker_layer.kafka.messages import FETCH_VERSION, Fetched, decode_fetched, encode_fetch


def answer(records: bytes) -> bytes:
    """Return an answer as the broker encodes it."""
    row = FetchPartitionResult(3, 0, 20, 20, 5, None, [records])
    topic = FetchTopicResult("t", bytes(16), [row])
    return b"".join(chain.from_iterable(encode_fetch_response(FETCH_VERSION, [topic])))


def test_the_broker_reads_the_request() -> None:
    body = encode_fetch("t", 3, 7, bytes_max=1_000, max_wait_ms=50)
    request = decode_fetch(FETCH_VERSION, memoryview(body))
    assert (request.max_wait_ms, request.session_epoch) == (50, -1)
    ((topic),) = request.topics
    (partition,) = topic.partitions
    assert (topic.key, partition.partition, partition.fetch_offset) == ("t", 3, 7)
    assert partition.bytes_max == 1_000


@pytest.mark.parametrize("records", [b"", b"batches"])
def test_the_answer_of_the_broker_is_read(records: bytes) -> None:
    assert decode_fetched(memoryview(answer(records))) == Fetched(0, 20, 5, records)


def test_damaged_answers_are_refused_or_read() -> None:
    rng, good = Random(3), answer(b"batches")
    for _ in range(2_000):
        data = bytearray(good[: rng.randrange(len(good) + 1)])
        for _ in range(rng.randrange(3)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            decode_fetched(memoryview(data))
        except KafkaFrameError:
            continue


def test_an_answer_for_no_partition_is_refused() -> None:
    empty = struct.pack(">ihi", 0, 0, 0) + b"\1\0"
    with pytest.raises(KafkaFrameError, match="another number"):
        decode_fetched(memoryview(empty))
