"""Benchmark of Spark over many small ledgers: planning and counting a chain of them.

Leaves large ledgers to `benchmarks.spark.spark_scan`. Target, with local[2] and three bookies on
two cores: 10,000 ledgers of 20 entries are planned within 2 s and counted within 8 s, and 1,000,000
are planned within 20 s. The same ledgers are linked again and again in the chain of 1,000,000:
planning reads only the links.
"""

import asyncio
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from random import Random
from time import perf_counter, process_time, time_ns
from typing import TYPE_CHECKING, Final

from benchmarks.cluster import Running, running
from benchmarks.measures import MEGABYTE
from benchmarks.runner import Bench, run
from ledger_client import Quorum
from metadata.ledgers.chain import HEAD_CODEC, LinkedLedger
from metadata.ledgers.chain_store import ChainStore, Publication
from metadata.paths import chain_link_path, chain_path
from metadata.store.zookeeper.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEDGERS: Final = 10_000
ENTRIES: Final = 20
ENTRY_BYTES: Final = 90
LINKS: Final = (10, 10_000)
"""Numbers of links in which the same ledgers are published, in one chain each."""
PLANNED: Final = 1_000_000
CREATED_AT_ONCE: Final = 100
LEDGERS_PER_LINK: Final = 1_000
PLAN_S_WANTED: Final = 2.0
PLAN_MILLION_S_WANTED: Final = 20.0
COUNT_S_WANTED: Final = 8.0


async def _write(cluster: Running, count: int) -> list[LinkedLedger]:
    payloads = [bytes(ENTRY_BYTES)] * ENTRIES

    async def one() -> LinkedLedger:
        async with cluster.client.create_ledger(Quorum.majority(3)) as ledger:
            await ledger.append_many(payloads)
        info = ledger.info
        return LinkedLedger(info.id, info.created_ms, info.last_entry_id, info.length)

    written: list[LinkedLedger] = []
    while len(written) < count:
        missing = min(CREATED_AT_ONCE, count - len(written))
        written += await asyncio.gather(*[one() for _ in range(missing)])
    return written


