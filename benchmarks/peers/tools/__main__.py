"""Benchmark of Quire and Apache Kafka with the performance tools of stock clients.

Kafka's ProducerPerformance, ConsumerPerformance and EndToEndLatency, and librdkafka's
rdkafka_performance; against three bookies and a broker, and against three brokers of Kafka, whose
topics are flushed by Kafka's defaults or for each message. Leaves jobs and their targets to `jobs`;
the tools to `programs`.

Invariants: unavailable parts are reported and are not a failure; if a tool fails on one side, the
end of its log is reported, the others continue, and the exit status is 1.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.brokers import topic_load
from benchmarks.measures import interleaved
from benchmarks.peers.figures import report_figures
from benchmarks.peers.interleaving import System, rotated
from benchmarks.peers.java_process import PeerFailedError
from benchmarks.peers.kafka import running_brokers
from benchmarks.peers.maven import JavaPeer, PeerUnavailableError, default_cache
from benchmarks.peers.table import markdown
from benchmarks.peers.tools.jobs import JOBS, TABLE, WARM_UPS, Job, Side
from benchmarks.peers.tools.programs import Programs, Target, kafka_tools, rdkafka_tool
from benchmarks.peers.workloads import Case, Samples
from benchmarks.runner import Bench, run
from quire.local_cluster import LocalCluster

BOOKIES: Final = 3
REPETITIONS: Final = 3
SYNCED: Final = {"flush.messages": "1"}


@dataclass(frozen=True, slots=True)
class ServingSide:
    """A serving side: its addresses, and the settings of its topics."""

    side: Side
    addresses: str
    topic_settings: Mapping[str, str] = field(default_factory=dict)

    def target(self, topic: str) -> Target:
        """Return one of its topics; sides that share brokers have different topics."""
        return Target(self.addresses, f"{topic}-{self.side.name.lower()}")


class Comparison:
    """One run of every available tool, against each side."""

    def __init__(self, bench: Bench, programs: Programs) -> None:
        self.samples = Samples()
        self.failures: list[str] = []
        self._bench = bench
        self._programs = programs
        jobs = [job for job in JOBS if programs.has(job.tool)]
        self._jobs = [job.at_smoke() for job in jobs] if bench.is_smoke else jobs

    async def take_turn(self, repetition: int, sides: Sequence[ServingSide]) -> None:
        """Run every tool on each side of a system that was started for it."""
        await self._prepare(sides)
        producing = [job for job in self._jobs if not job.is_consuming]
        consuming = [job for job in self._jobs if job.is_consuming]
        for job in (*rotated(producing, repetition), *consuming):
            for serving in rotated(sides, repetition):
                # The flush interval of a log does not affect its readers.
                if not (job.is_consuming and serving.side is Side.KAFKA_SYNCED):
                    await self._measure(job, serving, repetition)

    async def _prepare(self, sides: Sequence[ServingSide]) -> None:
        """Create the topics, and warm up the servers, which compile code at run time."""
        job = next(job for job in WARM_UPS if self._programs.has(job.tool))
        warm_up = job.at_smoke() if self._bench.is_smoke else job
        topics = list(dict.fromkeys(job.topic for job in (warm_up, *self._jobs)))
        for serving in sides:
            for topic in topics:
                target, settings = serving.target(topic), dict(serving.topic_settings)
                client = {"bootstrap.servers": target.addresses}
                # librdkafka's calls block.
                await asyncio.to_thread(topic_load.create, client, target.topic, 1, settings)
        with self._bench.subdirectory() as logs:
            for serving in sides:
                target = serving.target(warm_up.topic)
                await self._programs.run(warm_up, target, logs / serving.side.name)

    async def _measure(self, job: Job, serving: ServingSide, repetition: int) -> None:
        case = Case(job.name, serving.side)
        labels = {"repetition": repetition, "subject": case.subject, "workload": case.workload}
        async with self._bench.measured(case.name):
            with self._bench.subdirectory() as logs:
                try:
                    figures = await self._programs.run(job, serving.target(job.topic), logs / "log")
                except PeerFailedError as error:
                    self.failures.append(f"{case.name}: {error}")
                    self._bench.report.sample(case.name, {**labels, "error": str(error)})
                    self._bench.report.note(f"failed: {case.name}: {error}")
                    return
        self.samples.add(case, repetition, figures)
        self._bench.report.sample(case.name, {**labels, **figures})
        if complaint := figures["first_complaint"]:
            self._bench.report.note(f"the tool complains: {complaint}")


@asynccontextmanager
async def _quire(bench: Bench) -> AsyncIterator[Sequence[ServingSide]]:
    with bench.subdirectory() as directory:
        async with LocalCluster(bookies=BOOKIES, broker=1, data_dir=directory) as cluster:
            yield [ServingSide(Side.QUIRE, cluster.brokers[0].address)]


@asynccontextmanager
async def _kafka(bench: Bench, java: JavaPeer) -> AsyncIterator[Sequence[ServingSide]]:
    with bench.subdirectory() as directory:
        async with running_brokers(directory, java, directory) as (_, addresses):
            yield [
                ServingSide(Side.KAFKA, addresses),
                ServingSide(Side.KAFKA_SYNCED, addresses, SYNCED),
            ]


async def _available(bench: Bench) -> Programs:
    options, note = bench.options, bench.report.note
    java: JavaPeer | None = None
    rdkafka: str | None = None
    try:
        java = await kafka_tools(options.cache)
    except PeerUnavailableError as error:
        note(f"peer not available: Apache Kafka and its tools: {error}")
    try:
        rdkafka = rdkafka_tool(options.rdkafka_performance)
    except PeerUnavailableError as error:
        note(f"peer not available: librdkafka's tool: {error}")
    return Programs(java, rdkafka)


async def measure(bench: Bench) -> None:
    """Measure both systems in turns, and report the results.

    Raises SystemExit if a tool failed.
    """
    programs = await _available(bench)
    if programs == Programs(None, None):
        return
    comparison = Comparison(bench, programs)
    java = None if bench.options.alone else programs.java
    systems = [System.QUIRE] if java is None else [System.QUIRE, System.KAFKA]
    for repetition, system in interleaved(systems, bench.repetitions):
        bench.report.note(f"repetition {repetition + 1}: {system}")
        try:
            async with AsyncExitStack() as running:
                if system is System.QUIRE:
                    sides = await running.enter_async_context(_quire(bench))
                else:
                    assert java is not None
                    sides = await running.enter_async_context(_kafka(bench, java))
                await comparison.take_turn(repetition, sides)
        except Exception as error:  # noqa: BLE001  # the other system still runs
            comparison.failures.append(f"{system}: {type(error).__name__}: {error}")
            bench.report.note(f"failed: {comparison.failures[-1]}")
    report_figures(bench.report, comparison.samples, TABLE)
    print(markdown(comparison.samples, TABLE), file=sys.stderr)
    for failure in comparison.failures:
        print(f"failed: {failure}", file=sys.stderr)
    if comparison.failures:
        raise SystemExit(1)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alone", action="store_true", help="measure only Quire")
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="directory that keeps jars"
    )
    parser.add_argument(
        "--rdkafka-performance",
        type=Path,
        metavar="PATH",
        help="librdkafka's tool (default: the one on the PATH, if any)",
    )


if __name__ == "__main__":
    run("peers.tools", measure, _add_options, repeat=REPETITIONS)
