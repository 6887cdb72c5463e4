"""Tests of the codecs of Produce and Fetch, compared with kafka-python and aiokafka."""

import contextlib
import random
import struct
import uuid
from io import BytesIO
from itertools import chain

import pytest
from aiokafka.protocol import fetch as aiokafka_fetch
from aiokafka.protocol import produce as aiokafka_produce
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.fetch_codec import (
    FetchPartitionResult,
    FetchTopicResult,
    decode_fetch,
    encode_fetch_response,
)
from broker_layer.kafka.primitives import ELEMENTS_MAX, CurrentLeader, NodeEndpoint, varint
from broker_layer.kafka.produce_codec import (
    ProducePartitionResult,
    ProduceTopicResult,
    decode_produce,
    encode_produce_response,
)

TOPICS = ("t", "other", "x" * 249)
ENDPOINTS = (NodeEndpoint(3, "host", 9092), NodeEndpoint(4, "h" * 200, 1, "rack"))
PRODUCE_VERSIONS = range(3, 12)
FETCH_VERSIONS = range(4, 17)


def produce_request(version: int, rng: random.Random) -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    topics = [
        topic(
            name=rng.choice(TOPICS),
            partition_data=[
                topic.PartitionProduceData(
                    index=rng.randrange(2**31),
                    records=rng.choice(
                        (None, b"", rng.randbytes(rng.choice((1, 126, 127, 40_000))))
                    ),
                )
                for _ in range(rng.choice((0, 1, 3)))
            ],
        )
        for _ in range(rng.choice((0, 1, 3)))
    ]
    transactional_id = rng.choice((None, "", "transaction"))
    acks = rng.choice((-1, 0, 1))
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=topics
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests(version: int) -> None:
    rng = random.Random(version)
    for _ in range(40):
        theirs = produce_request(version, rng)
        found = decode_produce(version, memoryview(bytes(theirs.encode(version=version))))
        assert found.transactional_id == theirs.transactional_id
        assert (found.acks, found.timeout_ms) == (theirs.acks, theirs.timeout_ms)
        assert [
            (
                topic.name,
                [(partition.partition, partition.records) for partition in topic.partitions],
            )
            for topic in found.topics
        ] == [
            (
                topic.name,
                [
                    (produce_data.index, produce_data.records)
                    for produce_data in topic.partition_data
                ],
            )
            for topic in theirs.topic_data
        ]


def test_records_are_views_of_the_frame() -> None:
    request = produce_request(9, random.Random(1))
    frame = bytearray(request.encode(version=9))
    found = decode_produce(9, memoryview(frame))
    for topic in found.topics:
        for partition in topic.partitions:
            if partition.records:
                assert partition.records.obj is frame
                partition.records[0] = 7


def test_old_produce_versions_are_decoded_and_refused() -> None:
    body = struct.pack(">hiih1sii3s", 1, 500, 1, 1, b"t", 1, 6, b"")[:-3] + struct.pack(">i", 3)
    for version in (0, 1, 2):
        found = decode_produce(version, memoryview(body + b"old"))
        assert (found.transactional_id, found.acks, found.timeout_ms) == (None, 1, 500)
        partitions = found.topics[0].partitions
        assert [produce_partition.partition for produce_partition in partitions] == [6]
        refused = ProducePartitionResult(6, ErrorCode.UNSUPPORTED_VERSION)
        answer = [ProduceTopicResult("t", [refused])]
        theirs = getattr(aiokafka_produce, f"ProduceResponse_v{version}").decode(
            BytesIO(encode_produce_response(version, answer, throttle_time_ms=5))
        )
        ((name, ((partition, code, *rest),)),) = theirs.topics
        assert (name, partition, code) == ("t", 6, 35)
        assert rest == [-1, -1][: 1 + (version == 2)]


