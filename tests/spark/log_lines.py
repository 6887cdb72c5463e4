"""A data engineer's work on millions of log lines while a bookie dies, compared with the same work
on the file.

`python -m tests.spark.log_lines FILE`: the lines go into ledgers of a chain through Spark, while a
bookie is killed. Then they are counted, filtered, grouped and joined from the ledgers. The file
must be text with a line per event, such as any log; a word in capitals is treated as its level.
"""

import argparse
import re
import threading
import time
import zlib
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from spark_io.launching import session
from spark_io.pipelines.ingest import lines_of
from tests.spark.conftest import RunningCluster

LEVEL = r"\b([A-Z]{4,5})\b"
KILL_AFTER_S = 5.0
CHAIN = "logs"

Found = tuple[int, int, int, dict[str, tuple[int, int]]]
"""Lines, lines of the most frequent level, the sum of CRC-32, and lines and bytes by level."""


def from_ledgers(spark: SparkSession, metadata: str) -> Found:
    """Count, filter, group and join the entries of the chain."""
    reader = spark.read.format("ledger").option("metadata", metadata).option("chain", CHAIN)
    lines = reader.load().select("data", F.col("data").cast("string").alias("line"))
    count = lines.count()
    levels = lines.select(F.regexp_extract("line", LEVEL, 1).alias("level"), "data")
    frequent = levels.groupBy("level").count().orderBy(F.desc("count"), "level").first()
    assert frequent is not None
    filtered = levels.where(F.col("level") == frequent.level).count()
    total = lines.agg(F.sum(F.crc32("data"))).first()
    names: DataFrame = levels.select("level").distinct()
    joined = levels.join(names, "level").groupBy("level")
    sums = joined.agg(F.count("*").alias("lines"), F.sum(F.length("data")).alias("size")).collect()
    by_level = {row["level"]: (int(row["lines"]), int(row["size"])) for row in sums}
    return count, filtered, int(total[0]) if total else 0, by_level


def from_file(path: Path) -> Found:
    """Compute the same from the file, without Spark."""
    lines: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    count = total = 0
    pattern = re.compile(LEVEL, re.ASCII)
    with path.open("rb") as file:
        for raw in file:
            line = raw.rstrip(b"\n").removesuffix(b"\r")
            found = pattern.search(line.decode("utf-8", "replace"))
            level = found[1] if found else ""
            count, total = count + 1, total + zlib.crc32(line)
            lines[level] += 1
            sizes[level] += len(line)
    by_level = {level: (lines[level], sizes[level]) for level in lines}
    frequent = min(lines, key=lambda level: (-lines[level], level))
    return count, lines[frequent], total, by_level


def main() -> int:
    """Run all steps; return 1 if a result differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.log_lines")
    parser.add_argument("file", type=Path, help="text, in UTF-8, with a line per event")
    path: Path = parser.parse_args().file
    cluster = RunningCluster(4)
    try:
        spark = session("log lines", master="local[2]", conf={"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("OFF")
        killing = threading.Timer(KILL_AFTER_S, cluster.bookies[0].kill)
        killing.start()
        start = time.monotonic()
        writing = lines_of(spark, [str(path)]).write.format("ledger").mode("append")
        writing.option("metadata", cluster.metadata).option("chain", CHAIN).save()
        wrote_s = time.monotonic() - start
        killing.join()
        found = from_ledgers(spark, cluster.metadata)
        took_s = time.monotonic() - start - wrote_s
        spark.stop()
    finally:
        cluster.stop()
    is_same = found == from_file(path)
    print(f"{found[0]:,} lines written in {wrote_s:.1f} s, five queries in {took_s:.1f} s")
    print(f"{len(found[3])} levels; from the file: {'the same' if is_same else 'SOMETHING ELSE'}")
    return 0 if is_same else 1


if __name__ == "__main__":
    raise SystemExit(main())