async def _publish(metadata: str, name: str, ledgers: Sequence[LinkedLedger], size: int) -> None:
    """Publish ledgers in links of `size` ledgers."""
    rng = Random(3)
    store = await open_store(metadata, rng=rng)
    chains = ChainStore(store, rng, lambda: time_ns() // 1_000_000)
    await chains.create(name)
    try:
        for start in range(0, len(ledgers), size):
            link = tuple(ledgers[start : start + size])
            await chains.publish(name, Publication(link))
    finally:
        await store.aclose()


async def _lengthen(metadata: str, name: str, links: int) -> None:
    """Store copies of a chain's first link until the chain has `links`: publishing checks each
    ledger, which takes minutes.
    """
    store = await open_store(metadata, rng=Random(4))
    try:
        head_path, first = chain_path(name), chain_link_path(name, 0)
        link = (await store.get(first)).value
        stored = await store.get(head_path)
        head = HEAD_CODEC.unpack(head_path, stored.value)
        for index in range(head.next_index, links):
            await store.create(chain_link_path(name, index), link)
        longer = HEAD_CODEC.pack(head_path, replace(head, next_index=links))
        await store.compare_and_set(head_path, longer, stored.version)
    finally:
        await store.aclose()


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    start = perf_counter()
    result = work()
    return perf_counter() - start, result


def _plan(options: dict[str, str]) -> dict[str, float]:
    """Plan a query as Spark's planner does; return the costs."""
    from spark_io.ledgers.options import ReadOptions  # noqa: PLC0415
    from spark_io.ledgers.readers import LedgerBatchReader  # noqa: PLC0415 - part of an extra

    start = perf_counter()
    parts = LedgerBatchReader(ReadOptions.of(options)).partitions()
    pickled = sum(len(pickle.dumps(part)) for part in parts)
    seconds = perf_counter() - start
    return {"s": seconds, "parts": len(parts), "pickled_MB": pickled / MEGABYTE}


def _plan_in_new_process(options: dict[str, str]) -> list[dict[str, float]]:
    """Plan twice; the first plan starts without what the second one knows."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return [pool.submit(_plan, options).result() for _ in range(2)]


async def _measure_plans(
    bench: Bench, case: str, options: dict[str, str], at_most: float | None
) -> None:
    names = [case, f"{case}, again"]
    for _ in range(bench.repetitions):
        bench.report.note(case)
        costs = await asyncio.to_thread(_plan_in_new_process, options)
        for name, cost in zip(names, costs, strict=True):
            bench.report.sample(name, cost)
    bench.report.figure(case, "s", "s", at_most=at_most)
    bench.report.figure(names[1], "s", "s")


def _read(options: dict[str, str]) -> dict[str, float]:
    """Read all parts of a query in this process, as tasks do one after the other; return the
    costs. Processor time depends less on what else the machine does.
    """
    from spark_io.ledgers.options import ReadOptions  # noqa: PLC0415
    from spark_io.ledgers.readers import LedgerBatchReader  # noqa: PLC0415

    reader = LedgerBatchReader(ReadOptions.of(options))
    parts = reader.partitions()
    start, cpu_start = perf_counter(), process_time()
    rows = sum(batch.num_rows for part in parts for batch in reader.read(part))
    return {"s": perf_counter() - start, "cpu_s": process_time() - cpu_start, "rows": rows}


async def _measure_reads(bench: Bench, case: str, options: dict[str, str], rows: int) -> None:
    for _ in range(bench.repetitions):
        bench.report.note(case)
        costs = await asyncio.to_thread(_read, options)
        assert costs["rows"] == rows, (costs, rows)
        bench.report.sample(case, costs)
    bench.report.figure(case, "s", "s")
    bench.report.figure(case, "cpu_s", "s")


def _frame(spark: "SparkSession", options: dict[str, str]) -> "DataFrame":
    return spark.read.format("ledger").options(**options).load()


def _measure_counts(
    bench: Bench, cases: dict[str, dict[str, str]], rows: int, at_most: float
) -> None:
    """Count the rows of a new DataFrame, then of the same one."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from benchmarks.spark.spark_scan import make_session  # noqa: PLC0415

    spark = make_session(2)
    try:
        for case, options in cases.items():
            for _ in range(bench.repetitions):
                bench.report.note(case)
                frame = _frame(spark, options)
                planned_s, _ = _timed(lambda frame=frame: frame.rdd.getNumPartitions())  # type: ignore[misc]
                first_s, result = _timed(frame.count)
                assert result == rows, (result, rows)
                total = frame.agg(F.sum(F.length("data")))
                scan_s, result = _timed(lambda total=total: total.collect()[0][0])  # type: ignore[misc]
                assert result == rows * ENTRY_BYTES, result
                sample = {"plan_s": planned_s, "count_s": first_s, "scan_s": scan_s}
                bench.report.sample(case, sample)
    finally:
        spark.stop()
    for case in cases:
        bench.report.figure(case, "plan_s", "s")
        bench.report.figure(case, "count_s", "s", at_most=at_most)
        bench.report.figure(case, "scan_s", "s", at_most=at_most)


async def _measure(bench: Bench) -> None:
    count, many = bench.size(LEDGERS, 100), bench.size(PLANNED, 1_000)
    with bench.subdirectory() as directory:
        async with running(directory, 3) as cluster:
            metadata = cluster.cluster.metadata_uri
            bench.report.note(f"writing {count:,} ledgers of {ENTRIES} entries")
            ledgers = await _write(cluster, count)
            named = ",".join(str(ledger.ledger_id) for ledger in ledgers)
            cases = {f"{count:,} named ledgers": {"metadata": metadata, "ledgers": named}}
            for links in LINKS:
                size = max(1, count // links)
                name = f"links-of-{size}"
                await _publish(metadata, name, ledgers, size)
                case = f"{count:,} ledgers in links of {size:,}"
                cases[case] = {"metadata": metadata, "chain": name}
            for case, options in cases.items():
                await _measure_plans(bench, f"plan {case}", options, PLAN_S_WANTED)
                await _measure_reads(bench, f"read {case}", options, count * ENTRIES)
            bench.report.note(f"publishing {many:,} ledgers")
            size = min(LEDGERS_PER_LINK, count)
            await _publish(metadata, "million", ledgers[:size], size)
            await _lengthen(metadata, "million", many // size)
            options = {"metadata": metadata, "chain": "million"}
            case = f"plan {many:,} ledgers of a chain"
            await _measure_plans(bench, case, options, PLAN_MILLION_S_WANTED)
            await asyncio.to_thread(_measure_counts, bench, cases, count * ENTRIES, COUNT_S_WANTED)


if __name__ == "__main__":
    run("spark_small", _measure)
