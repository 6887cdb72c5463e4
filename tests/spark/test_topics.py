"""Batch queries over topics, on real bookies and a real Spark."""

import json
import uuid
from collections.abc import Callable, Iterator
from random import Random

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

from broker_layer.kafka.record_batch import Compression, ControlKind, Producer, Record
from metadata.topics.partition_store import PartitionStore
from tests.spark.conftest import RunningCluster
from tests.spark.topic_logs import WrittenTopic, records

MakeTopic = Callable[[int], WrittenTopic]


@pytest.fixture
def make_topic(cluster: RunningCluster) -> Iterator[MakeTopic]:
    made: list[WrittenTopic] = []

    def make(partitions: int) -> WrittenTopic:
        name = f"orders-{uuid.uuid4()}"
        made.append(cluster.run(WrittenTopic.create(cluster.metadata, name, partitions)))
        return made[-1]

    yield make
    for topic in made:
        cluster.run(topic.aclose())


def read(spark: SparkSession, cluster: RunningCluster, topic: str, **options: object) -> DataFrame:
    reader = spark.read.format("topic").option("metadata", cluster.metadata)
    reader = reader.options(**{name: str(value) for name, value in options.items()})
    return reader.option("topic", topic).load()


def offsets(rows: list[Row], partition: int = 0) -> list[int]:
    return sorted(row.offset for row in rows if row.partition == partition)