def produce_results(rng: random.Random) -> list[ProduceTopicResult]:
    return [
        ProduceTopicResult(
            rng.choice(TOPICS),
            [
                ProducePartitionResult(
                    rng.randrange(2**31),
                    rng.choice((0, 6, -1)),
                    rng.randrange(2**62),
                    rng.choice((-1, 2**40)),
                    rng.randrange(2**62),
                    rng.choice((None, "", "why", "x" * 300)),
                    rng.choice((None, CurrentLeader(3, 2**31 - 1))),
                )
                for _ in range(rng.choice((0, 1, 3)))
            ],
        )
        for _ in range(rng.choice((0, 1, 3)))
    ]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_responses(version: int) -> None:
    rng = random.Random(version)
    for number in range(40):
        topics = produce_results(rng)
        endpoints = ENDPOINTS[: number % 3]
        encoded = encode_produce_response(
            version, topics, throttle_time_ms=77, node_endpoints=endpoints
        )
        theirs = ProduceResponse.decode(encoded, version=version)
        assert theirs.throttle_time_ms == 77
        assert [topic.name for topic in theirs.responses] == [topic.name for topic in topics]
        for topic, their_topic in zip(topics, theirs.responses, strict=True):
            for ours, each in zip(topic.partitions, their_topic.partition_responses, strict=True):
                assert (each.index, each.error_code, each.base_offset) == ours[:3]
                assert each.log_append_time_ms == ours.log_append_time_ms
                if version >= 5:
                    assert each.log_start_offset == ours.log_start_offset
                if version >= 8:
                    assert each.record_errors == []
                    assert each.error_message == ours.error_message
                if version >= 10 and ours.current_leader:
                    leader = each.current_leader
                    assert (leader.leader_id, leader.leader_epoch) == ours.current_leader
                else:
                    assert not each.current_leader
        if version >= 10:
            found = [
                (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
                for endpoint in theirs.node_endpoints or ()
            ]
            assert found == [tuple(endpoint) for endpoint in endpoints]
        reencoded = ProduceResponse(
            responses=theirs.responses,
            throttle_time_ms=77,
            **({"node_endpoints": theirs.node_endpoints} if version >= 10 else {}),
        )
        assert bytes(reencoded.encode(version=version)) == encoded


def fetch_request(version: int, rng: random.Random) -> FetchRequest:
    topic, forgotten = FetchRequest.FetchTopic, FetchRequest.ForgottenTopic
    topics = [
        topic(
            topic=rng.choice(TOPICS),
            topic_id=uuid.UUID(int=rng.randrange(1, 2**128)),
            partitions=[
                topic.FetchPartition(
                    partition=rng.randrange(2**31),
                    current_leader_epoch=rng.choice((-1, 5)),
                    fetch_offset=rng.randrange(2**63),
                    last_fetched_epoch=rng.choice((-1, 4)),
                    log_start_offset=rng.choice((-1, 4)),
                    partition_max_bytes=rng.randrange(2**31),
                )
                for _ in range(rng.choice((0, 1, 3)))
            ],
        )
        for _ in range(rng.choice((0, 1, 3)))
    ]
    gone = [
        forgotten(
            topic=rng.choice(TOPICS),
            topic_id=uuid.UUID(int=rng.randrange(1, 2**128)),
            partitions=[rng.randrange(2**31) for _ in range(rng.choice((0, 1, 200)))],
        )
        for _ in range(rng.choice((0, 1, 3)))
    ]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=2**31 - 1,
        isolation_level=rng.choice((0, 1)),
        session_id=rng.randrange(2**31),
        session_epoch=rng.choice((-1, 0, 7)),
        topics=topics,
        forgotten_topics_data=gone,
        rack_id=rng.choice(("", "rack")),
    )
    if version >= 12 and rng.random() < 0.3:
        request.cluster_id = "cluster"
    return request


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_requests(version: int) -> None:
    rng = random.Random(version)
    for _ in range(40):
        encoded = bytes(fetch_request(version, rng).encode(version=version))
        theirs = FetchRequest.decode(encoded, version=version)  # with the version's defaults
        found = decode_fetch(version, memoryview(encoded))
        assert (found.replica_id, found.max_wait_ms) == (-1, 500)
        assert (found.bytes_min, found.bytes_max) == (theirs.min_bytes, theirs.max_bytes)
        assert found.isolation_level == theirs.isolation_level
        assert (found.session_id, found.session_epoch) == (theirs.session_id, theirs.session_epoch)
        assert found.rack_id == theirs.rack_id
        key = "topic_id" if version >= 13 else "topic"
        for ours, each in zip(found.topics, theirs.topics, strict=True):
            assert shown(ours.key) == getattr(each, key)
            assert [tuple(one) for one in ours.partitions] == [
                (
                    one.partition,
                    one.current_leader_epoch,
                    one.fetch_offset,
                    one.last_fetched_epoch,
                    one.log_start_offset,
                    one.partition_max_bytes,
                )
                for one in each.partitions
            ]
        assert [list(topic.partitions) for topic in found.forgotten] == [
            each.partitions for each in theirs.forgotten_topics_data
        ]
        for gone, each in zip(found.forgotten, theirs.forgotten_topics_data, strict=True):
            assert shown(gone.key) == getattr(each, key)


