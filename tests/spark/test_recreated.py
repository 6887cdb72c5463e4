"""Queries whose chain, ledger or topic was deleted and created again since their checkpoint."""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from ledger_client import Quorum
from ledger_client.sync import LedgerClient
from metadata.paths import chain_creation_path
from metadata.store.tree_deletion import drop_tree
from metadata.store.zookeeper.store import open_store
from spark_io.errors import RecordsLostError, RecreatedError
from spark_io.ledgers.batch import LedgerBatchReader, RangePartition
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.packed_ranges import PackedRanges
from spark_io.topics.topic_batch import TopicBatchReader, TopicRangePartition
from spark_io.topics.topic_options import TopicReadOptions
from tests.spark.conftest import RunningCluster
from tests.spark.topic_logs import WrittenTopic, records

pytestmark = pytest.mark.timeout(600)

IDS = "$ids"
OTHER_ID = 10**15 + 7
FINISH_S = 300
LENIENT = {"failOnDataLoss": "false"}
ACCEPTING = {"acceptOldCheckpoint": "true"}
Write = Callable[..., int]


def stream(
    spark: SparkSession, cluster: RunningCluster, kind: str = "ledger", **options: object
) -> DataFrame:
    reader = spark.readStream.format(kind).option("metadata", cluster.metadata)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def started(frame: DataFrame, directory: Path) -> StreamingQuery:
    writing = frame.writeStream.format("parquet").option("path", str(directory / "table"))
    writing = writing.option("checkpointLocation", str(directory / "checkpoint"))
    return writing.trigger(availableNow=True).start()


def finish(frame: DataFrame, directory: Path) -> int:
    """Run a query to its end; return the number of rows that it read."""
    query = started(frame, directory)
    query.awaitTermination(FINISH_S)
    assert not query.isActive, "it ends by itself"
    return sum(int(each["numInputRows"]) for each in query.recentProgress)


def failure(frame: DataFrame, directory: Path) -> str:
    with pytest.raises(Exception, match="Error") as caught:
        finish(frame, directory)
    return str(caught.value)


def count(spark: SparkSession, directory: Path) -> int:
    return spark.read.parquet(str(directory / "table")).count()


def newest(directory: Path, log: str) -> Path:
    """Return the newest file of one of the checkpoint's logs."""
    files = [each for each in (directory / "checkpoint" / log).iterdir() if each.name.isdecimal()]
    return max(files, key=lambda each: int(each.name))


def newest_offset(directory: Path) -> dict[str, Any]:
    """Return the end of the last micro-batch in a checkpoint."""
    *_, line = newest(directory, "offsets").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def remove_ids(directory: Path) -> None:
    """Rewrite the offsets of a checkpoint as older releases wrote them."""
    for file in sorted((directory / "checkpoint" / "offsets").iterdir()):
        if not file.name.isdecimal():
            file.unlink()  # a checksum
            continue
        *lines, offset = file.read_text().splitlines()
        positions = {key: each for key, each in json.loads(offset).items() if key != IDS}
        file.write_text("\n".join([*lines, json.dumps(positions)]))


def forget_commit(directory: Path) -> None:
    """Make Spark run the last micro-batch again: remove its commit, and its entry in the sink."""
    commit = newest(directory, "commits")
    for log in (commit.parent, directory / "table" / "_spark_metadata"):
        for name in (commit.name, f".{commit.name}.crc"):
            (log / name).unlink(missing_ok=True)


@pytest.fixture
def chain() -> str:
    return f"chain-{uuid.uuid4()}"


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
    for each in made:
        cluster.run(each.aclose())


def publish(client: LedgerClient, chain: str, rows: int) -> None:
    """Publish a ledger with this number of entries."""
    handle = client.chain(chain)
    handle.create(exist_ok=True)
    with client.create_ledger(Quorum.all(2), metadata=handle.custom_metadata) as writer:
        writer.append_many([b"%d" % number for number in range(rows)])
    handle.publish([writer.info])


def create_again(client: LedgerClient, chain: str, rows: int) -> None:
    client.chain(chain).delete()
    publish(client, chain, rows)


def remove_token(cluster: RunningCluster, chain: str) -> None:
    """Make a chain one of an older release, which had no creation tokens."""

    async def remove() -> None:
        store = await open_store(cluster.metadata, rng=Random(1))
        await drop_tree(store, chain_creation_path(chain), Random(2))
        await store.aclose()

    cluster.run(remove())


@pytest.mark.parametrize("rows", [700, 3])
def test_a_checkpoint_that_outlives_its_chain_fails(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    chain: str,
    tmp_path: Path,
    rows: int,
) -> None:
    publish(client, chain, 10)
    assert finish(stream(spark, cluster, chain=chain), tmp_path / "old") == 10
    create_again(client, chain, rows)
    for _ in range(2):
        said = failure(stream(spark, cluster, chain=chain), tmp_path / "old")
        assert f"chain '{chain}' was deleted and created again since the checkpoint" in said
        assert "Begin with a new checkpoint" in said
    assert count(spark, tmp_path / "old") == 10
    assert finish(stream(spark, cluster, chain=chain), tmp_path / "new") == rows


