"""Benchmark of ledgers next to Parquet and text files: the same rows written and scanned by Spark.

Leaves the maximum speed of a Python source to `benchmarks.spark.spark_scan`. Rows are printable, so
that text files can hold them, and differ, so that Parquet cannot store each once. Ledgers have
three copies, which are synced; the files have one, which is not.
"""

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

from benchmarks.cluster import running
from benchmarks.measures import MEGABYTE, interleaved
from benchmarks.runner import Bench, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROW_BYTES: Final = (100, 1024, 65_536)
BYTES: Final = 256 * 1024 * 1024
POOL_BYTES: Final = 4 * 1024 * 1024
"""Size of the rows that are repeated, in bytes: above what Parquet keeps in a dictionary."""
FORMATS: Final = ("ledger", "parquet", "text")


class _Stored:
    """The rows of one size, written in each format."""

    def __init__(
        self, spark: "SparkSession", metadata: str, directory: "Path", size: int, rows: int
    ) -> None:
        self._spark = spark
        self._metadata = metadata
        self._directory = directory
        self._size = size
        self._rows = rows
        self._names: dict[str, str] = {}

    def write(self, kind: str, number: int) -> float:
        """Write all rows once; return the duration in seconds."""
        name = f"{kind}-{self._size}-{number}"
        self._names[kind] = name
        frame = self._spark.read.format("memory-ceiling").options(
            rows=str(self._rows),
            parts="4",
            entryBytes=str(self._size),
            batchRows=str(max(1, min(20_000, 2 * 1024 * 1024 // self._size))),
            poolRows=str(max(8, POOL_BYTES // self._size)),
        )
        data = frame.load().select("data")
        start = perf_counter()
        if kind == "ledger":
            writer = data.write.format("ledger").mode("append")
            writer.options(metadata=self._metadata, chain=name).save()
        elif kind == "parquet":
            data.write.parquet(str(self._directory / name))
        else:
            data.selectExpr("cast(data AS string) AS value").write.text(str(self._directory / name))
        return perf_counter() - start

    def scan(self, kind: str) -> float:
        """Aggregate over the bytes of all rows; return the duration in seconds."""
        frame = self._load(kind)
        start = perf_counter()
        totals = frame.selectExpr("count(*)", f"sum(length({frame.columns[-1]}))").collect()[0]
        seconds = perf_counter() - start
        assert tuple(totals) == (self._rows, self._rows * self._size), totals
        return seconds

    def _load(self, kind: str) -> "DataFrame":
        name = self._names[kind]
        if kind == "ledger":
            reader = self._spark.read.format("ledger")
            return reader.options(metadata=self._metadata, chain=name).load()
        return self._spark.read.format(kind).load(str(self._directory / name))


def _measure_size(
    bench: Bench, spark: "SparkSession", metadata: str, directory: "Path", size: int
) -> None:
    rows = max(8, bench.size(BYTES, 1024 * 1024) // size) // 4 * 4
    stored = _Stored(spark, metadata, directory, size, rows)
    for kind in FORMATS:  # warms up the workers and the page cache
        stored.write(kind, 0)
        stored.scan(kind)
    total = rows * size / MEGABYTE
    for number, kind in interleaved(FORMATS, bench.repetitions):
        for what in ("write", "scan"):
            case = f"{what} {kind}, rows of {size:,} bytes"
            bench.report.note(case)
            seconds = stored.write(kind, number + 1) if what == "write" else stored.scan(kind)
            bench.report.sample(case, {"MB_per_s": total / seconds})
    for what in ("write", "scan"):
        for kind in FORMATS:
            case = f"{what} {kind}, rows of {size:,} bytes"
            bench.report.figure(case, "MB_per_s", "MB_per_s")


def _measure_all(bench: Bench, metadata: str, directory: "Path") -> None:
    from benchmarks.spark.spark_scan import make_session  # noqa: PLC0415 - part of an extra

    spark = make_session(2)
    try:
        for size in ROW_BYTES:
            _measure_size(bench, spark, metadata, directory, size)
    finally:
        spark.stop()


async def _measure(bench: Bench) -> None:
    with bench.subdirectory() as directory:
        async with running(directory / "cluster", 3) as cluster:
            metadata = cluster.cluster.metadata_uri
            await asyncio.to_thread(_measure_all, bench, metadata, directory)


if __name__ == "__main__":
    run("spark_formats", _measure, repeat=3)
