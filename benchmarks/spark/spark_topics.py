"""Benchmark of Spark scans of a topic: records of 1 KiB, in batches as producers send them.

Leaves scanning ledgers to `benchmarks.spark.spark_scan`. Target: 300,000 records/s for each core
that reads, with three bookies on the same machine; the time includes Spark's work on the rows.
"""

import asyncio
from random import Random
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Final

from benchmarks.cluster import Running, running
from benchmarks.measures import MEGABYTE, interleaved
from benchmarks.runner import Bench, run
from broker_layer.kafka.record_batch import Compression, Record, build_batch, read_header
from broker_layer.log.log_services import LogServices, TailMemory
from broker_layer.log.topic_configs import LogConfig
from broker_layer.log.topic_log import TopicLog
from ledger_client import Quorum
from metadata.store.zookeeper.store import open_store
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import TopicId, new_topic
from metadata.topics.topic_store import TopicStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD_BYTES: Final = 1024
MB_PER_S_WANTED: Final = 300_000 * RECORD_BYTES / MEGABYTE
"""Target for one core."""
RECORDS_PER_BATCH: Final = 200
BATCHES_AT_ONCE: Final = 20
CORES: Final = (1, 2)
KINDS: Final = {"plain": Compression.NONE, "lz4": Compression.LZ4}
CONFIG: Final = LogConfig(
    quorum=Quorum.majority(3),
    segment_bytes=256 * 1024 * 1024,
    segment_ms=3_600_000,
    segment_jitter_ms=0,
    retention_ms=None,
    retention_bytes=None,
    is_compacted=False,
    max_message_bytes=1024 * 1024,
    uses_append_time=False,
    timestamp_before_max_ms=None,
    timestamp_after_max_ms=None,
    unclean_recovery=False,
)


async def _write(cluster: Running, name: str, kind: Compression, rows: int) -> None:
    """Write a topic of one partition as its leader does; the leader then resigns."""
    rng = Random(name)
    store = await open_store(cluster.cluster.metadata_uri, rng=rng)
    try:
        record = new_topic(name, TopicId(rng.randbytes(16)), 0, [1], {})
        await TopicStore(store, rng).create(record)
        services = LogServices(
            client=cluster.client,
            partitions=PartitionStore(store, rng),
            wall_clock_ms=lambda: time_ns() // 1_000_000,
            rng=rng,
            tail=TailMemory(),
        )
        key = PartitionKey(record.topic_id, 0)
        log = await TopicLog.take_over(services, name, key, 1, CONFIG, on_failed=lambda: None)
        payload = rng.randbytes(RECORD_BYTES)
        now_ms = time_ns() // 1_000_000
        records = [
            Record(n, now_ms + n, b"key-%d" % n, payload, ()) for n in range(RECORDS_PER_BATCH)
        ]
        batch = build_batch(records, compression=kind)
        header = read_header(batch)
        for _ in range(rows // RECORDS_PER_BATCH // BATCHES_AT_ONCE):
            await asyncio.gather(
                *[log.append(header, bytearray(batch)) for _ in range(BATCHES_AT_ONCE)]
            )
        await log.aclose()
    finally:
        await store.aclose()


def _scan(spark: "SparkSession", metadata: str, topic: str, rows: int) -> float:
    """Run one aggregation over all bytes; return its duration in seconds."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - part of an extra

    reader = spark.read.format("topic").option("metadata", metadata).option("topic", topic)
    start = perf_counter()
    totals = reader.load().agg(F.count("*"), F.sum(F.length("value")), F.max("offset")).collect()[0]
    seconds = perf_counter() - start
    assert tuple(totals) == (rows, rows * RECORD_BYTES, rows - 1), totals
    return seconds


async def _measure(bench: Bench) -> None:
    rows = bench.size(1_000_000, 4_000)
    with bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            for name, kind in KINDS.items():
                bench.report.note(f"writing {rows:,} records of {RECORD_BYTES} bytes, {name}")
                await _write(cluster, name, kind, rows)
            metadata = cluster.cluster.metadata_uri
            for cores in CORES:
                await asyncio.to_thread(_measure_scans, bench, metadata, rows, cores)


def _measure_scans(bench: Bench, metadata: str, rows: int, cores: int) -> None:
    from benchmarks.spark.spark_scan import make_session  # noqa: PLC0415

    spark = make_session(cores)
    try:
        for name in KINDS:  # warms up Spark, its workers and the page cache
            _scan(spark, metadata, name, rows)
        for _, name in interleaved(list(KINDS), bench.repetitions):
            case = f"scan {name}, local[{cores}]"
            bench.report.note(case)
            seconds = _scan(spark, metadata, name, rows)
            bench.report.sample(case, {"MB_per_s": rows * RECORD_BYTES / MEGABYTE / seconds})
    finally:
        spark.stop()
    for name in KINDS:
        bench.report.figure(
            f"scan {name}, local[{cores}]",
            "MB_per_s",
            "MB_per_s",
            at_least=MB_PER_S_WANTED if name == "plain" and cores == 1 else None,
        )


if __name__ == "__main__":
    run("spark_topics", _measure)
