"""Registration with a session that the user made."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from spark_io import register
from tests.spark.conftest import RunningCluster


@pytest.mark.timeout(300)
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