def test_a_chain_created_again_is_read_from_its_start_if_data_loss_is_allowed(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    publish(client, chain, 10)
    publish(client, chain, 10)
    assert finish(stream(spark, cluster, chain=chain), tmp_path) == 20
    create_again(client, chain, 7)
    frame = stream(spark, cluster, chain=chain, maxEntriesPerTrigger=5, **LENIENT)
    assert finish(frame, tmp_path) == 7
    assert finish(frame, tmp_path) == 0
    publish(client, chain, 4)
    assert finish(stream(spark, cluster, chain=chain), tmp_path) == 4
    assert count(spark, tmp_path) == 31


def test_a_micro_batch_of_a_deleted_chain_is_not_read_from_the_present_one(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    publish(client, chain, 10)
    assert finish(stream(spark, cluster, chain=chain), tmp_path) == 10
    forget_commit(tmp_path)
    create_again(client, chain, 700)
    said = failure(stream(spark, cluster, chain=chain), tmp_path)
    assert "was deleted and created again since the checkpoint" in said
    assert finish(stream(spark, cluster, chain=chain, **LENIENT), tmp_path) == 700


def test_a_checkpoint_without_identities_needs_to_be_accepted(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    publish(client, chain, 10)
    assert finish(stream(spark, cluster, chain=chain), tmp_path) == 10
    remove_ids(tmp_path)
    publish(client, chain, 5)
    said = failure(stream(spark, cluster, chain=chain), tmp_path)
    assert "does not record the identity of chain" in said
    assert "acceptOldCheckpoint=true" in said
    assert finish(stream(spark, cluster, chain=chain, **ACCEPTING), tmp_path) == 5
    assert finish(stream(spark, cluster, chain=chain), tmp_path) == 0
    create_again(client, chain, 700)
    said = failure(stream(spark, cluster, chain=chain, **ACCEPTING), tmp_path)
    assert "was deleted and created again" in said


def test_an_upgrade_keeps_the_checkpoint_of_an_old_chain(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    publish(client, chain, 10)
    remove_token(cluster, chain)
    assert finish(stream(spark, cluster, chain=chain), tmp_path) == 10
    remove_ids(tmp_path)
    assert IDS not in newest_offset(tmp_path)
    publish(client, chain, 5)
    assert finish(stream(spark, cluster, chain=chain), tmp_path) == 5
    assert client.chain(chain).info().creation_token == b""
    create_again(client, chain, 700)
    said = failure(stream(spark, cluster, chain=chain), tmp_path)
    assert "was deleted and created again" in said


def test_a_running_query_ends_when_its_chain_is_created_again(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str
) -> None:
    publish(client, chain, 3)
    name = f"t{uuid.uuid4().hex}"
    frame = stream(spark, cluster, chain=chain, **LENIENT)
    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        query.processAllAvailable()
        create_again(client, chain, 700)
        with pytest.raises(Exception, match=r"deleted and created again|there is no chain"):
            query.awaitTermination(FINISH_S)
        assert spark.table(name).count() == 3
    finally:
        query.stop()


def test_a_ledger_of_another_cluster_with_the_same_id(
    spark: SparkSession,
    cluster: RunningCluster,
    served_cluster: RunningCluster,
    tmp_path: Path,
) -> None:
    for each, rows in ((cluster, 10), (served_cluster, 30)):
        with (
            LedgerClient(each.metadata) as client,
            client.create_ledger(Quorum.all(2), ledger_id=OTHER_ID) as writer,
        ):
            writer.append_many([b"entry"] * rows)
    assert finish(stream(spark, cluster, ledger=OTHER_ID), tmp_path) == 10
    assert finish(stream(spark, cluster, ledger=OTHER_ID), tmp_path) == 0
    said = failure(stream(spark, served_cluster, ledger=OTHER_ID), tmp_path)
    assert f"ledger '{OTHER_ID}' was deleted and created again" in said
    frame = stream(spark, served_cluster, ledger=OTHER_ID, **LENIENT)
    assert finish(frame, tmp_path) == 30
    assert finish(stream(spark, served_cluster, ledger=OTHER_ID), tmp_path) == 0


@pytest.mark.parametrize("rows", [70, 3])
def test_a_checkpoint_that_outlives_its_topic(
    spark: SparkSession,
    cluster: RunningCluster,
    topics: Callable[..., WrittenTopic],
    tmp_path: Path,
    rows: int,
) -> None:
    name, kept = f"orders-{uuid.uuid4()}", f"kept-{uuid.uuid4()}"
    both = f"{name},{kept}"
    topics(name, 10)
    topics(kept, 5)
    assert finish(stream(spark, cluster, "topic", topic=both), tmp_path) == 15
    topics(name, rows)
    said = failure(stream(spark, cluster, "topic", topic=both), tmp_path)
    assert f"topic '{name}' was deleted and created again since the checkpoint" in said
    assert finish(stream(spark, cluster, "topic", topic=both, **LENIENT), tmp_path) == rows
    assert finish(stream(spark, cluster, "topic", topic=both), tmp_path) == 0
    assert count(spark, tmp_path) == 15 + rows


def test_an_old_checkpoint_of_a_topic_needs_to_be_accepted(
    spark: SparkSession,
    cluster: RunningCluster,
    topics: Callable[..., WrittenTopic],
    tmp_path: Path,
) -> None:
    name = f"orders-{uuid.uuid4()}"
    topic = topics(name, 10)
    assert finish(stream(spark, cluster, "topic", topic=name), tmp_path) == 10
    remove_ids(tmp_path)
    cluster.run(topic.append(0, records(0, 4)))
    said = failure(stream(spark, cluster, "topic", topic=name), tmp_path)
    assert f"does not record the identity of topic '{name}'" in said
    assert finish(stream(spark, cluster, "topic", topic=name, **ACCEPTING), tmp_path) == 4
    assert finish(stream(spark, cluster, "topic", topic=name), tmp_path) == 0


def test_starting_offsets_need_no_identities(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    chain: str,
    written: Write,
    topics: Callable[..., WrittenTopic],
    tmp_path: Path,
) -> None:
    name, ledger = f"orders-{uuid.uuid4()}", written([b"entry"] * 10)
    topic = topics(name, 10)
    publish(client, chain, 10)
    wanted: list[tuple[str, dict[str, object], dict[str, object]]] = [
        ("ledger", {"chain": chain}, {"link": 0, "ledger": 0, "entry": 6}),
        ("ledger", {"ledger": ledger}, {str(ledger): 6}),
        ("topic", {"topic": name}, {name: {"0": 6}}),
    ]
    ids: list[dict[str, str]] = []
    for number, (kind, selected, start) in enumerate(wanted):
        options = {**selected, "startingOffsets": json.dumps(start)}
        directory = tmp_path / str(number)
        assert finish(stream(spark, cluster, kind, **options), directory) == 4
        ids.append(newest_offset(directory)[IDS])
        other = {**start, IDS: dict.fromkeys(ids[-1], "00")}
        options = {**selected, "startingOffsets": json.dumps(other)}
        said = failure(stream(spark, cluster, kind, **options), directory / "other")
        assert "$ids names another" in said
    assert ids[0] == {chain: client.chain(chain).info().creation_token.hex()}
    assert ids[1] == {str(ledger): client.ledger_info(ledger).creation_token.hex()}
    assert ids[2] == {name: topic.record.topic_id.hex()}


def test_tasks_compare_the_chain_that_was_planned(
    cluster: RunningCluster, client: LedgerClient, chain: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(client, chain, 10)
    options = {"metadata": cluster.metadata, "chain": chain}
    strict = LedgerBatchReader(ReadOptions.of(options))
    lenient = LedgerBatchReader(ReadOptions.of({**options, **LENIENT}))
    (part,) = strict.partitions()
    assert rows_of(strict, part) == 10
    client.chain(chain).delete()
    assert rows_of(strict, part) == 10, "the ledgers of a deleted chain are still there"
    publish(client, chain, 700)
    with pytest.raises(RecreatedError, match="since this part of the query was planned"):
        rows_of(strict, part)
    assert rows_of(lenient, part) == 10, "the planned entries, not those of the present chain"
    assert "the planned ledgers of the old one are read" in caplog.text


def test_tasks_compare_the_ledger_that_was_planned(
    cluster: RunningCluster, written: Write, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"metadata": cluster.metadata, "ledger": str(written([b"entry"] * 10))}
    strict = LedgerBatchReader(ReadOptions.of(options))
    lenient = LedgerBatchReader(ReadOptions.of({**options, **LENIENT}))
    (part,) = strict.partitions()
    assert isinstance(part, RangePartition)
    assert rows_of(strict, part) == 10
    ranges = [replace(each, creation_token=bytes(16)) for each in part.ranges]
    other = replace(part, ranges=PackedRanges(ranges))
    with pytest.raises(RecreatedError, match="since this part of the query was planned"):
        rows_of(strict, other)
    assert rows_of(lenient, other) == 0
    assert "left out entries 0 to 9, 10 in all" in caplog.text


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
    assert isinstance(part, TopicRangePartition)
    assert rows_of(strict, part) == 10
    ranges = tuple(
        replace(each, entries=replace(each.entries, creation_token=bytes(16)))
        for each in part.ranges
    )
    other = replace(part, ranges=ranges)
    with pytest.raises(RecordsLostError, match="another one has its id"):
        rows_of(strict, other)
    assert rows_of(lenient, other) == 0
    assert "left out records from offset 0 to below 10" in caplog.text


def rows_of(reader: LedgerBatchReader | TopicBatchReader, part: InputPartition) -> int:
    return sum(batch.num_rows for batch in reader.read(part))
