"""Registration with sessions that the user made, and in threads."""

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_io import register
from tests.spark.conftest import RunningCluster


def test_tasks_run_with_the_python_that_registers(
    spark: SparkSession,
    cluster: RunningCluster,
    written: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "a-python-that-does-not-exist")
    register(spark)
    assert context.pythonExec == "a-python-that-does-not-exist", "PYSPARK_PYTHON is set"
    monkeypatch.delenv("PYSPARK_PYTHON")
    register(spark)
    ledger = written([b"one", b"two"])
    reading = spark.read.format("ledger").option("metadata", cluster.metadata)
    assert reading.option("ledger", str(ledger)).load().count() == 2


def in_new_thread(work: Callable[[], object]) -> BaseException | None:
    """Run work in a thread of its own; return its error."""
    errors: list[BaseException] = []

    def catch() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test compares it
            errors.append(error)

    thread = threading.Thread(target=catch)
    thread.start()
    thread.join()
    return errors[0] if errors else None


def append(spark: SparkSession, cluster: RunningCluster, chain: str) -> None:
    rows = spark.range(10).selectExpr("string(id) AS data")
    writer = rows.write.format("ledger").option("metadata", cluster.metadata)
    writer.option("chain", chain).mode("append").save()


def follow(spark: SparkSession, cluster: RunningCluster, chain: str, directory: Path) -> None:
    reading = spark.readStream.format("ledger").option("metadata", cluster.metadata)
    rows = reading.option("chain", chain).load().select("data")
    writing = rows.writeStream.format("ledger").option("metadata", cluster.metadata)
    writing = writing.option("chain", f"{chain}-copy").trigger(availableNow=True)
    writing.option("checkpointLocation", str(directory)).start().awaitTermination(120)


def count(spark: SparkSession, cluster: RunningCluster, chain: str) -> int:
    reading = spark.read.format("ledger").option("metadata", cluster.metadata)
    return reading.option("chain", chain).load().count()


def test_a_thread_that_registers_writes_and_follows(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    chain = f"chain-{uuid.uuid4()}"

    def work() -> None:
        register(spark)
        append(spark, cluster, chain)
        follow(spark, cluster, chain, tmp_path)

    assert in_new_thread(work) is None
    assert count(spark, cluster, f"{chain}-copy") == 10


def test_a_new_session_is_registered_as_the_first_one_was(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    chain = f"chain-{uuid.uuid4()}"
    another = spark.newSession()
    try:
        register(another)
        append(another, cluster, chain)
        assert count(another, cluster, chain) == 10
    finally:
        register(spark)  # the active session of this thread again
