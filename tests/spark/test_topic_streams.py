"""Streams over topics: no record is lost or repeated, whatever happens to ledgers."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_layer.kafka.record_batch import ControlKind, Producer
from spark_io.progress import entries_behind
from tests.spark.conftest import RunningCluster
from tests.spark.streams import finish, into_files, stream
from tests.spark.topic_logs import WrittenTopic, records

Table = list[tuple[int, int]]


@pytest.fixture
def topic(cluster: RunningCluster) -> Iterator[WrittenTopic]:
    made = cluster.run(WrittenTopic.create(cluster.metadata, f"orders-{uuid.uuid4()}", 2))
    yield made
    cluster.run(made.aclose())


def rows(spark: SparkSession, directory: Path) -> Table:
    table = spark.read.parquet(str(directory / "table"))
    return sorted((row.partition, row.offset) for row in table.collect())


def test_a_topic_is_followed_across_restarts(
    spark: SparkSession, cluster: RunningCluster, topic: WrittenTopic, tmp_path: Path
) -> None:
    cluster.run(topic.lead(0, segment_bytes=60_000))
    cluster.run(topic.lead(1))
    cluster.run(topic.append(0, *[records(n, 10) for n in range(0, 200, 10)]))
    cluster.run(topic.append(1, records(0, 100)))
    frame = stream(spark, cluster, "topic", topic=topic.name, maxOffsetsPerTrigger=120)
    query = into_files(frame, tmp_path)
    assert finish(query) == [120, 120, 60]
    with_rows = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [entries_behind(row) for row in with_rows] == [180, 60, 0]
    assert finish(into_files(frame, tmp_path)) == []
    cluster.run(topic.roll(0, 0))
    cluster.run(topic.lead(0))
    cluster.run(topic.append(0, records(0, 7)))
    finish(into_files(frame, tmp_path))
    end = topic.logs[0].log_end_offset
    assert rows(spark, tmp_path) == [(0, n) for n in range(end)] + [(1, n) for n in range(100)]


def test_a_running_query_follows_rolls_leaders_and_new_partitions(
    spark: SparkSession, cluster: RunningCluster, topic: WrittenTopic, tmp_path: Path
) -> None:
    cluster.run(topic.lead(0, segment_bytes=60_000))
    cluster.run(topic.append(0, records(0, 5)))
    query = into_files(stream(spark, cluster, "topic", topic=topic.name), tmp_path, once=False)
    query.processAllAvailable()
    cluster.run(topic.roll(0, 5))
    cluster.run(topic.lead(1))
    cluster.run(topic.append(1, records(0, 5)))
    cluster.run(topic.lead(0))
    cluster.run(topic.append(0, records(0, 3)))
    cluster.run(topic.add_partitions(1))
    cluster.run(topic.lead(2))
    cluster.run(topic.append(2, records(0, 4)))
    wanted = [(0, n) for n in range(topic.logs[0].log_end_offset)]
    wanted += [(1, n) for n in range(5)] + [(2, n) for n in range(4)]
    for _ in range(300):
        query.processAllAvailable()
        if len(rows(spark, tmp_path)) >= len(wanted):
            break
    query.stop()
    assert rows(spark, tmp_path) == wanted


def test_a_transaction_is_seen_once_it_is_committed(
    spark: SparkSession, cluster: RunningCluster, topic: WrittenTopic, tmp_path: Path
) -> None:
    cluster.run(topic.lead(0))
    for producer_id, count in ((1, 2), (2, 3)):
        producer = Producer(producer_id, 0, 0)
        work = topic.append(0, records(0, count), producer=producer, is_transactional=True)
        cluster.run(work)
    frame = stream(spark, cluster, "topic", topic=topic.name)
    assert finish(into_files(frame, tmp_path)) == []
    cluster.run(topic.end_transaction(0, ControlKind.ABORT, Producer(1, 0)))
    assert finish(into_files(frame, tmp_path)) == []
    cluster.run(topic.end_transaction(0, ControlKind.COMMIT, Producer(2, 0)))
    assert finish(into_files(frame, tmp_path)) == [3]
    assert rows(spark, tmp_path) == [(0, 2), (0, 3), (0, 4)]


def test_records_deleted_by_retention_end_a_query_or_are_left_out(
    spark: SparkSession, cluster: RunningCluster, topic: WrittenTopic, tmp_path: Path
) -> None:
    log = cluster.run(topic.lead(0))
    cluster.run(topic.append(0, *[records(n, 10) for n in range(0, 100, 10)]))
    cluster.run(log.delete_records(50))
    cluster.run(topic.append(0, records(0, 10)))
    start = json.dumps({topic.name: {"0": 10, "1": 0}})
    query = into_files(
        stream(spark, cluster, "topic", topic=topic.name, startingOffsets=start), tmp_path
    )
    with contextlib.suppress(Exception):
        query.awaitTermination(120)
    assert "partition 0, offsets 10 to 49" in str(query.exception())
    rest = stream(
        spark, cluster, "topic", topic=topic.name, startingOffsets=start, failOnDataLoss="false"
    )
    finish(into_files(rest, tmp_path))
    assert rows(spark, tmp_path) == [(0, n) for n in range(50, 110)]


def test_a_deleted_topic_ends_a_query(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    query = into_files(stream(spark, cluster, "topic", topic="never-made"), tmp_path)
    with contextlib.suppress(Exception):
        query.awaitTermination(120)
    assert "'never-made' does not exist" in str(query.exception())
