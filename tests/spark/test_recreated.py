"""Queries whose chain or ledger was deleted and created again since their checkpoint.

Leaves topics to `test_recreated_topics`.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from ledger_client import Quorum
from ledger_client.sync import LedgerClient
from spark_io.errors import RecreatedError
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.readers import LedgerBatchReader
from spark_io.ranges import PackedRanges
from spark_io.readers import RangePartition
from tests.spark.checkpoints import (
    LENIENT,
    failure,
    forget_commit,
    ids_from_start,
    remove_ids,
    rows_read,
)
from tests.spark.conftest import RunningCluster
from tests.spark.streams import stream
from tests.until import WAIT_S

pytestmark = pytest.mark.timeout(600)

OTHER_ID = 10**15 + 7
Write = Callable[..., int]


def count(spark: SparkSession, directory: Path) -> int:
    return spark.read.parquet(str(directory / "table")).count()


@pytest.fixture
def chain() -> str:
    return f"chain-{uuid.uuid4()}"


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


def test_a_checkpoint_that_outlives_its_chain_fails(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    """The new chain has more entries, so that the old position is one of its own."""
    publish(client, chain, 10)
    assert rows_read(stream(spark, cluster, chain=chain), tmp_path / "old") == 10
    create_again(client, chain, 700)
    for _ in range(2):
        said = failure(stream(spark, cluster, chain=chain), tmp_path / "old")
        assert f"chain '{chain}' was deleted and created again since the checkpoint" in said
        assert "Begin with a new checkpoint" in said
    assert count(spark, tmp_path / "old") == 10
    assert rows_read(stream(spark, cluster, chain=chain), tmp_path / "new") == 700


def test_a_chain_created_again_is_read_from_its_start_if_data_loss_is_allowed(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    publish(client, chain, 10)
    publish(client, chain, 10)
    assert rows_read(stream(spark, cluster, chain=chain), tmp_path) == 20
    create_again(client, chain, 7)
    frame = stream(spark, cluster, chain=chain, maxEntriesPerTrigger=5, **LENIENT)
    assert rows_read(frame, tmp_path) == 7
    assert rows_read(frame, tmp_path) == 0
    publish(client, chain, 4)
    assert rows_read(stream(spark, cluster, chain=chain), tmp_path) == 4
    assert count(spark, tmp_path) == 31


def test_a_micro_batch_of_a_deleted_chain_is_not_read_from_the_present_one(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    publish(client, chain, 10)
    assert rows_read(stream(spark, cluster, chain=chain), tmp_path) == 10
    forget_commit(tmp_path)
    create_again(client, chain, 700)
    said = failure(stream(spark, cluster, chain=chain), tmp_path)
    assert "was deleted and created again since the checkpoint" in said
    assert rows_read(stream(spark, cluster, chain=chain, **LENIENT), tmp_path) == 700


def test_a_checkpoint_without_identities_is_refused(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, chain: str, tmp_path: Path
) -> None:
    publish(client, chain, 10)
    assert rows_read(stream(spark, cluster, chain=chain), tmp_path) == 10
    remove_ids(tmp_path)
    publish(client, chain, 5)
    said = failure(stream(spark, cluster, chain=chain), tmp_path)
    assert "does not record the identity of chain" in said


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
            query.awaitTermination(int(WAIT_S))
        assert spark.table(name).count() == 3
    finally:
        query.stop()


def test_a_ledger_of_another_cluster_with_the_same_id(
    spark: SparkSession,
    cluster: RunningCluster,
    own_cluster: RunningCluster,
    tmp_path: Path,
) -> None:
    for running_cluster, rows in ((cluster, 10), (own_cluster, 30)):
        with (
            LedgerClient(running_cluster.metadata) as client,
            client.create_ledger(Quorum.all(2), ledger_id=OTHER_ID) as writer,
        ):
            writer.append_many([b"entry"] * rows)
    assert rows_read(stream(spark, cluster, ledger=OTHER_ID), tmp_path) == 10
    assert rows_read(stream(spark, cluster, ledger=OTHER_ID), tmp_path) == 0
    said = failure(stream(spark, own_cluster, ledger=OTHER_ID), tmp_path)
    assert f"ledger '{OTHER_ID}' was deleted and created again" in said
    frame = stream(spark, own_cluster, ledger=OTHER_ID, **LENIENT)
    assert rows_read(frame, tmp_path) == 30
    assert rows_read(stream(spark, own_cluster, ledger=OTHER_ID), tmp_path) == 0


def test_starting_offsets_need_no_identities(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    chain: str,
    written: Write,
    tmp_path: Path,
) -> None:
    publish(client, chain, 10)
    start: dict[str, object] = {"link": 0, "ledger": 0, "entry": 6}
    ids = ids_from_start(spark, cluster, {"chain": chain}, start, tmp_path / "chain")
    assert ids == {chain: client.chain(chain).info().creation_token.hex()}
    ledger = written([b"entry"] * 10)
    start = {str(ledger): 6}
    ids = ids_from_start(spark, cluster, {"ledger": ledger}, start, tmp_path / "ledger")
    assert ids == {str(ledger): client.ledger_info(ledger).creation_token.hex()}


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
    ranges = [replace(range_, creation_token=bytes(16)) for range_ in part.ranges]
    other = replace(part, ranges=PackedRanges(ranges))
    with pytest.raises(RecreatedError, match="since this part of the query was planned"):
        rows_of(strict, other)
    assert rows_of(lenient, other) == 0
    assert "left out entries 0 to 9, 10 in all" in caplog.text


def rows_of(reader: LedgerBatchReader, part: InputPartition) -> int:
    return sum(batch.num_rows for batch in reader.read(part))
