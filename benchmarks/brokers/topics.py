"""Benchmark of topics with a stock client, next to Apache Kafka on the same machine and disk.

librdkafka, acks=all, replication 3: producing and consuming 1 KiB records of one partition; from a
record's due time until a consumer has it; small batches spread over a thousand partitions. For
comparison, appends of entries of the same size to a ledger. Leaves the load to
`benchmarks.brokers.topic_load`, and Kafka to `benchmarks.peers`; without Maven, only Quire is
measured.

Target: 100,000 records/s produced, and 0.6 of the ledger's MB/s; 300,000 records/s consumed; p99
from end to end below Kafka's; 10,000 small batches/s with a p99 below 100 ms.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from benchmarks.measures import MEGABYTE, interleaved
from benchmarks.peers.kafka import running_brokers
from benchmarks.peers.maven import JavaPeer, PeerUnavailableError, default_cache, prepare
from benchmarks.runner import Bench, run
from ledger_client import LedgerClient, Quorum
from quire.local_cluster import LocalCluster

BOOKIES: Final = 3
RECORDS: Final = 1_000_000
BATCH_BYTES: Final = 1_000_000
LEDGER_BYTES: Final = 1_500_000_000
PARTITIONS: Final = 1_000
BATCHES_PER_S: Final = 10_000
END_TO_END_PER_S: Final = 1_000
SECONDS: Final = 15.0
SYNCED: Final = "flush.messages=1"
LOAD_TIMEOUT_S: Final = 600.0

PRODUCED_WANTED: Final = 100_000
LEDGER_SHARE_WANTED: Final = 0.6
CONSUMED_WANTED: Final = 300_000
SPREAD_P99_MS_WANTED: Final = 100


@dataclass(frozen=True, slots=True)
class Side:
    """Brokers to measure: their addresses, and the settings of their topics."""

    name: str
    address: str
    settings: tuple[str, ...] = ()
    metadata: str = ""
    """Metadata address of Quire's ledgers; empty for Kafka."""
    client: tuple[str, ...] = ()
    """Further settings of librdkafka, as NAME=VALUE."""


@asynccontextmanager
async def quire_side(bench: Bench) -> AsyncIterator[list[Side]]:
    """Start bookies and a broker."""
    with bench.subdirectory() as directory:
        async with LocalCluster(bookies=BOOKIES, broker=1, data_dir=directory) as cluster:
            yield [Side("quire", cluster.brokers[0].address, (), cluster.metadata_uri)]


@asynccontextmanager
async def kafka_side(bench: Bench, java: JavaPeer) -> AsyncIterator[list[Side]]:
    """Start three brokers; the second side's topics are flushed for each message."""
    with bench.subdirectory() as directory:
        async with running_brokers(directory, java, directory) as (_, addresses):
            yield [
                Side("kafka, no fsync", addresses),
                Side("kafka, flush.messages=1", addresses, (SYNCED,)),
            ]


async def put(side: Side, load: str, topic: str, **options: float) -> dict[str, Any]:
    """Run a load in a separate process; return its figures."""
    words = ["-m", "benchmarks.brokers.topic_load", load]
    words += ["--address", side.address, "--topic", topic]
    words += [word for given in side.client for word in ("--client", given)]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    if load == "create":
        words += [word for setting in side.settings for word in ("--setting", setting)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), LOAD_TIMEOUT_S)
    if process.returncode != 0:
        raise RuntimeError(f"{load} on {side.name} ended with {process.returncode}")
    figures: dict[str, Any] = json.loads(output)
    return figures


