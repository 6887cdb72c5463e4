"""Benchmark of the broker's protocol: cost of each Produce and each Fetch, without a socket.

Produce: a request is decoded, its batches are checked and get offsets, the response is encoded.
Fetch: a request of ten partitions is decoded, the response is encoded around existing batches.
Leaves the costs of a log and of the network to benchmarks of complete clusters.

Target: 15 us for a small Produce, 60 us for one of 1 MB, most of it its CRC, and 40 us for a Fetch
of ten batches: the network and the log cost several times that.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from random import Random
from time import perf_counter
from typing import Final

from benchmarks.measures import interleaved
from benchmarks.runner import Bench, run
from broker_layer.kafka.fetch_codec import (
    FetchPartitionResult,
    FetchTopicResult,
    decode_fetch,
    encode_fetch_response,
)
from broker_layer.kafka.frames import read_request_header, response_frame
from broker_layer.kafka.primitives import NO_TAGS, varint
from broker_layer.kafka.produce_codec import (
    ProducePartitionResult,
    ProduceTopicResult,
    decode_produce,
    encode_produce_response,
)
from broker_layer.kafka.record_batch import Record, build_batch, check_batch, place, read_header
from broker_layer.kafka.versions import ApiKey

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
FETCHED_PARTITIONS: Final = 10
TOPIC: Final = b"topic"
RUN_BYTES: Final = 500_000_000
CALLS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request."""

    name: str
    call: Callable[[], object]
    bytes_each: int
    us_wanted: float | None = None


def _header(api_key: ApiKey, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, -1) + NO_TAGS


def _topic(partitions: list[bytes]) -> bytes:
    name = varint(len(TOPIC) + 1) + TOPIC
    return varint(2) + name + varint(len(partitions) + 1) + b"".join(partitions) + NO_TAGS


def _produce(partition_count: int, record_bytes: int, us_wanted: float | None) -> Case:
    batch = bytes(build_batch([Record(0, 0, None, Random(1).randbytes(record_bytes))]))
    length = varint(len(batch) + 1)
    partitions = [
        struct.pack(">i", number) + length + batch + NO_TAGS for number in range(partition_count)
    ]
    body = NO_TAGS + struct.pack(">hi", -1, 30_000) + _topic(partitions) + NO_TAGS
    frame = memoryview(bytearray(_header(ApiKey.PRODUCE, PRODUCE_VERSION) + body))

    def call() -> None:
        header = read_request_header(frame)
        request = decode_produce(header.api_version, frame[header.body_start :])
        topics = []
        for topic in request.topics:
            results = []
            for partition, records in topic.partitions:
                assert records is not None
                check_batch(records, read_header(records))
                place(records, 5, 1)
                results.append(ProducePartitionResult(partition, 0, 5, -1, 0))
            topics.append(ProduceTopicResult(topic.name, results))
        answer = encode_produce_response(header.api_version, topics)
        response_frame(header.api_key, header.api_version, header.correlation_id, [answer])

    name = f"Produce v{PRODUCE_VERSION}, {partition_count} x {record_bytes} B"
    return Case(name, call, partition_count * record_bytes, us_wanted)


def _fetch(batch_bytes: int, us_wanted: float | None) -> Case:
    partitions = [
        struct.pack(">iiqiqi", number, 1, 7, -1, -1, 1 << 20) + NO_TAGS
        for number in range(FETCHED_PARTITIONS)
    ]
    limits = struct.pack(">iiiibii", -1, 500, 1, 1 << 25, 0, 0, -1)
    end = varint(1) + varint(1) + NO_TAGS  # no forgotten topics, no rack, no tags
    frame = memoryview(_header(ApiKey.FETCH, FETCH_VERSION) + limits + _topic(partitions) + end)
    batches = (bytes(batch_bytes),) if batch_bytes else ()

    def call() -> None:
        header = read_request_header(frame)
        request = decode_fetch(header.api_version, frame[header.body_start :])
        topics = [
            FetchTopicResult(
                str(topic.key),
                bytes(16),
                [
                    FetchPartitionResult(partition.partition, 0, 9, 9, 0, None, batches)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        answer = list(chain.from_iterable(encode_fetch_response(header.api_version, topics)))
        response_frame(header.api_key, header.api_version, header.correlation_id, answer)

    name = f"Fetch v{FETCH_VERSION}, {FETCHED_PARTITIONS} x {batch_bytes} B"
    return Case(name, call, FETCHED_PARTITIONS * batch_bytes, us_wanted)


async def _measure(bench: Bench) -> None:
    cases = {
        case.name: case
        for case in (
            _produce(1, 200, 15.0),
            _produce(10, 200, None),
            _produce(1, 1_000_000, 60.0),
            _produce(10, 100_000, None),
            _fetch(100_000, 40.0),
            _fetch(0, None),
        )
    }
    for _, name in interleaved(list(cases), bench.repetitions):
        case = cases[name]
        usual = max(200, min(CALLS_MAX, RUN_BYTES // max(case.bytes_each, 1)))
        count = bench.size(usual, 20)
        before = perf_counter()
        for _ in range(count):
            case.call()
        bench.report.sample(name, {"us": (perf_counter() - before) / count * 1e6})
    for name, case in cases.items():
        bench.report.figure(name, "us", "us", at_most=case.us_wanted)


if __name__ == "__main__":
    run("kafka_codec", _measure, repeat=7)
