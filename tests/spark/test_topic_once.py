"""Batches that are appended to a topic in one transaction: each once, whatever is run again."""

import logging
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark import TaskContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from spark_io.errors import OldBatchError, OtherQueryError
from spark_io.topics.options import TopicWriteOptions
from spark_io.topics.write import BatchName, Columns, append_once, hold_rows
from tests.spark.conftest import RunningCluster
from tests.spark.streams import finish, stream

SEEN_ATTEMPTS = 20


@pytest.fixture
def topic(served_cluster: RunningCluster) -> str:
    name = f"orders-{uuid.uuid4()}"
    admin = KafkaAdminClient(bootstrap_servers=[address(served_cluster)])
    try:
        admin.create_topics([NewTopic(name, 2, 3), NewTopic(f"{name}-source", 2, 3)])
    finally:
        admin.close()
    return name


def address(cluster: RunningCluster) -> str:
    return cluster.cluster.brokers[0].address


def append(frame: DataFrame, cluster: RunningCluster, topic: str, **options: object) -> None:
    writing = frame.selectExpr("string(id) AS value").write.format("topic")
    writing = writing.option("metadata", cluster.metadata).option("topic", topic)
    writing.options(**{name: str(each) for name, each in options.items()}).mode("append").save()


def values(spark: SparkSession, cluster: RunningCluster, topic: str, least: int) -> list[int]:
    """Return the committed values; acknowledged records become visible with a delay."""
    found: list[int] = []
    for _ in range(SEEN_ATTEMPTS):
        reading = spark.read.format("topic").option("metadata", cluster.metadata)
        reading = reading.option("subscribe", topic)
        reading = reading.option("kafka.bootstrap.servers", address(cluster))
        found = [int(row.value) for row in reading.load().select("value").collect()]
        if len(found) >= least:
            break
    return sorted(found)


def test_a_job_with_a_number_is_appended_once(
    spark: SparkSession, served_cluster: RunningCluster, topic: str
) -> None:
    name = f"nightly-{uuid.uuid4()}"
    numbered = {"exactlyOnce": "true", "txnAppId": name}
    append(spark.range(100), served_cluster, topic, **numbered, txnVersion=0)
    append(spark.range(100), served_cluster, topic, **numbered, txnVersion=0)
    append(spark.range(100, 150), served_cluster, topic, **numbered, txnVersion=1)
    with pytest.raises(Exception, match=r"batch 0 .*is older than batch 1"):
        append(spark.range(100), served_cluster, topic, **numbered, txnVersion=0)
    append(spark.range(150, 160), served_cluster, topic, exactlyOnce=True)
    assert values(spark, served_cluster, topic, 160) == list(range(160))
    with pytest.raises(AnalysisException, match="must number its runs"):
        append(spark.range(1), served_cluster, topic, **numbered)


def test_a_run_that_appends_nothing_is_a_warning(
    served_cluster: RunningCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"metadata": served_cluster.metadata, "topic": topic, "exactlyOnce": "true"}
    options, columns = TopicWriteOptions.of(given), Columns(False, False, False, False)
    held = [hold_rows([pa.record_batch({"value": [b"a"]})], options, columns)]
    name, servers = f"nightly-{uuid.uuid4()}", (address(served_cluster),)
    with caplog.at_level(logging.WARNING, "spark_io"):
        append_once(held, options, columns, servers, BatchName(name, 3, "q"))
        assert caplog.messages == []
        append_once(held, options, columns, servers, BatchName(name, 3, "q"))
        assert len(caplog.messages) == 1
        assert f"batch 3 of application '{name}' was appended before" in caplog.text
        for query_id in ("other", ""):
            with pytest.raises(OtherQueryError, match="belongs to query q, whose last batch is 3"):
                append_once(held, options, columns, servers, BatchName(name, 3, query_id))
        with pytest.raises(OldBatchError):
            append_once(held, options, columns, servers, BatchName(name, 2, "q"))