def shown(key: str | bytes) -> str | uuid.UUID:
    return uuid.UUID(bytes=key) if isinstance(key, bytes) else key


def fetch_results(rng: random.Random) -> list[FetchTopicResult]:
    return [
        FetchTopicResult(
            rng.choice(TOPICS),
            rng.randbytes(16),
            [
                FetchPartitionResult(
                    rng.randrange(2**31),
                    rng.choice((0, 1, -1)),
                    rng.randrange(2**62),
                    rng.randrange(2**62),
                    rng.randrange(2**62),
                    rng.choice((None, [], [(5, 6)], [(2**62, 1)] * 200)),
                    [rng.randbytes(rng.choice((61, 200))) for _ in range(rng.choice((0, 1, 3)))],
                    rng.choice((None, CurrentLeader(3, 4))),
                )
                for _ in range(rng.choice((0, 1, 3)))
            ],
        )
        for _ in range(rng.choice((0, 1, 3)))
    ]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_responses(version: int) -> None:
    rng = random.Random(version)
    for number in range(40):
        topics = fetch_results(rng)
        endpoints = ENDPOINTS[: number % 3]
        pieces = encode_fetch_response(
            version,
            topics,
            error_code=70,
            session_id=99,
            throttle_time_ms=5,
            node_endpoints=endpoints,
        )
        buffers = list(chain.from_iterable(pieces))
        given = [
            batch
            for topic in topics
            for partition in topic.partitions
            for batch in partition.batches
        ]
        kept = [buffer for buffer in buffers if any(buffer is batch for batch in given)]
        assert len(kept) == len(given)
        encoded = b"".join(buffers)
        theirs = FetchResponse.decode(encoded, version=version)
        assert theirs.throttle_time_ms == 5
        if version >= 7:
            assert (theirs.error_code, theirs.session_id) == (70, 99)
        for topic, their_topic in zip(topics, theirs.responses, strict=True):
            if version >= 13:
                assert their_topic.topic_id == uuid.UUID(bytes=topic.topic_id)
            else:
                assert their_topic.topic == topic.name
            for ours, each in zip(topic.partitions, their_topic.partitions, strict=True):
                assert (each.partition_index, each.error_code, each.high_watermark) == ours[:3]
                assert each.last_stable_offset == ours.last_stable_offset
                if version >= 5:
                    assert each.log_start_offset == ours.log_start_offset
                found = each.aborted_transactions
                assert (ours.aborted is None) == (found is None)
                pairs = [(one.producer_id, one.first_offset) for one in found or ()]
                assert pairs == list(ours.aborted or ())
                assert each.preferred_read_replica == -1
                assert each.records == b"".join(ours.batches)
                if version >= 12 and ours.current_leader:
                    leader = each.current_leader
                    assert (leader.leader_id, leader.leader_epoch) == ours.current_leader
        if version >= 16:
            assert len(theirs.node_endpoints or ()) == len(endpoints)


