"""Benchmark of Spark scans of ledgers, next to a source that yields the same bytes from memory.

Leaves writing to `benchmarks.spark.spark_write`. Target, with local[2] and three bookies on two
cores: 2 GB of 1 KiB entries at >= 0.6 of the ceiling; planning 100,000 ledgers in seconds.
"""

import asyncio
from collections.abc import Callable
from random import Random
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Final

from benchmarks.cluster import Running, running
from benchmarks.measures import MEGABYTE, interleaved
from benchmarks.runner import Bench, run
from ledger_client import Quorum
from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.chain import LinkedLedger
from metadata.ledgers.chain_store import ChainStore, Publication
from metadata.ledgers.ledger_metadata import DigestType, Fragment, LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.zookeeper.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARE_WANTED: Final = 0.6
PLANNING_S_WANTED: Final = 20.0
ENTRY_BYTES: Final = 1024
LEDGERS: Final = 4
CORES: Final = (1, 2, 4)
PLANNED_LEDGERS: Final = 100_000
LEDGERS_PER_LINK: Final = 1_000
CREATES_AT_ONCE: Final = 200


def _scan(frame: "DataFrame", rows: int) -> float:
    """Run one aggregation over all bytes; return its duration in seconds."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - part of an extra

    start = perf_counter()
    totals = frame.agg(F.count("*"), F.sum(F.length("data")), F.max("entry_id")).collect()[0]
    seconds = perf_counter() - start
    assert totals[0] == rows, totals
    assert totals[1] == rows * ENTRY_BYTES, totals
    return seconds


def _frames(
    spark: "SparkSession", metadata: str, ledger_ids: list[int], rows: int
) -> dict[str, Callable[[], "DataFrame"]]:
    def ledgers() -> "DataFrame":
        reader = spark.read.format("ledger").option("metadata", metadata)
        return reader.option("ledgers", ",".join(map(str, ledger_ids))).load()

    def memory() -> "DataFrame":
        reader = spark.read.format("memory-ceiling").option("rows", str(rows))
        return reader.option("parts", "16").option("entryBytes", str(ENTRY_BYTES)).load()

    return {"ledgers": ledgers, "memory": memory}


def make_session(cores: int) -> "SparkSession":
    """Start a session with both sources."""
    from benchmarks.spark.spark_memory import MemoryDataSource  # noqa: PLC0415
    from spark_io.launching import session  # noqa: PLC0415

    conf = {"spark.ui.enabled": "false"}
    spark = session("benchmark", master=f"local[{cores}]", conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MemoryDataSource)
    return spark


async def _write(cluster: Running, rows: int) -> list[int]:
    payload = Random(1).randbytes(ENTRY_BYTES)
    ids: list[int] = []
    for _ in range(LEDGERS):
        async with cluster.client.create_ledger(Quorum.majority(3)) as ledger:
            await ledger.append_many(payload for _ in range(rows // LEDGERS))
        ids.append(int(ledger.id))
    return ids


async def _measure(bench: Bench) -> None:
    rows = bench.size(2_000_000, 4_000)
    with bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            metadata = cluster.cluster.metadata_uri
            bench.report.note(f"writing {rows:,} entries of {ENTRY_BYTES} bytes")
            ids = await _write(cluster, rows)
            for cores in CORES:
                await asyncio.to_thread(_measure_scans, bench, metadata, ids, rows, cores)
            await _measure_planning(bench, metadata)


def _measure_scans(bench: Bench, metadata: str, ids: list[int], rows: int, cores: int) -> None:
    spark = make_session(cores)
    try:
        frames = _frames(spark, metadata, ids, rows)
        for frame in frames.values():  # warms up Spark, its workers and the page cache
            _scan(frame(), rows)
        for _, name in interleaved(list(frames), bench.repetitions):
            case = f"scan {name}, local[{cores}]"
            bench.report.note(case)
            seconds = _scan(frames[name](), rows)
            bench.report.sample(case, {"MB_per_s": rows * ENTRY_BYTES / MEGABYTE / seconds})
    finally:
        spark.stop()
    for name in frames:
        bench.report.figure(f"scan {name}, local[{cores}]", "MB_per_s", "MB_per_s")
    of_ledgers = bench.report.values(f"scan ledgers, local[{cores}]", "MB_per_s")
    of_memory = bench.report.values(f"scan memory, local[{cores}]", "MB_per_s")
    shares = [ours / most for ours, most in zip(of_ledgers, of_memory, strict=True)]
    bench.report.figure(
        f"scan, local[{cores}], share of the ceiling",
        "ratio",
        "ratio",
        at_least=SHARE_WANTED if cores == CORES[1] else None,
        values=shares,
    )


async def _measure_planning(bench: Bench, metadata: str) -> None:
    """Create many closed ledgers, only in the metadata, and plan queries over all of them."""
    count = bench.size(PLANNED_LEDGERS, 200)
    await _make_ledgers(metadata, count)
    for selection in ("chain", "match"):
        value = "planned" if selection == "chain" else "kind=planned"
        case = f"planning {count:,} ledgers by {selection}"
        for _ in range(min(3, bench.repetitions)):
            bench.report.note(case)
            options = {"metadata": metadata, selection: value}
            start = perf_counter()
            parts = await asyncio.to_thread(_plan, options)
            bench.report.sample(case, {"s": perf_counter() - start, "parts": parts})
        bench.report.figure(case, "s", "s", at_most=PLANNING_S_WANTED)


def _plan(options: dict[str, str]) -> int:
    from spark_io.ledgers.options import ReadOptions  # noqa: PLC0415
    from spark_io.ledgers.readers import LedgerBatchReader  # noqa: PLC0415

    return len(LedgerBatchReader(ReadOptions.of(options)).partitions())


async def _make_ledgers(metadata: str, count: int) -> None:
    rng = Random(2)
    store = await open_store(metadata, rng=rng)
    ledgers = LedgerStore(store, rng, lambda: time_ns() // 1_000_000)
    chains = ChainStore(store, rng, lambda: time_ns() // 1_000_000)
    await chains.create("planned")
    first = 10_000_000
    try:
        for start in range(0, count, CREATES_AT_ONCE):
            numbers = range(first + start, first + min(count, start + CREATES_AT_ONCE))
            await asyncio.gather(*[ledgers.create(_closed(LedgerId(n))) for n in numbers])
        for start in range(0, count, LEDGERS_PER_LINK):
            numbers = range(first + start, first + min(count, start + LEDGERS_PER_LINK))
            linked = [LinkedLedger(LedgerId(n), 0, EntryId(999), 1_000_000) for n in numbers]
            await chains.publish("planned", Publication(tuple(linked)))
    finally:
        await store.aclose()


def _closed(ledger_id: LedgerId) -> LedgerMetadata:
    token = UpdateToken(b"benchmark-token!")
    members = tuple(BookieId(f"bookie-{n}-0123456789ab") for n in range(3))
    return LedgerMetadata(
        ledger_id=ledger_id,
        state=LedgerState.CLOSED,
        quorum=Quorum.majority(3).spec,
        fragments=(Fragment(EntryId(0), members),),
        digest=DigestType.CRC32C,
        created_ms=0,
        creation_token=token,
        update_token=token,
        writer=ClientId("benchmark"),
        last_entry_id=EntryId(999),
        length=1_000_000,
        custom={"kind": "planned"},
    )


if __name__ == "__main__":
    run("spark_scan", _measure)
