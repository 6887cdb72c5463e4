"""Streams that start again while bookies know an older LAC than before: nothing is left out."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker_layer.kafka.record_batch import build_batch, read_header
from ledger_client import ClientConfig
from ledger_client import LedgerClient as AsyncLedgerClient
from ledger_client.sync import LedgerClient
from tests.spark.checkpoints import failure, forget_commit, move_end
from tests.spark.conftest import SEEN_BY_ALL, RunningCluster
from tests.spark.streams import finish, into_files, stream
from tests.spark.topic_logs import WrittenTopic, records
from tests.until import WAIT_S

QUIET = ClientConfig(lac_delay_s=600.0)
"""A writer sends its LAC only with the next entry, so that the last entry is not seen."""


@pytest.fixture
def name() -> str:
    return f"events-{uuid.uuid4()}"


@pytest.fixture
def topic(cluster: RunningCluster, name: str) -> Iterator[WrittenTopic]:
    made = cluster.run(WrittenTopic.create(cluster.metadata, name))
    yield made
    cluster.run(made.aclose())


async def append(topic: WrittenTopic, first: int) -> None:
    """Append five records that readers see after the next ones."""
    data = build_batch(records(first, 5))
    await topic.logs[0].append(read_header(data), data)


async def lead(topic: WrittenTopic, metadata: str) -> None:
    await topic.client.aclose()
    topic.client = AsyncLedgerClient(metadata, config=QUIET)
    await topic.lead(0)
    await append(topic, 0)
    await append(topic, 5)


def test_entries_before_a_recorded_end_are_not_left_out(
    spark: SparkSession, cluster: RunningCluster, name: str, tmp_path: Path
) -> None:
    with LedgerClient(cluster.metadata, config=QUIET) as client:
        chain = client.chain(name)
        chain.create()
        with client.create_ledger(SEEN_BY_ALL, metadata=chain.custom_metadata) as writer:
            chain.publish([writer.info])
            writer.append(b"seen")
            writer.append(b"hidden")
            frame = stream(spark, cluster, chain=name, failOnDataLoss="false")
            assert finish(into_files(frame, tmp_path)) == [1]
            move_end(tmp_path, entry=2)
            assert "not confirmed before entry 2 yet" in why_it_failed(into_files(frame, tmp_path))
            writer.append(b"later")
            assert finish(into_files(frame, tmp_path)) == [2]


def test_records_before_a_recorded_end_are_not_left_out(
    spark: SparkSession, cluster: RunningCluster, topic: WrittenTopic, tmp_path: Path
) -> None:
    cluster.run(lead(topic, cluster.metadata))
    frame = stream(spark, cluster, "topic", topic=topic.name, failOnDataLoss="false")
    assert finish(into_files(frame, tmp_path)) == [5]
    move_end(tmp_path, **{topic.name: {"0": 10}})
    said = why_it_failed(into_files(frame, tmp_path))
    assert "offsets 5 to 9: they are not visible yet" in said
    cluster.run(append(topic, 10))
    assert finish(into_files(frame, tmp_path)) == [10]


def why_it_failed(query: StreamingQuery) -> str:
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(int(WAIT_S))
    return str(query.exception())


def test_a_micro_batch_of_a_topic_that_is_no_longer_named_is_not_left_out(
    spark: SparkSession, cluster: RunningCluster, topic: WrittenTopic, tmp_path: Path
) -> None:
    other = cluster.run(WrittenTopic.create(cluster.metadata, f"{topic.name}-2"))
    for written_topic in (topic, other):
        cluster.run(written_topic.lead(0))
        cluster.run(written_topic.append(0, records(0, 5)))
    both = f"{topic.name},{other.name}"
    assert finish(into_files(stream(spark, cluster, "topic", topic=both), tmp_path)) == [10]
    forget_commit(tmp_path)
    said = failure(stream(spark, cluster, "topic", topic=topic.name), tmp_path)
    assert f"has records of ['{other.name}/0'], which the options do not name" in said
    assert finish(into_files(stream(spark, cluster, "topic", topic=both), tmp_path)) == [10]
    cluster.run(other.aclose())
