"""Payloads as columns of views, tables and streams, on real bookies and a real Spark."""

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession

from tests.spark.conftest import RunningCluster
from tests.spark.test_writing import save

COLUMNS = "id bigint, level string"


@pytest.fixture(scope="module")
def chain(spark: SparkSession, cluster: RunningCluster) -> str:
    """Write a chain of 1,000 JSON events, of which every tenth is an error, and one bad payload."""
    level = "if(id % 10 == 0, 'error', 'info') AS level"
    events = spark.range(0, 1_000, 1, 2).selectExpr("id", level)
    payloads = events.selectExpr("to_json(struct(*)) AS data").unionAll(
        spark.sql('SELECT \'{"id": "x"}\' AS data')
    )
    save(payloads, cluster, "json-events")
    return "json-events"


@pytest.fixture
def stored(spark: SparkSession) -> Iterator[None]:
    yield
    spark.sql("DROP VIEW IF EXISTS stored_events")
    spark.sql("DROP TABLE IF EXISTS stored_ledgers")


def test_a_view_of_parsed_payloads(
    spark: SparkSession, cluster: RunningCluster, chain: str
) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW events USING ledger OPTIONS (metadata "
        f"'{cluster.metadata}', chain '{chain}', payloadFormat 'json', payloadSchema '{COLUMNS}')"
    )
    levels = spark.sql("SELECT level, count(*) AS n FROM events GROUP BY level").collect()
    assert {row.level: row.n for row in levels} == {"error": 100, "info": 900, None: 1}
    [bad] = spark.sql("SELECT * FROM events WHERE _corrupt_record IS NOT NULL").collect()
    assert (bad.id, bad.level, bad._corrupt_record) == (None, None, '{"id": "x"}')


@pytest.mark.usefixtures("stored")
def test_a_table_keeps_its_columns_and_a_view_its_options(
    spark: SparkSession, cluster: RunningCluster, chain: str
) -> None:
    where = f"'metadata' = '{cluster.metadata}', 'chain' = '{chain}-2'"
    spark.sql(f"CREATE TABLE stored_ledgers ({COLUMNS}) USING ledger")
    spark.sql(
        "CREATE VIEW stored_events AS SELECT * FROM stored_ledgers "
        f"WITH ({where}, 'payloadFormat' = 'json')"
    )
    save(spark.sql('SELECT \'{"id": 4, "level": "warn"}\' AS data'), cluster, f"{chain}-2")
    assert spark.sql("SELECT level FROM stored_events WHERE id = 4").collect() == [("warn",)]
    save(spark.sql("SELECT '?' AS data"), cluster, f"{chain}-2")
    with pytest.raises(PythonException, match="entry 0: its payload is not json of the given"):
        spark.sql("SELECT count(*) FROM stored_events").collect()


def test_a_stream_of_parsed_payloads(
    spark: SparkSession, cluster: RunningCluster, chain: str
) -> None:
    reader = spark.readStream.format("ledger").option("metadata", cluster.metadata)
    reader = (
        reader.option("chain", chain)
        .option("payloadFormat", "json")
        .schema(f"{COLUMNS}, bad string")
    )
    frame = reader.option("columnNameOfCorruptRecord", "bad").load()
    query = frame.writeStream.format("memory").queryName("parsed").trigger(availableNow=True)
    query.start().awaitTermination()
    assert spark.sql("SELECT count(id), count(bad) FROM parsed").collect() == [(1_000, 1)]


def test_wrong_columns_are_reported_when_the_source_is_loaded(
    spark: SparkSession, cluster: RunningCluster, chain: str
) -> None:
    reader = spark.read.format("ledger").option("metadata", cluster.metadata).option("chain", chain)
    with pytest.raises(AnalysisException, match="option 'payloadSchema': missing"):
        reader.option("payloadFormat", "json").load()