def test_a_task_that_fails_after_its_rows_repeats_none(
    spark: SparkSession, served_cluster: RunningCluster, topic: str
) -> None:
    def fail_at_first(batches):  # type: ignore[no-untyped-def]
        yield from batches
        if TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
            raise RuntimeError("the first attempt fails after its rows")

    frame = spark.range(0, 200, 1, 2).mapInArrow(fail_at_first, "id bigint")
    append(frame, served_cluster, topic, exactlyOnce=True)
    assert values(spark, served_cluster, topic, 200) == list(range(200))


def test_a_batch_that_spark_did_not_record_is_not_appended_again(
    spark: SparkSession, served_cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    """A driver that dies after the transaction leaves a checkpoint without the batch's commit."""

    def run() -> None:
        source = spark.readStream.format("topic").option("metadata", served_cluster.metadata)
        frame = source.option("subscribe", f"{topic}-source").load().select("key", "value")
        out = frame.writeStream.format("topic").option("metadata", served_cluster.metadata)
        out = out.option("topic", topic).option("exactlyOnce", "true")
        out = out.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert out.trigger(availableNow=True).start().awaitTermination(120)

    def forget_last_commit() -> None:
        commits = tmp_path / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)

    for first in (0, 300):
        append(spark.range(first, first + 300), served_cluster, f"{topic}-source")
        assert len(values(spark, served_cluster, f"{topic}-source", first + 300)) == first + 300
        run()
        forget_last_commit()
        run()
    assert values(spark, served_cluster, topic, 600) == list(range(600))


def test_a_stream_with_the_name_of_another_one_is_refused(
    spark: SparkSession, served_cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    append(spark.range(20), served_cluster, f"{topic}-source")
    assert len(values(spark, served_cluster, f"{topic}-source", 20)) == 20
    frame = stream(spark, served_cluster, "topic", topic=f"{topic}-source").select("value")

    def run(checkpoint: str, name: str) -> None:
        out = frame.writeStream.format("topic").option("metadata", served_cluster.metadata)
        out = out.option("topic", topic).option("exactlyOnce", "true").option("txnAppId", name)
        out = out.option("checkpointLocation", str(tmp_path / checkpoint))
        finish(out.trigger(availableNow=True).start())

    run("first", f"{topic}-a")
    with pytest.raises(StreamingQueryException, match=r"belongs to query .*another txnAppId"):
        run("second", f"{topic}-a")
    run("second", f"{topic}-b")
    assert values(spark, served_cluster, topic, 40) == sorted([*range(20), *range(20)])


def test_a_transaction_that_a_dead_driver_left_open_is_aborted(
    spark: SparkSession, served_cluster: RunningCluster, topic: str
) -> None:
    name = f"nightly-{uuid.uuid4()}"
    dead = KafkaProducer(
        bootstrap_servers=[address(served_cluster)], transactional_id=f"spark.{name}"
    )
    dead.init_transactions()
    dead.begin_transaction()
    dead.send(topic, b"-1", partition=0).get(30)
    append(spark.range(10), served_cluster, topic, exactlyOnce=True, txnAppId=name, txnVersion=0)
    assert values(spark, served_cluster, topic, 10) == list(range(10))
    dead.close(timeout=0)


def test_a_wrong_row_appends_nothing(
    spark: SparkSession, served_cluster: RunningCluster, topic: str
) -> None:
    key = F.when(F.col("id") < 49, F.lit("h"))
    headers = F.array(F.struct(key.alias("key"), F.lit(b"1").alias("value")))
    frame = spark.range(0, 50, 1, 2).select(F.lit("v").alias("value"), headers.alias("headers"))
    writing = frame.write.format("topic").option("topic", topic)
    writing = writing.option("metadata", served_cluster.metadata).option("exactlyOnce", "true")
    with pytest.raises(Exception, match="a header has no key"):
        writing.mode("append").save()
    append(spark.range(3), served_cluster, topic, exactlyOnce=True)
    assert values(spark, served_cluster, topic, 3) == [0, 1, 2]