async def measure_side(bench: Bench, side: Side, number: int) -> None:
    """Run each load once on one side."""
    report, records = bench.report, bench.size(RECORDS, 5_000)
    seconds = float(bench.size(int(SECONDS), 1))
    suffix = f"{number}-{len(side.settings)}"
    throughput, latency, many = f"throughput-{suffix}", f"latency-{suffix}", f"many-{suffix}"
    await put(side, "create", throughput)
    await put(side, "produce", throughput, count=records // 10)  # warms up
    async with bench.measured(f"{side.name}: produce"):
        report.sample(f"{side.name} produce", await put(side, "produce", throughput, count=records))
    async with bench.measured(f"{side.name}: consume"):
        report.sample(f"{side.name} consume", await put(side, "consume", throughput, count=records))
    await put(side, "create", latency)
    async with bench.measured(f"{side.name}: end to end"):
        figures = await put(side, "end-to-end", latency, rate=END_TO_END_PER_S, seconds=seconds)
        report.sample(f"{side.name} end to end", figures)
    if side.settings:
        return  # a sync for each of the small batches gives no new result
    partitions = bench.size(PARTITIONS, 10)
    await put(side, "create", many, partitions=partitions)
    async with bench.measured(f"{side.name}: spread"):
        rate = bench.size(BATCHES_PER_S, 500)
        figures = await put(side, "spread", many, partitions=partitions, rate=rate, seconds=seconds)
        report.sample(f"{side.name} spread", figures)


async def measure_ledger(bench: Bench, side: Side) -> None:
    """Append entries of the size of batches to a ledger with the same replication."""
    payload = Random(1).randbytes(BATCH_BYTES)
    count = bench.size(LEDGER_BYTES, 20_000_000) // BATCH_BYTES
    async with bench.measured("ledger"), LedgerClient(side.metadata) as client:
        loop = asyncio.get_running_loop()
        async with client.create_ledger(Quorum.in_sync(3, 2)) as ledger:
            began = loop.time()
            await ledger.append_many(payload for _ in range(count))
            seconds = loop.time() - began
        mb_per_s = count * BATCH_BYTES / MEGABYTE / seconds
        bench.report.sample("ledger", {"mb_per_s": mb_per_s})


async def measure(bench: Bench) -> None:
    """Measure both sides in turns."""
    java: JavaPeer | None = None
    if not bench.options.alone:
        try:
            java = await prepare("kafka", default_cache())
        except PeerUnavailableError as error:
            bench.report.note(f"peer not available: {error}")
    sides = ["quire"] if java is None else ["quire", "kafka"]
    for number, name in interleaved(sides, bench.repetitions):
        async with AsyncExitStack() as running:
            if name == "quire":
                started = await running.enter_async_context(quire_side(bench))
            else:
                assert java is not None
                started = await running.enter_async_context(kafka_side(bench, java))
            for side in started:
                await measure_side(bench, side, number)
                if side.metadata:
                    await measure_ledger(bench, side)
    report_results(bench, ["quire", "kafka, no fsync", "kafka, flush.messages=1"])


def report_results(bench: Bench, names: Sequence[str]) -> None:
    """Print the results, with Quire's targets."""
    report = bench.report
    for name in names:
        is_ours = name == "quire"
        if not report.values(f"{name} produce", "records_per_s"):
            continue
        wanted = PRODUCED_WANTED if is_ours else None
        report.figure(f"{name} produce", "records_per_s", "entries_per_s", at_least=wanted)
        wanted = CONSUMED_WANTED if is_ours else None
        report.figure(f"{name} consume", "records_per_s", "entries_per_s", at_least=wanted)
        other = report.median("kafka, no fsync end to end", "p99_ms") if is_ours else None
        report.figure(f"{name} end to end", "p50_ms", "ms")
        report.figure(f"{name} end to end", "p99_ms", "ms", at_most=other)
        if report.values(f"{name} spread", "p99_ms"):
            wanted = SPREAD_P99_MS_WANTED if is_ours else None
            report.figure(f"{name} spread", "p99_ms", "ms", at_most=wanted)
            report.figure(f"{name} spread", "batches_per_s", "entries_per_s")
    shares = [
        ours / ledger
        for ours, ledger in zip(
            report.values("quire produce", "mb_per_s"),
            report.values("ledger", "mb_per_s"),
            strict=True,
        )
    ]
    report.figure(
        "quire produce", "share of a ledger", "ratio", at_least=LEDGER_SHARE_WANTED, values=shares
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alone", action="store_true", help="measure only Quire")


if __name__ == "__main__":
    run("topics", measure, _add_options, repeat=3)
