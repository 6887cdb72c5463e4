"""Batch queries over ledgers, on real bookies and a real Spark."""

from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ledger_client import Quorum
from ledger_client.sync import LedgerClient
from tests.spark.conftest import SEEN_BY_ALL, RunningCluster, wait_until_seen

Write = Callable[..., int]


def read(spark: SparkSession, cluster: RunningCluster, **options: object) -> DataFrame:
    reader = spark.read.format("ledger").option("metadata", cluster.metadata)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def entries(count: int, size: int = 40) -> list[bytes]:
    return [b"%d " % number + b"x" * size for number in range(count)]


def test_every_entry_comes_once_and_unchanged(
    spark: SparkSession, cluster: RunningCluster, written: Write
) -> None:
    payloads = entries(5_000)
    ledger_id = written(payloads)
    frame = read(spark, cluster, ledger=ledger_id, splitEntries=700, arrowBatchBytes=4_000)
    assert frame.rdd.getNumPartitions() == 8
    rows = sorted(frame.collect(), key=lambda row: row.entry_id)
    assert [row.entry_id for row in rows] == list(range(5_000))
    assert [bytes(row.data) for row in rows] == payloads
    assert {row.ledger_id for row in rows} == {ledger_id}
    assert {row.fragment for row in rows} == {0}


def test_ledgers_are_selected_by_ids_and_by_custom_metadata(
    spark: SparkSession, cluster: RunningCluster, written: Write
) -> None:
    first, second = written(entries(10), app="blue"), written(entries(20), app="green")
    both = read(spark, cluster, ledgers=f"{first},{second}")
    assert both.groupBy("ledger_id").count().count() == 2
    assert both.count() == 30
    assert read(spark, cluster, match="app=green").count() == 20
    assert read(spark, cluster, match="app=red").count() == 0


def test_empty_entries_and_large_ones(
    spark: SparkSession, cluster: RunningCluster, written: Write
) -> None:
    payloads = [b"", b"\0", b"y" * 3_000_000, b""]
    rows = read(spark, cluster, ledger=written(payloads)).orderBy("entry_id").collect()
    assert [bytes(row.data) for row in rows] == payloads


def test_an_empty_ledger_has_no_rows(
    spark: SparkSession, cluster: RunningCluster, written: Write
) -> None:
    assert read(spark, cluster, ledger=written([])).count() == 0


def test_reads_without_values_have_no_data_column(
    spark: SparkSession, cluster: RunningCluster, written: Write
) -> None:
    frame = read(spark, cluster, ledger=written(entries(100)), includeValue="false")
    assert frame.columns == ["ledger_id", "entry_id", "fragment"]
    assert frame.agg({"entry_id": "sum"}).collect()[0][0] == 4950


def test_offsets_bound_a_read(spark: SparkSession, cluster: RunningCluster, written: Write) -> None:
    ledger_id = written(entries(100))
    start, end = f'{{"{ledger_id}": 90}}', f'{{"{ledger_id}": 95}}'
    frame = read(spark, cluster, ledger=ledger_id, startingOffsets=start, endingOffsets=end)
    assert [row.entry_id for row in frame.orderBy("entry_id").collect()] == [90, 91, 92, 93, 94]


def test_filters_of_one_query_do_not_reach_the_next(
    spark: SparkSession, cluster: RunningCluster, written: Write
) -> None:
    """Also with Spark's push-down, which keeps the filters of an earlier query (decision 0011)."""
    first, second = written(entries(3_000)), written(entries(3_000))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, cluster, ledgers=f"{first},{second}")
        few = frame.where(f"ledger_id = {second} and entry_id >= 2950 and entry_id < 2960")
        assert sorted(row.entry_id for row in few.collect()) == list(range(2950, 2960))
        assert frame.count() == 6_000
        assert frame.where("entry_id = 5 or ledger_id = 0").count() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_an_open_ledger_is_read_up_to_its_lac_and_not_fenced(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient
) -> None:
    with client.create_ledger(SEEN_BY_ALL) as writer:
        writer.append_many(entries(50))
        wait_until_seen(cluster, writer)
        assert read(spark, cluster, ledger=writer.id).count() == 50
        writer.append_many(entries(50))
        wait_until_seen(cluster, writer)
        assert read(spark, cluster, ledger=writer.id).count() == 100


def test_rows_have_the_number_of_their_fragment(
    spark: SparkSession, fragile_cluster: RunningCluster
) -> None:
    with LedgerClient(fragile_cluster.metadata) as client:
        with client.create_ledger(Quorum.majority(3)) as writer:
            writer.append_many(entries(1_000))
            member = writer.info.fragments[0].ensemble[0]
            next(bookie for bookie in fragile_cluster.bookies if bookie.id == member).kill()
            writer.append_many(entries(1_000))
        assert len(writer.info.fragments) == 2
        boundary = writer.info.fragments[1].first_entry_id
    rows = read(spark, fragile_cluster, ledger=writer.id).orderBy("entry_id").collect()
    assert len(rows) == 2_000
    assert [row.fragment for row in rows] == [int(n >= boundary) for n in range(2_000)]


