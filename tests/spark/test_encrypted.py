"""Encrypted ledgers through Spark: written, read, streamed, archived and restored."""

import base64
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from ledger_client import EncryptedLedgerError, Quorum, read_key_file
from ledger_client.sync import LedgerClient
from spark_io.pipelines.archive import archive
from spark_io.pipelines.restore import restore
from spark_io.pipelines.scrub import findings_of, scrub
from tests.spark.conftest import RunningCluster


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "keys.toml"
    path.write_text(f'current = "k"\n[keys]\nk = "{base64.b64encode(b"s" * 32).decode()}"\n')
    path.chmod(0o600)
    return str(path)


def found(spark: SparkSession, cluster: RunningCluster, chain: str, **options: str) -> list[bytes]:
    reader = spark.read.format("ledger").option("metadata", cluster.metadata)
    rows = reader.option("chain", chain).options(**options).load().collect()
    return sorted(bytes(row.data) for row in rows)


def test_rows_are_encrypted_and_read_back(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, key_file: str
) -> None:
    chain = "encrypted-rows"
    numbers = spark.range(0, 200, 1, 2).select(F.col("id").cast("string").alias("data"))
    writer = numbers.write.format("ledger").mode("append").option("metadata", cluster.metadata)
    writer.option("chain", chain).option("keyFile", key_file).save()
    writer.option("chain", chain).option("keyFile", "").save()  # a plain link beside it
    wanted = sorted(b"%d" % number for number in range(200) for _ in range(2))
    assert found(spark, cluster, chain, keyFile=key_file) == wanted
    assert (
        len([each for each in found(spark, cluster, chain, asStored="true") if each in wanted])
        == 200
    )
    for options in ({}, {"failOnDataLoss": "false"}):
        with pytest.raises(Exception, match=r"encrypted with the key 'k'.*option keyFile"):
            found(spark, cluster, chain, **options)
    [(_, link), _] = client.chain(chain).links(0, 2)
    assert link is not None
    with pytest.raises(EncryptedLedgerError):
        client.open_ledger(link.ledgers[0].ledger_id)


def test_a_stream_decrypts(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    key_file: str,
    tmp_path: Path,
) -> None:
    with client.create_ledger(Quorum.all(3), encryption=read_key_file(key_file)) as ledger:
        ledger.append_many([b"%d" % number for number in range(50)])
        reader = spark.readStream.format("ledger").option("metadata", cluster.metadata)
        rows = reader.option("ledger", str(ledger.id)).option("keyFile", key_file).load()
        writing = rows.selectExpr("string(data) as data").writeStream.format("parquet")
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start(str(tmp_path / "table"))
        query.awaitTermination(120)
        assert query.exception() is None
    table = spark.read.schema("data string").parquet(str(tmp_path / "table")).collect()
    assert sorted(int(row.data) for row in table) == list(range(50))


def test_an_archive_keeps_the_ciphertext(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    key_file: str,
    tmp_path: Path,
) -> None:
    keys, mark = read_key_file(key_file), b"a payload that archives must not show"
    with client.create_ledger(Quorum.all(3), encryption=keys) as ledger:
        ledger.append_many([mark] * 10)
    with client.create_ledger(Quorum.all(3)) as plain:
        plain.append_many([b"plain"] * 10)
    assert findings_of(scrub(spark, cluster.metadata, [ledger.id])) == []
    path, chain = str(tmp_path / "archive"), "encrypted-archive"
    archive(spark, cluster.metadata, path, [ledger.id, plain.id])
    entries = spark.read.parquet(f"{path}/entries").where(f"ledger_id = {ledger.id}").collect()
    assert {len(bytes(row.data)) for row in entries} == {len(mark) + 16}
    assert len({bytes(row.data) for row in entries}) == 10
    options = {"keyFile": key_file}
    new = restore(spark, cluster.metadata, path, chain, options=options)
    for old, payload in ((ledger.id, mark), (plain.id, b"plain")):
        with client.open_ledger(new[old], encryption=keys) as reader:
            assert [entry.data for batch in reader.read() for entry in batch] == [payload] * 10
    copy, original = client.ledger_info(new[ledger.id]), client.ledger_info(ledger.id)
    assert copy.encryption == original.encryption
    fresh = client.ledger_info(new[plain.id])
    assert fresh.encryption is not None
    assert fresh.encryption.key_token == fresh.creation_token
