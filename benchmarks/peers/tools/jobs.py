"""Jobs of the tools, with their figures and ratios.

Leaves the command lines to `programs`, and parsing the tools' output to `output`.

Invariants: a job is the same for every side, including its count; only jobs with a tool's default
settings have a target, which is at least to equal the peer; only latencies at a fixed pace are
compared, because the latency of a producer without a pace is the length of its queue.

Source: the defaults of Kafka 4.1.0's producer (batch.size 16384, linger.ms 5, acks=all,
idempotent), and librdkafka's tool (batch.size 1000000, linger.ms 1000, acks=all).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from benchmarks.peers.table import Ratio, Shown, Table


class Tool(StrEnum):
    """A program, and its use."""

    PRODUCER = "ProducerPerformance"
    CONSUMER = "ConsumerPerformance"
    END_TO_END = "EndToEndLatency"
    RDKAFKA_PRODUCER = "rdkafka_performance -P"
    RDKAFKA_CONSUMER = "rdkafka_performance -C"


class Side(StrEnum):
    """A serving system, by the name of its column."""

    QUIRE = "Quire"
    KAFKA = "Kafka default flush"
    KAFKA_SYNCED = "Kafka flush.messages=1"


CONSUMING: Final = (Tool.CONSUMER, Tool.RDKAFKA_CONSUMER)
RATES: Final = (Shown("records_per_s", "entries_per_s"), Shown("MB_per_s", "MB_per_s"))
LATENCIES: Final = tuple(Shown(f"{name}_ms", "ms") for name in ("mean", "p50", "p99", "p999"))
COMPARED: Final = {
    "records_per_s": {"at_least": 1.0},
    "mean_ms": {"at_most": 1.0},
    "p99_ms": {"at_most": 1.0},
}
"""Target for the ratio of Quire's figure to a peer's, with a tool's default settings."""

KIB_BYTES: Final = 1024
SMALL_BYTES: Final = 100
PACED_PER_S: Final = 1_000
RDKAFKA_PACED_PER_S: Final = 500
"""Pace of librdkafka's tool, below that of Kafka's: it spins between records that are due within a
millisecond."""
LARGE: Final = ("batch.size=1000000", "linger.ms=5")
SMOKE_SHARE: Final = 100
SMOKE_COUNT_MIN: Final = 300


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one tool."""

    tool: Tool
    topic: str
    """Topic of the side: a consumer reads the records of producers with the same topic."""
    count: int
    record_bytes: int = KIB_BYTES
    settings: Sequence[str] = ()
    """Settings that differ from the tool's defaults."""
    per_s: int | None = None
    """A producer's pace in records per second; None for as fast as possible."""
    note: str = ""

    @property
    def name(self) -> str:
        """Name of the job in reports."""
        size = "1 KiB" if self.record_bytes == KIB_BYTES else f"{self.record_bytes} B"
        pace = () if self.per_s is None else (f"{self.per_s:,}/s",)
        notes = (self.note,) if self.note else ()
        return ", ".join((self.tool, size, *pace, *self.settings, *notes))

    @property
    def is_consuming(self) -> bool:
        """Whether it reads the records of another job."""
        return self.tool in CONSUMING

    @property
    def figures(self) -> Sequence[Shown]:
        """Figures to show."""
        if self.tool is Tool.END_TO_END or self.per_s is not None:
            return LATENCIES
        return (*RATES, *LATENCIES) if self.tool is Tool.PRODUCER else RATES

    @property
    def compared(self) -> Sequence[str]:
        """Figures to compare: no latencies if there is a rate."""
        names = [shown.name for shown in self.figures if shown.name in COMPARED]
        return names[:1] if "records_per_s" in names else names

    def at_smoke(self) -> "Job":
        """Return the job at the smallest size that shows that it works."""
        return replace(self, count=max(SMOKE_COUNT_MIN, self.count // SMOKE_SHARE))


JOBS: Final[Sequence[Job]] = (
    Job(Tool.PRODUCER, "kib", 100_000),
    Job(Tool.PRODUCER, "small", 400_000, SMALL_BYTES),
    Job(Tool.PRODUCER, "paced", 3_000, per_s=PACED_PER_S),
    Job(Tool.END_TO_END, "end-to-end", 1_500),
    Job(Tool.PRODUCER, "large", 200_000, settings=LARGE),
    Job(Tool.PRODUCER, "small", 800_000, SMALL_BYTES, LARGE),
    Job(Tool.RDKAFKA_PRODUCER, "rdkafka", 200_000),
    Job(Tool.RDKAFKA_PRODUCER, "rdkafka-small", 800_000, SMALL_BYTES),
    Job(
        Tool.RDKAFKA_PRODUCER,
        "rdkafka",
        200_000,
        settings=("linger.ms=5", "enable.idempotence=true"),
    ),
    Job(
        Tool.RDKAFKA_PRODUCER,
        "rdkafka-paced",
        1_000,
        settings=("linger.ms=0",),
        per_s=RDKAFKA_PACED_PER_S,
    ),
    Job(Tool.CONSUMER, "kib", 100_000, note="in 16 KiB batches"),
    Job(Tool.CONSUMER, "large", 200_000, note="in 1 MB batches"),
    Job(Tool.RDKAFKA_CONSUMER, "rdkafka", 400_000),
)
WARM_UPS: Final[Sequence[Job]] = (
    Job(Tool.PRODUCER, "warm-up", 80_000),
    Job(Tool.RDKAFKA_PRODUCER, "warm-up", 200_000),
)
"""Warm-up jobs: the first one with an available tool runs once on each side, before any
measurement. With the small batches of Kafka's producer, Kafka's brokers are compiled after some
8,000 batches."""


def _ratios() -> Iterator[Ratio]:
    for theirs in (Side.KAFKA, Side.KAFKA_SYNCED):
        for job in JOBS:
            for figure in job.compared:
                wanted = {} if job.settings else COMPARED[figure]
                yield Ratio(job.name, figure, Side.QUIRE, theirs, wanted)


TABLE: Final = Table(tuple(Side), {job.name: job.figures for job in JOBS}, tuple(_ratios()))
