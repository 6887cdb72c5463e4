"""Search for the tools, and runs of one to its end.

Leaves their work to `jobs`, their output to `output`, and fetching Kafka's to
`benchmarks.peers.maven`.

Invariants: nothing is built here: librdkafka's tool is on the PATH or named by an option; an
unavailable tool is reported with the reason; a tool that fails is PeerFailedError with the end of
its log.

Source: bin/kafka-run-class.sh, kafka-producer-perf-test.sh of Kafka 4.1.0 for heap and collector.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.java_process import PeerFailedError, run_tool
from benchmarks.peers.maven import JavaPeer, PeerUnavailableError, prepare
from benchmarks.peers.tools.jobs import Job, Tool
from benchmarks.peers.tools.output import Figures, OutputError, figures_of

POMS: Final = Path(__file__).parent
RDKAFKA_PROGRAM: Final = "rdkafka_performance"
PACKAGE: Final = "org.apache.kafka.tools"
FLAGS: Final = (
    "-Xmx512m",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Duser.language=en",  # the language decides how decimals are printed
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
LOG_TAIL_CHARACTERS: Final = 1000
RUN_TIMEOUT_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a tool: brokers, and one of their topics with one partition."""

    addresses: str
    topic: str


@dataclass(frozen=True, slots=True)
class Programs:
    """Available tools."""

    java: JavaPeer | None
    rdkafka: str | None

    def has(self, tool: Tool) -> bool:
        """Whether a tool can be run."""
        if tool in {Tool.RDKAFKA_PRODUCER, Tool.RDKAFKA_CONSUMER}:
            return self.rdkafka is not None
        return self.java is not None

    def command(self, job: Job, target: Target, latencies: Path) -> Sequence[str]:
        """Return the command line of a job; librdkafka's tool may write to `latencies`."""
        if job.tool in {Tool.RDKAFKA_PRODUCER, Tool.RDKAFKA_CONSUMER}:
            assert self.rdkafka is not None
            return [self.rdkafka, *rdkafka_arguments(job, target, latencies)]
        assert self.java is not None
        main = f"{PACKAGE}.{job.tool}"
        java = [self.java.java, *FLAGS, "-cp", self.java.classpath, main]
        return [*java, *kafka_arguments(job, target)]

    async def run(self, job: Job, target: Target, log: Path) -> Figures:
        """Run a job and return its figures. Raises PeerFailedError."""
        latencies = log.with_suffix(".latencies")
        try:
            await run_tool(self.command(job, target, latencies), log, RUN_TIMEOUT_S)
            lines = latencies.read_text().split() if latencies.exists() else []
            return figures_of(job, log.read_text(errors="replace"), lines)
        except (PeerFailedError, OutputError) as error:
            tail = log.read_text(errors="replace").strip()[-LOG_TAIL_CHARACTERS:]
            raise PeerFailedError(f"{job.name}: {error}: {tail}") from error


async def kafka_tools(cache: Path) -> JavaPeer:
    """Fetch Kafka's brokers and tools unless the cache has them. Raises PeerUnavailableError."""
    return await prepare("kafka", cache, POMS)


def rdkafka_tool(wanted: Path | None) -> str:
    """Return librdkafka's tool: the given one, or that on the PATH. Raises PeerUnavailableError."""
    path = shutil.which(str(wanted or RDKAFKA_PROGRAM))
    if path is None:
        where = f"{wanted} is not a program" if wanted else f"{RDKAFKA_PROGRAM} is not on the PATH"
        raise PeerUnavailableError(f"{where}; name it by --rdkafka-performance")
    return path


def kafka_arguments(job: Job, target: Target) -> Sequence[str]:
    """Return the arguments of one of Kafka's tools."""
    assert job.tool not in {Tool.RDKAFKA_PRODUCER, Tool.RDKAFKA_CONSUMER}
    count = str(job.count)
    if job.tool is Tool.END_TO_END:
        return [target.addresses, target.topic, count, "all", str(job.record_bytes)]
    words = ["--topic", target.topic]
    if job.tool is Tool.CONSUMER:
        return [*words, "--bootstrap-server", target.addresses, "--messages", count]
    words += ["--num-records", count, "--record-size", str(job.record_bytes)]
    words += ["--throughput", str(job.per_s or -1)]
    return [*words, "--producer-props", f"bootstrap.servers={target.addresses}", *job.settings]


def rdkafka_arguments(job: Job, target: Target, latencies: Path) -> Sequence[str]:
    """Return the arguments of librdkafka's tool; only jobs with a pace measure each record's
    latency.
    """
    words = ["-t", target.topic, "-p", "0", "-b", target.addresses, "-c", str(job.count)]
    words += [word for setting in job.settings for word in ("-X", setting)]
    if job.tool is Tool.RDKAFKA_CONSUMER:
        return ["-C", "-o", "beginning", *words]
    words = ["-P", "-s", str(job.record_bytes), *words]
    if job.per_s is None:
        return words
    return [*words, "-r", str(job.per_s), "-l", "-A", str(latencies)]
