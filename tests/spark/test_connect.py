"""A client of Spark Connect: what it registers works in its session on the server.

Leaves what the data sources do to the tests with a session of this process.
"""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.spark.conftest import RunningCluster
from tests.spark.standalone import connect_server

pytest.importorskip("grpc", reason="needs the extra `spark-connect`")

TIMEOUT_S = 240
CLIENT = """
import sys

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from spark_io import register
from spark_io.pipelines.scrub import findings_of, scrub
from spark_io.pipelines.tail_to_table import tail_to_table

remote, metadata, chain, directory = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
register(spark)


def ledgers(chain):
    return spark.read.format("ledger").option("metadata", metadata).option("chain", chain)


rows = spark.range(0, 1_000, 1, 2).selectExpr("string(id) AS data")
writer = rows.write.format("ledger").option("metadata", metadata).option("chain", chain)
writer.mode("append").save()
stored = ledgers(chain).load()
print("entries:", stored.count())

query = tail_to_table(spark, metadata, chain, f"{directory}/table", f"{directory}/checkpoint")
query.awaitTermination(60)
print("table:", spark.read.parquet(f"{directory}/table").count())

try:
    ledgers("no-such-chain").load().count()
except AnalysisException as error:
    print("batch error:", str(error).splitlines()[0])
follow = spark.readStream.format("ledger").option("metadata", metadata).option("match", "a=b")
try:
    writing = follow.load().writeStream.format("parquet").option("path", f"{directory}/none")
    writing = writing.option("checkpointLocation", f"{directory}/none-checkpoint")
    writing.trigger(availableNow=True).start().awaitTermination(60)
except (AnalysisException, StreamingQueryException) as error:
    print("stream error:", str(error).splitlines()[0])

ids = [row.ledger_id for row in stored.select("ledger_id").distinct().collect()]
print("findings:", findings_of(scrub(spark, metadata, ids)))
spark.stop()
"""


@pytest.mark.timeout(2 * TIMEOUT_S)
def test_a_client_registers_reads_writes_and_follows(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    script = tmp_path / "client.py"
    script.write_text(CLIENT)
    with connect_server(tmp_path) as remote:
        chain = f"chain-{uuid.uuid4()}"
        done = subprocess.run(
            [sys.executable, str(script), remote, cluster.metadata, chain, str(tmp_path)],
            cwd=tmp_path,
            env={name: text for name, text in os.environ.items() if name != "SPARK_REMOTE"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    told = dict(line.split(": ", maxsplit=1) for line in done.stdout.splitlines())
    no_chain, no_match = told.pop("batch error"), told.pop("stream error")
    assert told == {"entries": "1000", "table": "1000", "findings": "[]"}
    assert "there is no chain 'no-such-chain': `quire chain list` shows" in no_chain
    assert "option 'match': a stream reads named ledgers or a chain" in no_match
