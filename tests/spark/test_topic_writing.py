"""Rows that are written to topics through brokers, and read back unchanged."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from spark_io.topics.options import COMPRESSIONS, TopicReadOptions, TopicWriteOptions
from spark_io.topics.readers import TopicBatchReader
from spark_io.topics.write import BatchName, Columns, append_once, append_rows, hold_rows
from tests.spark.conftest import RunningCluster

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = 2_000
SEEN_ATTEMPTS = 20


@pytest.fixture
def topic(served_cluster: RunningCluster) -> str:
    name = f"orders-{uuid.uuid4()}"
    admin = KafkaAdminClient(bootstrap_servers=[served_cluster.cluster.brokers[0].address])
    try:
        admin.create_topics([NewTopic(name, 3, 3)])
    finally:
        admin.close()
    return name


def read(spark: SparkSession, served_cluster: RunningCluster, topic: str) -> DataFrame:
    return (
        spark.read.format("topic")
        .option("metadata", served_cluster.metadata)
        .option("topic", topic)
        .load()
    )


def seen(read_again: Callable[[], DataFrame], count: int) -> list[Row]:
    """Return the rows once there are `count`: acknowledged records become visible with a delay."""
    found = read_again().collect()
    for _ in range(SEEN_ATTEMPTS):
        if len(found) >= count:
            break
        found = read_again().collect()  # a DataFrame is planned once
    return found


def rows(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(count, numPartitions=3).select(
        F.concat(F.lit("k"), F.col("id") % 10).alias("key"),
        F.col("id").cast("string").alias("value"),
    )


def test_rows_are_appended_and_read_back(
    spark: SparkSession, served_cluster: RunningCluster, topic: str
) -> None:
    writing = rows(spark).write.format("topic").option("metadata", served_cluster.metadata)
    writing.option("topic", topic).option("compression", "gzip").mode("append").save()
    found = seen(lambda: read(spark, served_cluster, topic), ROWS)
    assert sorted((int(row.value), row.key.decode()) for row in found) == [
        (n, f"k{n % 10}") for n in range(ROWS)
    ]
    by_key = (
        read(spark, served_cluster, topic)
        .groupBy("key")
        .agg(F.countDistinct("partition").alias("n"))
    )
    assert {row.n for row in by_key.collect()} == {1}, "a key's records are in one partition"


def test_stock_consumers_see_the_rows_with_headers_in_the_named_partition(
    spark: SparkSession, served_cluster: RunningCluster, topic: str
) -> None:
    frame = rows(spark, 5).select(
        F.lit(topic).alias("topic"),
        F.lit(2).alias("partition"),
        F.col("key").cast("binary").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.array(F.struct(F.lit("h").alias("key"), F.lit("1").cast("binary").alias("value"))).alias(
            "headers"
        ),
    )
    frame.write.format("topic").option("metadata", served_cluster.metadata).mode("append").save()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=[served_cluster.cluster.brokers[0].address],
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    try:
        found = [next(consumer) for _ in range(5)]
    finally:
        consumer.close()
    assert {each.partition for each in found} == {2}
    assert sorted(each.key for each in found) == [b"k%d" % n for n in range(5)]
    assert {each.value for each in found} == {None}
    assert [list(each.headers) for each in found] == [[("h", b"1")]] * 5


def test_one_topic_streams_into_another(
    spark: SparkSession, served_cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    admin = KafkaAdminClient(bootstrap_servers=[served_cluster.cluster.brokers[0].address])
    try:
        admin.create_topics([NewTopic(source, 2, 3)])
    finally:
        admin.close()
    for number in range(2):
        writing = rows(spark, 300).write.format("topic").option("metadata", served_cluster.metadata)
        writing.option("topic", source).mode("append").save()
        count = 300 * (number + 1)
        assert len(seen(lambda: read(spark, served_cluster, source), count)) == count
        following = spark.readStream.format("topic").option("metadata", served_cluster.metadata)
        frame = following.option("topic", source).load().select("key", "value", "headers")
        out = frame.writeStream.format("topic").option("metadata", served_cluster.metadata)
        out = out.option("topic", topic).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert out.trigger(availableNow=True).start().awaitTermination(120)
    found = seen(lambda: read(spark, served_cluster, topic), 600)
    assert sorted(int(row.value) for row in found) == sorted([*range(300), *range(300)])


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["key"], {}, "of which value is required"),
        (["value", "id"], {}, "takes the columns"),
        (["value"], {"topic": "no-such-topic"}, "'no-such-topic' does not exist"),
        (["value"], {"topic": ""}, "name the topic"),
        (["value"], {"listener": "INSIDE"}, "no broker with a listener 'INSIDE'"),
    ],
)
def test_rows_that_cannot_be_records_are_refused(
    spark: SparkSession,
    served_cluster: RunningCluster,
    topic: str,
    columns: list[str],
    options: dict[str, str],
    said: str,
) -> None:
    frame = rows(spark, 3).withColumn("id", F.lit(1)).select(*columns)
    writing = frame.write.format("topic").option("metadata", served_cluster.metadata)
    writing = writing.options(**({"topic": topic} | options))
    with pytest.raises(AnalysisException, match=said):
        writing.mode("append").save()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("exactly_once", [False, True])
def test_each_record_that_kafka_stores_is_appended_with_each_codec(
    served_cluster: RunningCluster, topic: str, compression: str, *, exactly_once: bool
) -> None:
    given = {"metadata": served_cluster.metadata, "topic": topic, "compression": compression}
    options = TopicWriteOptions.of(given | {"exactlyOnce": str(exactly_once).lower()})
    columns = Columns(has_key=True, has_topic=False, has_partition=True, has_headers=True)
    sent = [
        (b"k", b"v" * 500, [{"key": "h", "value": b"1"}, {"key": "none", "value": None}]),
        (None, None, None),
        (b"null", None, [{"key": "none", "value": None}]),
        (None, b"", None),
    ]
    names = ("key", "value", "headers")
    kinds = (pa.binary(), pa.binary(), HEADERS)
    cells = zip(names, zip(*sent, strict=True), kinds, strict=True)
    batch = pa.record_batch(
        {name: pa.array(column, kind) for name, column, kind in cells}
        | {"partition": pa.array([1] * len(sent), pa.int32())}
    )
    servers = (served_cluster.cluster.brokers[0].address,)
    if exactly_once:
        held = [hold_rows([batch], options, columns)]
        append_once(held, options, columns, servers, BatchName(topic, 0, "q"))
    else:
        assert append_rows([batch], options, columns, servers).count == len(sent)
    del given["compression"]
    reader = TopicBatchReader(TopicReadOptions.of(given))
    stored = [
        row
        for part in reader.partitions()
        for rows_read in reader.read(part)
        for row in rows_read.select(names).to_pylist()
    ]
    assert [tuple(row.values()) for row in stored] == sent
