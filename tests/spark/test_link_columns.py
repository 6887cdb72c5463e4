"""Columns of a ledger's link and time, in batch queries, SQL and streams."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from ledger_client import LedgerInfo
from ledger_client.sync import LedgerClient
from tests.spark.conftest import RunningCluster

pytestmark = pytest.mark.spark
CHAIN = "with-links"


@pytest.fixture
def linked(client: LedgerClient, written: Callable[..., int]) -> list[LedgerInfo]:
    """Return three ledgers: two in link 0 of a chain, one in link 1."""
    chain = client.chain(CHAIN)
    if chain.name in client.list_chains():
        chain.delete()
    chain.create()
    ids = [written([b"x"] * count) for count in (3, 4, 5)]
    infos = [client.ledger_info(each) for each in ids]
    chain.publish(infos[:2])
    chain.publish(infos[2:])
    return infos


def test_links_and_times_in_sql_and_in_a_stream(
    spark: SparkSession, cluster: RunningCluster, linked: list[LedgerInfo], tmp_path: Path
) -> None:
    options = f"metadata '{cluster.metadata}', chain '{CHAIN}', includeLink 'true'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW linked USING ledger OPTIONS ({options})")
    assert spark.table("linked").columns[3:] == ["data", "link", "ledger_time"]
    counts = spark.sql("SELECT link, count(*) FROM linked GROUP BY link ORDER BY link").collect()
    assert [tuple(row) for row in counts] == [(0, 7), (1, 5)]
    newest = max(ledger_info.created_ms for ledger_info in linked)
    late = datetime.fromtimestamp(newest / 1000, UTC).isoformat()
    found = spark.sql(f"SELECT ledger_id FROM linked WHERE ledger_time >= '{late}'").collect()
    wanted = [ledger_info.id for ledger_info in linked if ledger_info.created_ms == newest]
    assert sorted({row[0] for row in found}) == sorted(wanted)

    reader = spark.readStream.format("ledger").option("metadata", cluster.metadata)
    reader = reader.options(chain=CHAIN, includeLink="true", includeValue="false")
    writing = reader.load().writeStream.format("parquet").option("path", str(tmp_path / "table"))
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writing.trigger(availableNow=True).start().awaitTermination(120)
    table = spark.read.parquet(str(tmp_path / "table"))
    rows = table.groupBy("link", "ledger_id", "ledger_time").count().orderBy("ledger_id")
    times = [(row["ledger_id"], row["link"], row["count"]) for row in rows.collect()]
    ids = [ledger_info.id for ledger_info in linked]
    assert times == [(ids[0], 0, 3), (ids[1], 0, 4), (ids[2], 1, 5)]
    micros = [row[0] for row in rows.select(F.unix_micros("ledger_time")).collect()]
    assert micros == [1_000 * ledger_info.created_ms for ledger_info in linked]


def test_named_ledgers_have_no_link(
    spark: SparkSession, cluster: RunningCluster, linked: list[LedgerInfo]
) -> None:
    reader = spark.read.format("ledger").option("metadata", cluster.metadata)
    reader = reader.options(ledger=str(linked[0].id), includeLink="true")
    rows = reader.load().select("link", F.unix_millis("ledger_time")).distinct().collect()
    assert [tuple(row) for row in rows] == [(None, linked[0].created_ms)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"includeLink": "maybe"}, "includeLink"),
        (
            {"includeLink": "true", "payloadFormat": "json", "payloadSchema": "a int"},
            "the columns are those of payloads: omit payloadFormat",
        ),
    ],
    ids=json.dumps,
)
def test_a_wrong_use_is_refused(
    spark: SparkSession, cluster: RunningCluster, options: dict[str, str], why: str
) -> None:
    reader = spark.read.format("ledger").option("metadata", cluster.metadata).option("ledger", "1")
    with pytest.raises(PySparkException, match=why):
        reader.options(**options).load()
