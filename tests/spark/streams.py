"""Streaming queries into tables of files, run to their ends."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.conftest import RunningCluster
from tests.until import WAIT_S


def stream(
    spark: SparkSession, cluster: RunningCluster, kind: str = "ledger", /, **options: object
) -> DataFrame:
    """Return a stream of entries, or of records if the kind is `topic`."""
    reader = spark.readStream.format(kind).option("metadata", cluster.metadata)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def into_files(frame: DataFrame, directory: Path, *, once: bool = True) -> StreamingQuery:
    """Start a query that writes `directory/table`, with its checkpoint beside it."""
    writing = frame.writeStream.format("parquet").option("path", str(directory / "table"))
    writing = writing.option("checkpointLocation", str(directory / "checkpoint"))
    return (writing.trigger(availableNow=True) if once else writing).start()


def finish(query: StreamingQuery) -> list[int]:
    """Wait for the end; return the number of rows of each micro-batch."""
    query.awaitTermination(int(WAIT_S))
    assert not query.isActive, "it ends by itself"
    return [
        int(progress["numInputRows"])
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
