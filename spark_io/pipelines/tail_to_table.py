"""Table that follows a chain: a streaming query that loses and repeats no entry.

Leaves following the chain to the `ledger` source, and the table to Spark's own sink.

Invariants: the checkpoint and the table's own log record which part of the chain is in the table,
so a query that is killed at any moment continues from there.

Source: Spark design, "Pipelines".
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def tail_to_table(
    spark: "SparkSession",
    metadata: str,
    chain: str,
    path: str,
    checkpoint: str,
    *,
    table_format: str = "parquet",
    options: Mapping[str, str] | None = None,
    interval: str | None = None,
) -> "StreamingQuery":
    """Start a query that appends a chain's entries to a table. With `interval` (such as "10
    seconds") it runs for ever; without, it ends once it has all present entries.

    `options` are those of the `ledger` source. The table has the source's columns. A checkpoint
    belongs to one table and one chain.
    """
    given = {"metadata": metadata, "chain": chain, **(options or {})}
    entries = spark.readStream.format("ledger").options(**given).load()
    writing = (
        entries.writeStream.format(table_format)
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .option("path", path)
    )
    if interval is None:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=interval).start()
