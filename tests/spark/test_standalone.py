"""Ledgers on a standalone cluster of two workers, with tasks that run twice.

Leaves everything else to the tests on one machine's threads.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from ledger_client.sync import LedgerClient
from tests.spark.conftest import RunningCluster
from tests.spark.standalone import standalone_spark

ROWS = 4_000
JOB = f"""
import sys
import time

from pyspark import TaskContext
from pyspark.sql import functions as F

from spark_io.launching import session

metadata, master = sys.argv[1:]
spark = session(
    "standalone",
    master=master,
    conf={{
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }},
)


@F.udf("string", useArrow=False)
def slow_at_first(number):
    if number == {ROWS - 1} and TaskContext.get().attemptNumber() == 0:
        time.sleep(60)
    return str(number) + " " * 2_000  # more than the buffers on the way hold


hosts = spark.sparkContext.parallelize(range(40), 40).map(
    lambda _: (time.sleep(0.05), __import__("os").getppid())[1]
).distinct().count()
rows = spark.range(0, {ROWS}, 1, 4).select(slow_at_first("id").alias("data"))
writing = rows.write.format("ledger").option("metadata", metadata).option("chain", "twice")
writing.mode("append").save()
found = spark.read.format("ledger").option("metadata", metadata).option("chain", "twice").load()
values = sorted(int(bytes(row.data)) for row in found.collect())
print("EXECUTORS", hosts)
print("WHOLE", values == list(range({ROWS})))
spark.stop()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a second loopback address is needed")
def test_a_task_that_runs_twice_on_two_executors_is_published_once(
    own_cluster: RunningCluster, tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    with standalone_spark(tmp_path) as master:
        done = subprocess.run(
            [sys.executable, str(script), own_cluster.metadata, master],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WHOLE True" in done.stdout
    assert "EXECUTORS 2" in done.stdout
    with LedgerClient(own_cluster.metadata) as client:
        ledgers = list(client.list_ledgers())
        assert len(ledgers) == 5, "the slow task's first attempt wrote a ledger too"
        assert client.chain("twice").collect(grace_s=0) == 1
