"""Streams over ledgers and chains: no entry is lost or repeated across restarts."""

import contextlib
import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from ledger_client import LedgerError, Quorum
from ledger_client.sync import LedgerClient
from tests.spark.conftest import SEEN_BY_ALL, RunningCluster, wait_until_seen
from tests.spark.streams import finish, into_files, stream

Write = Callable[..., int]


def rows(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    table = spark.read.parquet(str(directory / "table"))
    return sorted((row.ledger_id, row.entry_id) for row in table.collect())


@pytest.fixture
def chain() -> str:
    return f"chain-{uuid.uuid4()}"


def publish(client: LedgerClient, chain: str, *counts: int) -> list[tuple[int, int]]:
    """Publish one link of ledgers with these numbers of entries; return their entries."""
    handle = client.chain(chain)
    handle.create(exist_ok=True)
    infos = []
    for count in counts:
        with client.create_ledger(Quorum.all(2), metadata=handle.custom_metadata) as writer:
            writer.append_many([b"%d" % number for number in range(count)])
        infos.append(writer.info)
    handle.publish(infos)
    return [
        (int(ledger_info.id), n)
        for ledger_info, count in zip(infos, counts, strict=True)
        for n in range(count)
    ]


def test_a_chain_is_followed_across_restarts(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    told = publish(client, chain, 300, 0, 200)
    frame = stream(spark, cluster, chain=chain, maxEntriesPerTrigger=120)
    assert finish(into_files(frame, tmp_path)) == [120, 120, 120, 120, 20]
    assert finish(into_files(frame, tmp_path)) == []
    told += publish(client, chain, 50) + publish(client, chain, 100)
    assert finish(into_files(frame, tmp_path)) == [120, 30]
    assert rows(spark, tmp_path) == sorted(told)


def test_bytes_limit_a_micro_batch(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    told = publish(client, chain, 100)
    frame = stream(spark, cluster, chain=chain, maxBytesPerTrigger=100)
    assert len(finish(into_files(frame, tmp_path))) == 2
    assert rows(spark, tmp_path) == told


def test_named_ledgers_are_followed_while_they_are_written(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    written: Write,
    tmp_path: Path,
) -> None:
    closed = written([b"a"] * 30)
    with client.create_ledger(SEEN_BY_ALL) as writer:
        writer.append_many([b"b"] * 10)
        wait_until_seen(cluster, writer)
        frame = stream(spark, cluster, ledgers=f"{closed},{writer.id}")
        assert sum(finish(into_files(frame, tmp_path))) == 40
        writer.append_many([b"c"] * 5)
        wait_until_seen(cluster, writer)
        assert sum(finish(into_files(frame, tmp_path))) == 5
    assert finish(into_files(frame, tmp_path)) == []
    wanted = [(closed, n) for n in range(30)] + [(writer.id, n) for n in range(15)]
    assert rows(spark, tmp_path) == sorted(wanted)


def test_a_running_stream_sees_what_is_appended_and_published(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str
) -> None:
    publish(client, chain, 3)
    name = f"t{uuid.uuid4().hex}"
    query = stream(spark, cluster, chain=chain).writeStream.format("memory").queryName(name).start()
    try:
        query.processAllAvailable()
        handle = client.chain(chain)
        with client.create_ledger(Quorum.all(3), metadata=handle.custom_metadata) as writer:
            writer.append(b"first")
            handle.publish([writer.info])  # an open ledger at the end, as a topic has
            for count in (4, 5, 6):
                writer.append(b"more")
                wait_for(lambda: spark.table(name).count() >= count)  # noqa: B023 - called here
        publish(client, chain, 2)
        wait_for(lambda: spark.table(name).count() >= 9)
        assert spark.table(name).count() == 9
        assert spark.table(name).distinct().count() == 9
    finally:
        query.stop()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    import time  # noqa: PLC0415 - the clock of the test

    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def test_a_stream_waits_for_an_open_ledger_of_an_earlier_link(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    handle = client.chain(chain)
    handle.create()
    with client.create_ledger(SEEN_BY_ALL, metadata=handle.custom_metadata) as writer:
        writer.append_many([b"early"] * 5)
        wait_until_seen(cluster, writer)
        handle.publish([writer.info])
        later = publish(client, chain, 10)
        frame = stream(spark, cluster, chain=chain)
        assert sum(finish(into_files(frame, tmp_path))) == 5
        writer.append_many([b"late"] * 4)
    assert sum(finish(into_files(frame, tmp_path))) == 14
    assert rows(spark, tmp_path) == sorted([(int(writer.id), n) for n in range(9)] + later)


def test_a_stream_fails_when_an_open_ledger_is_deleted(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient
) -> None:
    writer = client.create_ledger(Quorum.all(3))
    writer.append(b"an entry")
    name = f"t{uuid.uuid4().hex}"
    frame = stream(spark, cluster, ledger=writer.id)
    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        wait_for(lambda: spark.table(name).count() == 1)
        client.delete_ledger(writer.id)
        wait_for(lambda: not query.isActive)
        assert f"ledger {writer.id}: it was deleted" in str(query.exception())
    finally:
        query.stop()
        with contextlib.suppress(LedgerError):
            writer.abort()


def test_a_ledger_deleted_between_two_runs_may_be_left_out(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    written: Write,
    tmp_path: Path,
) -> None:
    kept, gone = written([b"a"] * 30), written([b"b"] * 30)
    both = {"ledgers": f"{kept},{gone}", "maxEntriesPerTrigger": 20}
    finish(into_files(stream(spark, cluster, **both), tmp_path / "first"))
    client.delete_ledger(gone)
    with pytest.raises(Exception, match=f"ledger {gone}: it does not exist"):
        finish(into_files(stream(spark, cluster, **both), tmp_path / "second"))
    lenient = stream(spark, cluster, failOnDataLoss="false", **both)
    assert sum(finish(into_files(lenient, tmp_path / "third"))) == 30
    assert sum(finish(into_files(lenient, tmp_path / "first"))) == 0


def test_a_query_starts_from_the_given_position(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    told = publish(client, chain, 10) + publish(client, chain, 20)
    middle = json.dumps({"link": 1, "ledger": 0, "entry": 15})
    frame = stream(spark, cluster, chain=chain, startingOffsets=middle)
    assert sum(finish(into_files(frame, tmp_path / "middle"))) == 5
    assert rows(spark, tmp_path / "middle") == told[25:]
    latest = stream(spark, cluster, chain=chain, startingOffsets="latest")
    assert finish(into_files(latest, tmp_path / "latest")) == []


def test_links_trimmed_before_they_were_read_end_a_query(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    publish(client, chain, 10)
    assert sum(finish(into_files(stream(spark, cluster, chain=chain), tmp_path))) == 10
    publish(client, chain, 20)
    told = publish(client, chain, 30)
    client.chain(chain).trim(2)
    with pytest.raises(Exception, match="begins at link 2 now"):
        finish(into_files(stream(spark, cluster, chain=chain), tmp_path))
    lenient = stream(spark, cluster, chain=chain, failOnDataLoss="false")
    assert finish(into_files(lenient, tmp_path)) == [30]
    assert rows(spark, tmp_path)[10:] == told


def test_a_stream_into_a_chain_is_written_once(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    source = f"{chain}-source"
    for _ in range(2):
        publish(client, source, 100)
        frame = stream(spark, cluster, chain=source, maxEntriesPerTrigger=60).select("data")
        writing = frame.writeStream.format("ledger").option("metadata", cluster.metadata)
        writing = writing.option("chain", chain).option("checkpointLocation", str(tmp_path / "c"))
        finish(writing.trigger(availableNow=True).start())
    batch = spark.read.format("ledger").option("metadata", cluster.metadata).option("chain", chain)
    counts = batch.load().groupBy(F.col("data").cast("string")).count().collect()
    assert sorted(int(row[0]) for row in counts) == list(range(100))
    assert {row["count"] for row in counts} == {2}
    info = client.chain(chain).info()
    links = [link for _, link in client.chain(chain).links(0, info.next_index) if link]
    assert [link.batch for link in links] == [0, 1, 2, 3]
    assert len({link.application for link in links}) == 1


@pytest.mark.parametrize("batches", [1, 2])
def test_a_stream_with_the_name_of_another_one_is_refused(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    chain: str,
    tmp_path: Path,
    batches: int,
) -> None:
    """The same program with a new checkpoint has other rows under the numbers that it has."""
    source = f"{chain}-source"
    told = publish(client, source, 30)
    most = len(told) // batches
    frame = stream(spark, cluster, chain=source, maxEntriesPerTrigger=most).select("data")

    def run(checkpoint: str, **options: str) -> None:
        writing = frame.writeStream.format("ledger").option("metadata", cluster.metadata)
        writing = writing.option("chain", chain).options(**options).trigger(availableNow=True)
        finish(writing.option("checkpointLocation", str(tmp_path / checkpoint)).start())

    def count() -> int:
        return stored.option("chain", chain).load().count()

    stored = spark.read.format("ledger").option("metadata", cluster.metadata)
    run("first", txnAppId="nightly")
    with pytest.raises(StreamingQueryException, match=r"belongs to query .*another txnAppId"):
        run("second", txnAppId="nightly")
    assert count() == len(told), "nothing was published"
    assert client.chain(chain).collect(grace_s=0) == 0, "its ledgers were deleted"
    run("second", txnAppId="other")
    assert count() == 2 * len(told)
    publish(client, source, 5)
    run("first", txnAppId="nightly")
    assert count() == 2 * len(told) + 5


@pytest.mark.parametrize(
    ("batches", "said"),
    [(1, r"belongs to query .*another txnAppId"), (2, r"batch 0 .*is older than batch 1")],
)
def test_a_batch_of_foreach_batch_of_another_query_is_refused(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    chain: str,
    tmp_path: Path,
    batches: int,
    said: str,
) -> None:
    """An older one is refused before it writes."""
    source = f"{chain}-source"
    most = len(publish(client, source, 30)) // batches
    frame = stream(spark, cluster, chain=source, maxEntriesPerTrigger=most).select("data")

    def append(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("ledger").option("metadata", cluster.metadata).mode("append")
        writer = writer.option("txnAppId", "nightly").option("txnVersion", str(number))
        writer.option("chain", chain).save()

    def run(checkpoint: str) -> None:
        writing = frame.writeStream.foreachBatch(append).trigger(availableNow=True)
        finish(writing.option("checkpointLocation", str(tmp_path / checkpoint)).start())

    run("first")
    with pytest.raises(StreamingQueryException, match=said):
        run("second")
    assert client.chain(chain).last_batch("nightly") == batches - 1
    assert client.chain(chain).info().next_index == batches


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"match": "a=b"}, "a stream reads named ledgers or a chain"),
        ({"chain": "no-such-chain"}, "there is no chain"),
        ({"ledger": "99999999"}, "it does not exist"),
    ],
)
def test_wrong_options_are_reported(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        finish(into_files(stream(spark, cluster, **options), tmp_path))


def test_a_checkpoint_of_other_ledgers_is_refused(
    spark: SparkSession, cluster: RunningCluster, written: Write, tmp_path: Path
) -> None:
    first, second = written([b"a"] * 3), written([b"b"] * 4)
    finish(into_files(stream(spark, cluster, ledgers=first), tmp_path))
    with pytest.raises(Exception, match=f"the checkpoint names ledgers .{first}."):
        finish(into_files(stream(spark, cluster, ledgers=second), tmp_path))


@pytest.mark.parametrize(
    ("form", "options", "said"),
    [
        ("ledger", {"ledger": "7", "splitBytes": "-1"}, "is not a size"),
        ("ledger", {"ledger": "7", "endingOffsets": '{"7": 9}'}, "a stream has no end"),
        ("topic", {"topic": "t", "endingOffsets": '{"t": {"0": 9}}'}, "a stream has no end"),
    ],
)
def test_wrong_options_of_a_stream_are_reported(
    spark: SparkSession,
    cluster: RunningCluster,
    tmp_path: Path,
    form: str,
    options: dict[str, str],
    said: str,
) -> None:
    reader = spark.readStream.format(form).option("metadata", cluster.metadata)
    with pytest.raises((AnalysisException, StreamingQueryException)) as raised:
        into_files(reader.options(**options).load(), tmp_path).awaitTermination(60)
    assert said in str(raised.value)
