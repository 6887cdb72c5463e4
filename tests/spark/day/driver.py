"""Streaming driver of a day: copies a chain and counts its lines in windows, in two queries.

Leaves its start and its end to `day`. A driver without `--last` runs until it is killed.
"""

import argparse
import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from spark_io.launching import session
from tests.spark.crashing import CRASH_BEFORE_PUBLISHING, CRASH_FROM_BATCH, CrashingLedgers
from tests.spark.day.times import DISORDER, LATE_MS, LINE_MS, WINDOW_MS
from tests.spark.driver_process import mark_driver

LINES, COPY = "day-lines", "day-copy"
TABLE, TABLE_CHECKPOINT, COPY_CHECKPOINT = "windows", "windows-checkpoint", "copy-checkpoint"
STARTED = "driver-started"
"""File that a driver creates when both queries run."""


def counted(lines: DataFrame) -> DataFrame:
    """Return the number, the bytes and the checksums of lines in each window of their times."""
    number = F.substring_index(F.col("data").cast("string"), "\t", 1).cast("bigint")
    time = F.timestamp_millis(number.bitwiseXOR(F.lit(DISORDER)) * LINE_MS)
    timed = lines.select(time.alias("time"), "data").withWatermark(
        "time", f"{LATE_MS} milliseconds"
    )
    sums = timed.groupBy(F.window("time", f"{WINDOW_MS} milliseconds")).agg(
        F.count("*").alias("lines"),
        F.sum(F.length("data")).alias("bytes"),
        F.sum(F.crc32("data")).alias("checksums"),
    )
    start_ms = F.unix_millis(F.col("window.start")).alias("start_ms")
    return sums.select(start_ms, "lines", "bytes", "checksums")


def start_queries(
    spark: SparkSession, metadata: str, directory: Path, *, batch_entries: int, is_last: bool
) -> None:
    """Start both queries, each with its own checkpoint."""
    reading = spark.readStream.format("ledger").option("metadata", metadata)
    reading = reading.option("chain", LINES).option("maxEntriesPerTrigger", batch_entries)
    spark.dataSource.register(CrashingLedgers)
    sink = CrashingLedgers.name() if CRASH_FROM_BATCH in os.environ else "ledger"
    copy = reading.load().select("data").writeStream.format(sink)
    copy = copy.option("metadata", metadata).option("chain", COPY)
    copy = copy.option("checkpointLocation", str(directory / COPY_CHECKPOINT))
    table = counted(reading.load()).writeStream.format("parquet").outputMode("append")
    table = table.option("path", str(directory / TABLE))
    table = table.option("checkpointLocation", str(directory / TABLE_CHECKPOINT))
    for writing in (copy, table):
        (writing.trigger(availableNow=True) if is_last else writing).start()


def main() -> None:
    """Run both queries: until one fails, or with `--last` until they have all present lines."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.day.driver")
    parser.add_argument("--metadata", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--batch-entries", type=int, required=True)
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--crash-from-batch", metavar="N")
    parser.add_argument("--crash-before-publishing", action="store_true")
    options = parser.parse_args()
    mark_driver()
    if options.crash_from_batch is not None:
        os.environ[CRASH_FROM_BATCH] = options.crash_from_batch
    if options.crash_before_publishing:
        os.environ[CRASH_BEFORE_PUBLISHING] = "1"
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    spark = session("a day", master="local[2]", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    start_queries(
        spark,
        options.metadata,
        options.directory,
        batch_entries=options.batch_entries,
        is_last=options.last,
    )
    (options.directory / STARTED).touch()
    while spark.streams.active:
        spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()
    spark.stop()


if __name__ == "__main__":
    main()