def test_every_record_comes_once_and_unchanged(
    spark: SparkSession, cluster: RunningCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    cluster.run(topic.lead(0))
    cluster.run(topic.append(0, *[records(n, 100) for n in range(0, 1_000, 100)]))
    cluster.run(topic.lead(1))
    cluster.run(topic.append(1, records(0, 50), compression=Compression.ZSTD))
    headers = (("trace", b"1"), ("none", None))
    cluster.run(topic.append(1, [Record(0, 5_000, None, None, headers)]))
    frame = read(spark, cluster, topic.name, splitBytes=8_000, arrowBatchBytes=5_000)
    assert frame.rdd.getNumPartitions() > 3
    rows = frame.collect()
    assert offsets(rows, 0) == list(range(1_000))
    assert offsets(rows, 1) == list(range(51))
    assert {row.topic for row in rows} == {topic.name}
    by_place = {(row.partition, row.offset): row for row in rows}
    assert bytes(by_place[0, 777].key) == b"k777"
    assert bytes(by_place[0, 777].value) == b"777 " + b"x" * 20
    assert by_place[0, 777].timestamp.timestamp() == 1_700_000_000.777
    assert by_place[0, 777].headers is None
    last = by_place[1, 50]
    assert (last.key, last.value) == (None, None)
    assert [(header.key, header.value) for header in last.headers] == [
        ("trace", b"1"),
        ("none", None),
    ]
    assert "headers" not in read(spark, cluster, topic.name, includeHeaders="false").columns


def test_ledgers_and_leaders_follow_each_other(
    spark: SparkSession, cluster: RunningCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    cluster.run(topic.lead(0, segment_bytes=60_000))
    for number in range(3):
        cluster.run(topic.roll(0, 1_000 * number))
    cluster.run(topic.lead(0))
    assert cluster.run(topic.segments(0)) >= 4
    end = topic.logs[0].log_end_offset
    assert offsets(read(spark, cluster, topic.name).collect()) == list(range(end))
    cluster.run(topic.append(0, records(0, 5)))
    frame = read(spark, cluster, topic.name, splitBytes=40_000)
    assert offsets(frame.collect()) == list(range(end + 5))
    rng = Random(1)
    for _ in range(10):
        first, stop = sorted(rng.randrange(end + 6) for _ in range(2))
        some = read(
            spark,
            cluster,
            topic.name,
            startingOffsets=json.dumps({topic.name: {"0": first}}),
            endingOffsets=json.dumps({topic.name: {"0": stop}}),
        )
        assert offsets(some.collect()) == list(range(first, stop))


def test_records_of_aborted_and_open_transactions_are_left_out(
    spark: SparkSession, cluster: RunningCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    cluster.run(topic.lead(0))

    def write(producer_id: int, sequence: int) -> None:
        producer = Producer(producer_id, 0, sequence)
        work = topic.append(0, records(0, 2), producer=producer, is_transactional=True)
        cluster.run(work)

    def end(producer_id: int, kind: ControlKind) -> None:
        cluster.run(topic.end_transaction(0, kind, Producer(producer_id, 0)))

    write(1, 0)  # 0, 1: aborted at 4
    write(2, 0)  # 2, 3: committed at 7
    end(1, ControlKind.ABORT)
    write(1, 2)  # 5, 6: committed at 8
    end(2, ControlKind.COMMIT)
    end(1, ControlKind.COMMIT)
    cluster.run(topic.append(0, records(0, 1)))  # 9
    assert offsets(read(spark, cluster, topic.name).collect()) == [2, 3, 5, 6, 9]
    write(3, 0)  # 10, 11: open
    cluster.run(topic.append(0, records(0, 1)))  # 12
    assert offsets(read(spark, cluster, topic.name).collect()) == [2, 3, 5, 6, 9]
    everything = read(spark, cluster, topic.name, **{"isolation.level": "read_uncommitted"})
    assert offsets(everything.collect()) == [0, 1, 2, 3, 5, 6, 9, 10, 11, 12]
    cluster.run(topic.lead(0))
    end(3, ControlKind.ABORT)  # 13, in the next ledger
    assert offsets(read(spark, cluster, topic.name).collect()) == [2, 3, 5, 6, 9, 12]


def test_records_deleted_by_retention_are_an_error_or_left_out(
    spark: SparkSession, cluster: RunningCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    log = cluster.run(topic.lead(0, segment_bytes=60_000))
    cluster.run(topic.roll(0, 0))
    end = log.log_end_offset
    cluster.run(log.delete_records(7))
    assert offsets(read(spark, cluster, topic.name).collect()) == list(range(7, end))
    start = json.dumps({topic.name: {"0": 3}})
    with pytest.raises(AnalysisException, match="partition 0, offsets 3 to 6"):
        read(spark, cluster, topic.name, startingOffsets=start).collect()
    rest = read(spark, cluster, topic.name, startingOffsets=start, failOnDataLoss="false")
    assert offsets(rest.collect()) == list(range(7, end))
    beyond = json.dumps({topic.name: {"0": end + 5}})
    with pytest.raises(AnalysisException, match=f"the log ends at {end} now"):
        read(spark, cluster, topic.name, endingOffsets=beyond).collect()


def test_a_deleted_ledger_is_an_error_or_left_out(
    spark: SparkSession, cluster: RunningCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    log = cluster.run(topic.lead(0, segment_bytes=60_000))
    cluster.run(topic.roll(0, 0))
    record, _ = cluster.run(PartitionStore(topic.store, Random(1)).get(topic.key(0)))
    first = record.segments[0]
    assert first.end_offset is not None
    cluster.run(topic.client.delete_ledger(first.ledger_id))
    with pytest.raises(AnalysisException) as raised:
        read(spark, cluster, topic.name).collect()
    assert f"ledger {first.ledger_id} was deleted" in str(raised.value).splitlines()[0]
    rest = read(spark, cluster, topic.name, failOnDataLoss="false").collect()
    assert offsets(rest) == list(range(first.end_offset, log.log_end_offset))


def test_topics_without_records_or_leaders_and_unknown_ones(
    spark: SparkSession, cluster: RunningCluster, make_topic: MakeTopic
) -> None:
    topic, other = make_topic(3), make_topic(1)
    assert read(spark, cluster, topic.name).count() == 0
    cluster.run(topic.lead(1))
    cluster.run(topic.append(1, records(0, 3)))
    cluster.run(other.lead(0))
    cluster.run(other.append(0, records(0, 4)))
    both = read(spark, cluster, f"{topic.name},{other.name}")
    assert both.groupBy("topic").count().count() == 2
    assert both.count() == 7
    with pytest.raises(AnalysisException) as raised:
        read(spark, cluster, "no-such-topic").count()
    assert "'no-such-topic' does not exist" in str(raised.value).splitlines()[0]
    with pytest.raises(AnalysisException) as raised:
        read(spark, cluster, topic.name, maxBytesPerTrigger="1MB").count()
    assert "use maxOffsetsPerTrigger" in str(raised.value).splitlines()[0]