def test_a_damaged_replica_is_skipped(spark: SparkSession, fragile_cluster: RunningCluster) -> None:
    payloads = entries(2_000)
    with LedgerClient(fragile_cluster.metadata) as client:
        with client.create_ledger(Quorum.all(3)) as writer:
            writer.append_many(payloads)
        member = writer.info.fragments[0].ensemble[1]
    bookie = next(
        local_bookie for local_bookie in fragile_cluster.bookies if local_bookie.id == member
    )
    fragile_cluster.run(bookie.stop())
    for path in (bookie.data_dir / "log").glob("*.log"):
        data = path.read_bytes()
        path.write_bytes(data.replace(b"1234 xxx", b"1234 xxz"))
    fragile_cluster.run(bookie.start())
    for _ in range(3):
        rows = read(spark, fragile_cluster, ledger=writer.id).orderBy("entry_id").collect()
        assert [bytes(row.data) for row in rows] == payloads


def test_ledgers_can_be_an_sql_view(
    spark: SparkSession, cluster: RunningCluster, written: Write
) -> None:
    ledger_id = written(entries(7))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING ledger "
        f"OPTIONS (metadata '{cluster.metadata}', ledger '{ledger_id}')"
    )
    assert spark.sql("SELECT count(*) FROM v WHERE entry_id > 2").collect()[0][0] == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give exactly one of ledger, ledgers, chain, match"),
        ({"ledger": "1", "chain": "a"}, "found ledger and chain"),
        ({"ledger": "one"}, "'one' is not a ledger id"),
        ({"ledger": "1", "spiltBytes": "7"}, "did you mean 'splitBytes'"),
        ({"ledger": "1", "splitBytes": "-1"}, "is not a size: write bytes, or a unit"),
        ({"ledger": "1", "includeValue": "perhaps"}, "neither true nor false"),
        ({"ledger": "1", "splitBytes": "64MX"}, "is not a size"),
        ({"ledger": "1", "startingOffsets": '{"1": 5}', "endingOffsets": '{"1": 4}'}, "before its"),
        ({"ledger": "1", "client.read_timeout": "3"}, "did you mean client.read_timeout_s"),
        ({"chain": "a/b"}, "is not a valid chain name"),
        ({"ledger": "1", "startingOffsets": "now"}, "neither 'earliest' nor offsets"),
        ({"ledger": "99999999"}, "ledger 99999999: it does not exist"),
        ({"chain": "no-such-chain"}, "there is no chain 'no-such-chain'"),
    ],
)
def test_wrong_options_are_reported(
    spark: SparkSession, cluster: RunningCluster, written: Write, options: dict[str, str], said: str
) -> None:
    if options.get("ledger") == "1":
        options = options | {"ledger": str(written(entries(1)))}
    with pytest.raises(AnalysisException) as raised:
        read(spark, cluster, **options).count()
    assert said in str(raised.value).splitlines()[0]


def test_a_missing_address_is_reported(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="option 'metadata': missing"):
        spark.read.format("ledger").option("ledger", "1").load().count()


def test_an_unreachable_metadata_service_is_reported(spark: SparkSession) -> None:
    reader = spark.read.format("ledger").option("metadata", "zk://127.0.0.1:1/quire")
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:1"):
        reader.option("ledger", "1").option("client.metadata_timeout_s", "1").load().count()


def test_a_path_without_a_cluster_is_reported(spark: SparkSession, cluster: RunningCluster) -> None:
    address = cluster.metadata.rpartition("/")[0] + "/nowhere"
    reader = spark.read.format("ledger").option("metadata", address).option("chain", "events")
    with pytest.raises(AnalysisException) as raised:
        reader.load().count()
    assert f"no cluster exists at {address}" in str(raised.value).splitlines()[0]


def test_another_schema_is_refused(spark: SparkSession, cluster: RunningCluster) -> None:
    reader = spark.read.format("ledger").option("metadata", cluster.metadata).schema("a int")
    with pytest.raises(AnalysisException, match="the columns of ledgers are"):
        reader.option("ledger", "1").load().count()