def test_aiokafka_reads_responses() -> None:
    rng = random.Random(3)
    for version in range(4, 12):
        topics = fetch_results(rng)
        data = BytesIO(b"".join(chain.from_iterable(encode_fetch_response(version, topics))))
        theirs = getattr(aiokafka_fetch, f"FetchResponse_v{version}").decode(data)
        assert [name for name, _ in theirs.topics] == [topic.name for topic in topics]
        assert not data.read()
    for version in range(3, 9):
        results = produce_results(rng)
        data = BytesIO(encode_produce_response(version, results))
        answer = getattr(aiokafka_produce, f"ProduceResponse_v{version}").decode(data)
        assert [name for name, _ in answer.topics] == [topic.name for topic in results]
        assert not data.read()


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_damaged_produce_raises_frame_error_or_decodes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(10):
        encoded = bytes(produce_request(version, rng).encode(version=version))[:600]
        for size in range(len(encoded)):
            with contextlib.suppress(KafkaFrameError):
                decode_produce(version, memoryview(encoded)[:size])
        for _ in range(60):
            damaged = bytearray(encoded)
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 127, 128, 255))
            with contextlib.suppress(KafkaFrameError):
                decode_produce(version, memoryview(damaged))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_damaged_fetch_raises_frame_error_or_decodes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(10):
        encoded = bytes(fetch_request(version, rng).encode(version=version))
        for size in range(0, len(encoded), 1 + len(encoded) // 50):
            with pytest.raises(KafkaFrameError):
                decode_fetch(version, memoryview(encoded)[:size])
        for _ in range(60):
            damaged = bytearray(encoded)
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 127, 128, 255))
            with contextlib.suppress(KafkaFrameError):
                decode_fetch(version, memoryview(damaged))


START_3 = struct.pack(">hhi", -1, 1, 1000)
START_9 = b"\0" + struct.pack(">hi", 1, 1000)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (3, START_3 + struct.pack(">i", 2**31 - 1) + bytes(100)),
        (3, START_3 + struct.pack(">i", -1)),
        (3, START_3 + struct.pack(">ih", 1, -1) + bytes(20)),
        (3, START_3 + struct.pack(">ihiii", 1, 0, 1, 7, 2**31 - 1)),
        (3, START_3 + struct.pack(">ihiii", 1, 0, 1, 7, -2)),
        (3, START_3 + struct.pack(">i", ELEMENTS_MAX + 1) + bytes(6 * (ELEMENTS_MAX + 2))),
        (3, START_3 + struct.pack(">ihi", 1, 0, 1 << 30) + bytes(1000)),
        (3, START_3 + struct.pack(">ih", 1, 2) + b"\xff\xff" + bytes(20)),
        (9, START_9 + b"\xff" * 10_000),
        (9, varint(2**15 + 1) + b"t" * 2**15 + START_9[1:] + b"\x01\x00"),
        (9, START_9 + varint(2**32 - 1) + bytes(100)),
        (9, START_9 + b"\x02\x02t\x02" + bytes(4) + varint(1000) + b"short"),
        (9, START_9 + b"\x02\x02t\x02" + bytes(4) + b"\x01\x01\x05" + varint(2**31)),
    ],
)
def test_hostile_produce(version: int, body: bytes) -> None:
    with pytest.raises(KafkaFrameError):
        decode_produce(version, memoryview(body))


def test_too_many_small_arrays_are_refused() -> None:
    topic = b"\x01" + varint(1001) + (bytes(4) + b"\x00\x00") * 1000 + b"\x00"
    body = START_9 + varint(302) + topic * 301 + b"\x00"
    with pytest.raises(KafkaFrameError, match="elements"):
        decode_produce(9, memoryview(body))
