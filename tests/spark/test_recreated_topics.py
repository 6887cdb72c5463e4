"""Queries whose topic was deleted and created again since their checkpoint."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from spark_io.errors import RecordsLostError
from spark_io.readers import RangePartition
from spark_io.topics.options import TopicReadOptions
from spark_io.topics.readers import TopicBatchReader
from tests.spark.checkpoints import (
    LENIENT,
    failure,
    ids_from_start,
    rows_read,
)
from tests.spark.conftest import RunningCluster
from tests.spark.streams import stream
from tests.spark.topic_logs import WrittenTopic, records

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def topics(cluster: RunningCluster) -> Iterator[Callable[..., WrittenTopic]]:
    """Make a function that creates a topic with records, again under its name if it exists."""
    made: list[WrittenTopic] = []

    def create(name: str, rows: int) -> WrittenTopic:
        for old in made:
            if old.name == name:
                cluster.run(old.delete())
        creating = WrittenTopic.create(cluster.metadata, name, 1, seed=str(len(made)))
        made.append(topic := cluster.run(creating))
        cluster.run(topic.lead(0))
        cluster.run(topic.append(0, records(0, rows)))
        return topic

    yield create
    for written_topic in made:
        cluster.run(written_topic.aclose())


def test_a_checkpoint_that_outlives_its_topic(
    spark: SparkSession,
    cluster: RunningCluster,
    topics: Callable[..., WrittenTopic],
    tmp_path: Path,
) -> None:
    """The new topic has fewer records, so that the old position is behind its end."""
    name, kept = f"orders-{uuid.uuid4()}", f"kept-{uuid.uuid4()}"
    both = f"{name},{kept}"
    topics(name, 10)
    topics(kept, 5)
    assert rows_read(stream(spark, cluster, "topic", topic=both), tmp_path) == 15
    topics(name, 3)
    said = failure(stream(spark, cluster, "topic", topic=both), tmp_path)
    assert f"topic '{name}' was deleted and created again since the checkpoint" in said
    assert rows_read(stream(spark, cluster, "topic", topic=both, **LENIENT), tmp_path) == 3
    assert rows_read(stream(spark, cluster, "topic", topic=both), tmp_path) == 0
    assert spark.read.parquet(str(tmp_path / "table")).count() == 18


def test_starting_offsets_need_no_identities(
    spark: SparkSession,
    cluster: RunningCluster,
    topics: Callable[..., WrittenTopic],
    tmp_path: Path,
) -> None:
    topic = topics(f"orders-{uuid.uuid4()}", 10)
    selected: dict[str, object] = {"topic": topic.name}
    ids = ids_from_start(spark, cluster, selected, {topic.name: {"0": 6}}, tmp_path)
    assert ids == {topic.name: topic.record.topic_id.hex()}


def test_tasks_compare_the_ledgers_of_a_topic_that_were_planned(
    cluster: RunningCluster,
    topics: Callable[..., WrittenTopic],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = topics(f"orders-{uuid.uuid4()}", 10)
    options = {"metadata": cluster.metadata, "topic": topic.name}
    strict = TopicBatchReader(TopicReadOptions.of(options))
    lenient = TopicBatchReader(TopicReadOptions.of({**options, **LENIENT}))
    (part,) = strict.partitions()
    assert isinstance(part, RangePartition)
    assert rows_of(strict, part) == 10
    ranges = tuple(replace(range_, creation_token=bytes(16)) for range_ in part.ranges)
    other = replace(part, ranges=ranges)
    with pytest.raises(RecordsLostError, match="another one has its id"):
        rows_of(strict, other)
    assert rows_of(lenient, other) == 0
    assert "left out records from offset 0 to below 10" in caplog.text


def rows_of(reader: TopicBatchReader, part: InputPartition) -> int:
    return sum(batch.num_rows for batch in reader.read(part))