def test_bookies_that_are_down_are_named(
    spark: SparkSession, fragile_cluster: RunningCluster
) -> None:
    with LedgerClient(fragile_cluster.metadata) as client:
        with client.create_ledger(Quorum(2, 2, 2)) as writer:
            writer.append_many(entries(100))
        members = writer.info.fragments[0].ensemble
    for bookie in fragile_cluster.bookies:
        if bookie.id in members:
            bookie.kill()
    frame = read(
        spark,
        fragile_cluster,
        ledger=writer.id,
        failOnDataLoss="false",
        **{"client.call_timeout_s": "2", "client.read_timeout_s": "1"},
    )
    with pytest.raises(PythonException) as raised:
        frame.count()
    told = str(raised.value)
    assert any(f"ledger {writer.id}, entries 0 to 99" in line for line in told.splitlines()[:4])
    assert all(member in told for member in members)


def test_a_ledger_deleted_under_a_query(
    spark: SparkSession, cluster: RunningCluster, written: Write, client: LedgerClient
) -> None:
    kept, gone = written(entries(10)), written(entries(20))
    strict = read(spark, cluster, ledgers=f"{kept},{gone}")
    lenient = read(spark, cluster, ledgers=f"{kept},{gone}", failOnDataLoss="false")
    planned_strict, planned_lenient = strict.rdd, lenient.rdd
    assert planned_strict.getNumPartitions() == planned_lenient.getNumPartitions()
    client.delete_ledger(gone)
    assert planned_lenient.count() == 10
    with pytest.raises(Exception, match=f"ledger {gone}, entries 0 to 19: the ledger was deleted"):
        planned_strict.count()


def test_parts_of_a_chain_are_read_by_bounds(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, written: Write
) -> None:
    chain = client.chain("bounded")
    chain.create()
    for link in range(3):
        ids = [written(entries(10 * (link + 1))) for _ in range(2)]
        chain.publish([client.ledger_info(each) for each in ids])
    published = [found.published_ms for _, found in chain.links(0, 3) if found is not None]

    def ends(**bounds: object) -> list[tuple[int, int]]:
        frame = read(spark, cluster, chain="bounded", **bounds).groupBy("ledger_id")
        found = frame.agg({"entry_id": "min", "*": "count"}).orderBy("ledger_id").collect()
        return [(row["min(entry_id)"], row["count(1)"]) for row in found]

    assert ends() == [(0, 10)] * 2 + [(0, 20)] * 2 + [(0, 30)] * 2
    assert ends(startingLink=1, endingLink=2) == [(0, 20)] * 2
    assert ends(endingEntry=5, startingEntry=2) == [(2, 3)] * 6
    assert ends(startingEntry=25, includeValue="false") == [(25, 5)] * 2
    assert ends(fragments=0, startingTime=published[2]) == [(0, 30)] * 2
    assert ends(fragments=1) == []
    view = f"metadata '{cluster.metadata}', chain 'bounded', endingEntry '5'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW few USING ledger OPTIONS ({view})")
    assert spark.sql("SELECT count(*) FROM few WHERE entry_id < 5").collect()[0][0] == 30


def test_small_ledgers_of_a_chain_with_a_deleted_one(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, written: Write
) -> None:
    """The plan, also a remembered one, knows the ledger only from its link."""
    chain = client.chain("many-small")
    chain.create()
    ids = [written(entries(3)) for _ in range(40)]
    chain.publish([client.ledger_info(each) for each in ids])
    frame = read(spark, cluster, chain="many-small")
    assert frame.count() == 120
    client.delete_ledger(ids[20])
    for include in ("true", "false"):
        options = {"chain": "many-small", "includeValue": include}
        with pytest.raises(
            PythonException, match=f"ledger {ids[20]}, entries 0 to 2: the ledger was"
        ):
            read(spark, cluster, **options).agg({"entry_id": "sum"}).collect()
        lenient = read(spark, cluster, failOnDataLoss="false", **options)
        assert lenient.count() == 117


def test_ids_without_payloads_need_no_bookie(
    spark: SparkSession, fragile_cluster: RunningCluster
) -> None:
    with (
        LedgerClient(fragile_cluster.metadata) as client,
        client.create_ledger(Quorum.all(3)) as writer,
    ):
        writer.append_many(entries(70_000))
    for bookie in fragile_cluster.bookies:
        bookie.kill()
    frame = read(spark, fragile_cluster, ledger=writer.id, includeValue="false")
    found = frame.agg({"entry_id": "sum", "*": "count"}).collect()[0]
    assert (found["count(1)"], found["sum(entry_id)"]) == (70_000, 35_000 * 69_999)


def test_a_stream_refuses_bounds(
    spark: SparkSession, cluster: RunningCluster, written: Write
) -> None:
    reader = spark.readStream.format("ledger").option("metadata", cluster.metadata)
    frame = reader.option("ledger", str(written(entries(1)))).option("endingEntry", "5").load()
    query = frame.writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="a stream has no bounds"):
        query.awaitTermination(60)
