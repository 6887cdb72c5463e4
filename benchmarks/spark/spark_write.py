"""Benchmark of Spark writes of ledgers, next to a sink that drops rows; and of micro-batches, next
to those of a source without rows.

Leaves reading to `benchmarks.spark.spark_scan`. Target, with local[2] and three bookies on two
cores: writing at >= 0.4 of the ceiling; the median micro-batch within 100 ms of the empty source's.
"""

import asyncio
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Final

from benchmarks.cluster import Running, running
from benchmarks.measures import MEGABYTE, interleaved, percentile
from benchmarks.runner import Bench, run
from ledger_client import Quorum

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SHARE_WANTED: Final = 0.4
BATCH_ABOVE_EMPTY_MS_WANTED: Final = 100.0
ENTRY_BYTES: Final = 1024
APPENDS_PER_S: Final = 200


def _save(spark: "SparkSession", metadata: str, name: str, rows: int) -> float:
    """Write rows generated in memory; return the duration in seconds."""
    source = spark.read.format("memory-ceiling").option("rows", str(rows)).option("parts", "2")
    frame = source.option("entryBytes", str(ENTRY_BYTES)).load().select("data")
    start = perf_counter()
    if name == "ledgers":
        options = {"metadata": metadata, "chain": "written"}
        frame.write.format("ledger").mode("append").options(**options).save()
    else:
        frame.write.format("memory-ceiling").mode("append").save()
    return perf_counter() - start


def _measure_writes(bench: Bench, metadata: str, rows: int) -> None:
    from benchmarks.spark.spark_scan import make_session  # noqa: PLC0415

    spark = make_session(2)
    try:
        for name in ("ledgers", "nothing"):
            _save(spark, metadata, name, rows // 4)
        for _, name in interleaved(["ledgers", "nothing"], bench.repetitions):
            bench.report.note(f"write {name}")
            seconds = _save(spark, metadata, name, rows)
            rate = rows * ENTRY_BYTES / MEGABYTE / seconds
            bench.report.sample(f"write {name}", {"MB_per_s": rate})
    finally:
        spark.stop()
    for name in ("ledgers", "nothing"):
        bench.report.figure(f"write {name}", "MB_per_s", "MB_per_s")
    pairs = zip(
        bench.report.values("write ledgers", "MB_per_s"),
        bench.report.values("write nothing", "MB_per_s"),
        strict=True,
    )
    shares = [ours / most for ours, most in pairs]
    bench.report.figure(
        "write, share of the ceiling", "ratio", "ratio", at_least=SHARE_WANTED, values=shares
    )


def _batch_ms(spark: "SparkSession", directory: "Path", name: str, seconds: int) -> list[float]:
    """Run a streaming query for `seconds`; return the durations of its micro-batches in ms."""
    reading = spark.readStream.format("memory-ceiling")
    if name.startswith("ledger "):
        metadata, ledger_id = name.split()[1:]
        reading = spark.readStream.format("ledger").option("metadata", metadata)
        reading = reading.option("ledger", ledger_id)
    writing = reading.load().writeStream.format("noop").outputMode("append")
    checkpoint = directory / f"checkpoint-{perf_counter()}"
    query = writing.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination(seconds)
    progress = list(query.recentProgress)
    query.stop()
    took = [query_progress["durationMs"].get("triggerExecution", 0) for query_progress in progress]
    is_ledger = name.startswith("ledger ")
    rows = [query_progress["numInputRows"] for query_progress in progress]
    return [ms for ms, count in zip(took, rows, strict=True) if count or not is_ledger][3:]


async def _append_slowly(cluster: Running, created: "asyncio.Future[int]") -> None:
    payload = Random(1).randbytes(ENTRY_BYTES)
    async with cluster.client.create_ledger(Quorum.majority(3)) as ledger:
        await ledger.append(payload)
        created.set_result(int(ledger.id))
        while True:
            await ledger.append(payload)
            await asyncio.sleep(1 / APPENDS_PER_S)


async def _measure_streams(bench: Bench, cluster: Running, directory: "Path") -> None:
    from benchmarks.spark.spark_scan import make_session  # noqa: PLC0415

    created: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    appending = asyncio.create_task(_append_slowly(cluster, created))
    ledger = f"ledger {cluster.cluster.metadata_uri} {await created}"
    spark = await asyncio.to_thread(make_session, 2)
    cases = {"micro-batch of a ledger": ledger, "micro-batch of an empty source": "empty"}
    seconds = bench.size(20, 8)
    try:
        for _, case in interleaved(list(cases), min(3, bench.repetitions)):
            bench.report.note(case)
            took = await asyncio.to_thread(_batch_ms, spark, directory, cases[case], seconds)
            ordered = sorted(took)
            if ordered:
                half, most = percentile(ordered, 0.5), percentile(ordered, 0.9)
                sample = {"p50_ms": half, "p90_ms": most, "batches": len(ordered)}
                bench.report.sample(case, sample)
    finally:
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
        await asyncio.to_thread(spark.stop)
    for case in cases:
        bench.report.figure(case, "p50_ms", "ms")
    ours, empty = (bench.report.values(case, "p50_ms") for case in cases)
    above = [a - b for a, b in zip(ours, empty, strict=True)]
    bench.report.figure(
        "micro-batch, above an empty source's",
        "p50_ms",
        "ms",
        at_most=BATCH_ABOVE_EMPTY_MS_WANTED,
        values=above,
    )


async def _measure(bench: Bench) -> None:
    rows = bench.size(1_000_000, 4_000)
    with bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            metadata = cluster.cluster.metadata_uri
            await asyncio.to_thread(_measure_writes, bench, metadata, rows)
            await _measure_streams(bench, cluster, directory)


if __name__ == "__main__":
    run("spark_write", _measure)
