"""Workloads of every system: their sizes and their names in reports.

Leaves running them to `quire_side`, `bookkeeper` and `kafka`.

Invariant: a workload has the same entries, sizes, windows and rates for every system; only the
number of entries depends on a system's speed, so that each works for seconds.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from benchmarks.peers.interleaving import rotated
from benchmarks.runner import Bench


class Workload(StrEnum):
    """A workload to measure."""

    KIB = "append 1 KiB"
    SMALL = "append 100 B"
    SINGLE = "one outstanding, 1 KiB"
    OPEN = "open loop 5,000/s, 1 KiB"
    READ = "catch-up read, 1 KiB"
    PAUSE = "SIGSTOP of a member, E=WQ=AQ=3, five bookies"
    MEMORY = "memory of the largest server"


class Subject(StrEnum):
    """A system, or a way to use it."""

    QUIRE = "Quire"
    QUIRE_MANY = "Quire append_many"
    QUIRE_ENTRIES = "Quire read by entry"
    BOOKKEEPER = "BookKeeper"
    BOOKKEEPER_BATCH = "BookKeeper batch read"
    KAFKA = "Kafka default flush"
    KAFKA_SYNCED = "Kafka flush.messages=1"


KIB_BYTES: Final = 1024
SMALL_BYTES: Final = 100
KIB_OUTSTANDING: Final = 2_000
SMALL_OUTSTANDING: Final = 8_000
SMALL_OUTSTANDING_KAFKA: Final = 20_000
"""Larger window than that of the others: its client makes larger batches of it."""
OPEN_PER_S: Final = 5_000
PAUSE_PER_S: Final = 2_000
PAUSE_MARGIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of entries for one system."""

    warm_up: int
    kib: int
    small: int
    single: int
    read: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of one run."""

    quire: Counts
    bookkeeper: Counts
    kafka: Counts
    open_s: float
    open_warm_up_s: float
    pause_s: float
    pause_from_s: float
    pause_warm_up_s: float

    @property
    def pause_judged_from_s(self) -> float:
        """Time from which on appends count as affected by the pause; those under way when it begins
        are affected.
        """
        return self.pause_from_s - PAUSE_MARGIN_S


_TINY: Final = Counts(warm_up=1_000, kib=2_000, small=2_000, single=50, read=2_000)
FULL: Final = Sizes(
    quire=Counts(warm_up=100_000, kib=600_000, small=2_000_000, single=2_000, read=300_000),
    bookkeeper=Counts(warm_up=100_000, kib=200_000, small=400_000, single=2_000, read=300_000),
    kafka=Counts(warm_up=200_000, kib=400_000, small=2_000_000, single=2_000, read=300_000),
    open_s=8.0,
    open_warm_up_s=1.0,
    pause_s=12.0,
    pause_from_s=3.0,
    pause_warm_up_s=2.0,
)
SMOKE: Final = Sizes(
    quire=_TINY,
    bookkeeper=_TINY,
    kafka=_TINY,
    open_s=1.0,
    open_warm_up_s=0.2,
    pause_s=8.0,
    pause_from_s=1.0,
    pause_warm_up_s=0.5,
)

APPENDS: Final = (Workload.KIB, Workload.SMALL, Workload.SINGLE, Workload.OPEN)


@dataclass(frozen=True, slots=True)
class Case:
    """One workload of one subject, by the names of a `table.Table`."""

    workload: str
    subject: str

    @property
    def name(self) -> str:
        """Name of the case in reports."""
        return f"{self.subject}: {self.workload}"


class Samples:
    """Values of every run of every case, by repetition."""

    def __init__(self) -> None:
        self._values: dict[tuple[Case, int], dict[str, float]] = {}

    def add(self, case: Case, repetition: int, values: dict[str, object]) -> None:
        """Add the numbers of one run."""
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        self._values.setdefault((case, repetition), {}).update(numbers)

    def of(self, case: Case, figure: str) -> dict[int, float]:
        """Return one figure of a case by repetition, without runs that lack it."""
        return {
            repetition: numbers[figure]
            for (known, repetition), numbers in self._values.items()
            if known == case and figure in numbers
        }


@dataclass(frozen=True, slots=True)
class Trial:
    """One system's turn: its directory, its repetition, and the destination of its results."""

    bench: Bench
    repetition: int
    sizes: Sizes
    samples: Samples = field(default_factory=Samples)

    def appends(self) -> list[Workload]:
        """Return the appending workloads, each first in its turn."""
        return rotated(APPENDS, self.repetition)

    def note(self, workload: Workload, subject: Subject, values: dict[str, object]) -> None:
        """Report one run of one case."""
        case = Case(workload, subject)
        self.samples.add(case, self.repetition, values)
        labels = {"repetition": self.repetition, "subject": subject, "workload": workload}
        self.bench.report.sample(case.name, {**labels, **values})
