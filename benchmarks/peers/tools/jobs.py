"""Says what each tool is made to do, and which figures and ratios come of it.

Leaves the command lines to `programs`, reading what tools print to `output`.

Invariants: a job is the same for every side, its count included; something is wanted of jobs with a
tool's own settings alone: that Quire at least matches; only latencies at a fixed pace are compared,
because those of a producer without one are the length of its own queue.

Source: what Kafka 4.1.0's producer does unless it is told otherwise (batch.size 16384, linger.ms 5,
acks=all, idempotent), and librdkafka's tool (batch.size 1000000, linger.ms 1000, acks=all).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from benchmarks.peers.table import Ratio, Shown, Table


class Tool(StrEnum):
    """A program, and what it is used for."""

    PRODUCER = "ProducerPerformance"
    CONSUMER = "ConsumerPerformance"
    END_TO_END = "EndToEndLatency"
    RDKAFKA_PRODUCER = "rdkafka_performance -P"
    RDKAFKA_CONSUMER = "rdkafka_performance -C"


class Side(StrEnum):
    """Who serves, as columns are called."""

    QUIRE = "Quire"
    KAFKA = "Kafka default flush"
    KAFKA_SYNCED = "Kafka flush.messages=1"


RDKAFKA: Final = (Tool.RDKAFKA_PRODUCER, Tool.RDKAFKA_CONSUMER)
CONSUMING: Final = (Tool.CONSUMER, Tool.RDKAFKA_CONSUMER)
RATES: Final = (Shown("records_per_s", "entries_per_s"), Shown("MB_per_s", "MB_per_s"))
LATENCIES: Final = tuple(Shown(f"{name}_ms", "ms") for name in ("mean", "p50", "p99", "p999"))
COMPARED: Final = {
    "records_per_s": {"at_least": 1.0},
    "mean_ms": {"at_most": 1.0},
    "p99_ms": {"at_most": 1.0},
}
"""What is wanted of Quire's figure by a peer's, with a tool's own settings."""

KIB_BYTES: Final = 1024
SMALL_BYTES: Final = 100
PACED_PER_S: Final = 1_000
RDKAFKA_PACED_PER_S: Final = 500
"""Less than Kafka's tool: librdkafka's spins between records that are due within a millisecond."""
LARGE: Final = ("batch.size=1000000", "linger.ms=5")
SMOKE_SHARE: Final = 100
SMOKE_COUNT_MIN: Final = 300


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one tool."""

    tool: Tool
    topic: str
    """Which of a side's topics: a consumer reads what producers of the same one left."""
    count: int
    record_bytes: int = KIB_BYTES
    settings: Sequence[str] = ()
    """What differs from the tool's own."""
    per_s: int | None = None
    """A producer's pace; without one it goes as fast as it can."""
    note: str = ""

    @property
    def name(self) -> str:
        """How reports call it."""
        size = "1 KiB" if self.record_bytes == KIB_BYTES else f"{self.record_bytes} B"
        pace = () if self.per_s is None else (f"{self.per_s:,}/s",)
        notes = (self.note,) if self.note else ()
        return ", ".join((self.tool, size, *pace, *self.settings, *notes))

    @property
    def is_consuming(self) -> bool:
        """Whether it needs what another job leaves."""
        return self.tool in CONSUMING

    @property
    def figures(self) -> Sequence[Shown]:
        """What is shown of it."""
        if self.tool is Tool.END_TO_END or self.per_s is not None:
            return LATENCIES
        return (*RATES, *LATENCIES) if self.tool is Tool.PRODUCER else RATES

    @property
    def compared(self) -> Sequence[str]:
        """The figures that ratios are made of: no latencies where there is a rate."""
        names = [shown.name for shown in self.figures if shown.name in COMPARED]
        return names[:1] if "records_per_s" in names else names

    def at_smoke(self) -> "Job":
        """Return as little of it as shows that it works."""
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
"""The first that there is a tool for is done once on each side, before anything is measured: with
the small batches of Kafka's own producer its brokers are compiled after some 8,000 of them."""


def _ratios() -> Iterator[Ratio]:
    for theirs in (Side.KAFKA, Side.KAFKA_SYNCED):
        for job in JOBS:
            for figure in job.compared:
                wanted = {} if job.settings else COMPARED[figure]
                yield Ratio(job.name, figure, Side.QUIRE, theirs, wanted)


TABLE: Final = Table(tuple(Side), {job.name: job.figures for job in JOBS}, tuple(_ratios()))
