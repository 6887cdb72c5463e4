"""Batch jobs that publish their rows once, complete and in order, on real bookies and Spark."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from ledger_client.sync import LedgerClient
from tests.spark.conftest import RunningCluster


@pytest.fixture
def chain(client: LedgerClient, request: pytest.FixtureRequest) -> str:
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:100]


def save(
    frame: DataFrame, cluster: RunningCluster, chain: str, mode: str = "append", **options: object
) -> None:
    writer = frame.write.format("ledger").mode(mode)
    writer = writer.option("metadata", cluster.metadata).option("chain", chain)
    writer.options(**{name: str(value) for name, value in options.items()}).save()


def load(spark: SparkSession, cluster: RunningCluster, chain: str) -> DataFrame:
    reader = spark.read.format("ledger").option("metadata", cluster.metadata)
    return reader.option("chain", chain).load()


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(F.col("id").cast("string").alias("data"))


def found(spark: SparkSession, cluster: RunningCluster, chain: str) -> list[int]:
    return sorted(int(bytes(row.data)) for row in load(spark, cluster, chain).collect())


def test_saved_rows_are_read_back(spark: SparkSession, cluster: RunningCluster, chain: str) -> None:
    save(numbers(spark, 10_000, 4), cluster, chain)
    assert found(spark, cluster, chain) == list(range(10_000))
    save(numbers(spark, 10), cluster, chain)
    assert len(found(spark, cluster, chain)) == 10_010


def test_the_order_of_partitions_and_rows_is_kept(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str
) -> None:
    save(numbers(spark, 3_000, 3), cluster, chain)
    info = client.chain(chain).info()
    [(_, link)] = client.chain(chain).links(info.first_index, info.next_index)
    assert link is not None
    values: list[int] = []
    for ledger in link.ledgers:
        with client.open_ledger(ledger.ledger_id) as reader:
            values += [int(entry.data) for batch in reader.read() for entry in batch]
    assert values == list(range(3_000))


def test_overwrite_replaces_in_one_step(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str
) -> None:
    save(numbers(spark, 100), cluster, chain)
    save(numbers(spark, 7), cluster, chain, mode="overwrite")
    assert found(spark, cluster, chain) == list(range(7))
    save(numbers(spark, 0), cluster, chain, mode="overwrite")
    assert found(spark, cluster, chain) == []
    assert client.chain(chain).collect(grace_s=0) == 4
    assert client.chain(chain).collect(grace_s=0) == 0


def test_a_job_that_is_repeated_under_its_number_publishes_nothing_twice(
    spark: SparkSession, cluster: RunningCluster, chain: str
) -> None:
    for _ in range(2):
        save(numbers(spark, 50), cluster, chain, txnAppId="nightly", txnVersion=1)
    assert found(spark, cluster, chain) == list(range(50))
    save(numbers(spark, 50), cluster, chain, txnAppId="nightly", txnVersion=2)
    assert len(found(spark, cluster, chain)) == 100


def test_a_job_with_an_older_number_is_refused_before_it_writes(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str
) -> None:
    save(numbers(spark, 50), cluster, chain, txnAppId="nightly", txnVersion=7)
    with pytest.raises(AnalysisException) as raised:
        save(numbers(spark, 50), cluster, chain, txnAppId="nightly", txnVersion=6)
    first = str(raised.value).splitlines()[0]
    assert "batch 6 of application 'nightly' is older than batch 7" in first
    assert len(found(spark, cluster, chain)) == 50
    assert client.chain(chain).collect(grace_s=0) == 0


def test_a_failing_task_is_retried_and_its_first_ledgers_are_collected(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    marks = str(tmp_path)

    @F.udf("string", useArrow=False)
    def fails_once(number: int) -> str:
        mark = Path(marks) / "failed"
        if number == 900 and not mark.exists():
            mark.touch()
            raise RuntimeError("as planned")
        return str(number)

    frame = spark.range(0, 1_000, 1, 2).select(fails_once("id").alias("data"))
    save(frame, cluster, chain)
    assert found(spark, cluster, chain) == list(range(1_000))
    client.chain(chain).collect(grace_s=0)
    assert found(spark, cluster, chain) == list(range(1_000))


def test_a_job_that_fails_publishes_nothing(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str
) -> None:
    @F.udf("string", useArrow=False)
    def fails(number: int) -> str:
        if number == 900:
            raise RuntimeError("as planned")
        return str(number)

    save(numbers(spark, 5), cluster, chain)
    with pytest.raises(Exception, match="as planned"):
        save(spark.range(0, 1_000, 1, 2).select(fails("id").alias("data")), cluster, chain)
    assert found(spark, cluster, chain) == list(range(5))


def test_large_outputs_are_divided_among_several_ledgers(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str
) -> None:
    save(numbers(spark, 1_000, 1), cluster, chain, ledgerBytesMax=500)
    info = client.chain(chain).info()
    [(_, link)] = client.chain(chain).links(info.first_index, info.next_index)
    assert link is not None
    assert len(link.ledgers) == 6
    assert all((ledger.length or 0) <= 500 for ledger in link.ledgers)
    assert found(spark, cluster, chain) == list(range(1_000))


def test_binary_columns_and_null(spark: SparkSession, cluster: RunningCluster, chain: str) -> None:
    rows = [(b"\0\xff",), (b"",)]
    save(spark.createDataFrame(rows, "data binary"), cluster, chain)
    assert sorted(bytes(row.data) for row in load(spark, cluster, chain).collect()) == [
        b"",
        b"\0\xff",
    ]
    with pytest.raises(Exception, match="not null"):
        save(spark.createDataFrame([(None,)], "data string"), cluster, chain)


def test_quorums_are_options(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str
) -> None:
    save(numbers(spark, 5, 1), cluster, chain, ensemble=4, writeQuorum=2, ackQuorum=2)
    save(numbers(spark, 5, 1), cluster, chain, ensemble=2, inSync="true", minInSync=1)
    info = client.chain(chain).info()
    links = [link for _, link in client.chain(chain).links(0, info.next_index)]
    quorums = [client.ledger_info(link.ledgers[0].ledger_id).quorum for link in links if link]
    assert [(q.ensemble_size, q.write_quorum, q.ack_quorum) for q in quorums] == [
        (4, 2, 2),
        (2, 2, 2),
    ]
    assert [q.is_in_sync for q in quorums] == [False, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ensemble": "9"}, "9 writable bookies are needed"),
        ({"ensemble": "2", "writeQuorum": "3"}, "a quorum needs ensemble >= write >= ack"),
        ({"txnAppId": "a"}, "option 'txnVersion': missing"),
        ({"digest": "md5"}, "neither crc32c nor hmac-sha256"),
        ({"digest": "hmac-sha256"}, "hmac-sha256 needs a password"),
        ({"chains": "x"}, "did you mean 'chain'"),
    ],
)
def test_wrong_options_are_reported(
    spark: SparkSession, cluster: RunningCluster, chain: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said.replace(">", ".")):
        save(numbers(spark, 5), cluster, chain, **options)


def test_other_columns_are_refused_with_advice(
    spark: SparkSession, cluster: RunningCluster, chain: str
) -> None:
    with pytest.raises(AnalysisException, match="a ledger takes one column"):
        save(spark.range(5), cluster, chain)
