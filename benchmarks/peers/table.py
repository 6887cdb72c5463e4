"""Figures and ratios of the runs, with their targets and whether they are met.

Leaves printing records to `benchmarks.report`. A ratio is Quire's figure divided by the peer's, run
by run: a slow phase of the machine during one repetition affects both.

Invariants: pure; a ratio is of runs of the same repetition only; figures that were not measured
have no row; failed appends are not in a rate, and are shown next to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.measures import is_met
from benchmarks.peers.workloads import Case, Samples, Subject, Workload
from quire.bench.figures import spread

DIGITS: Final = {"entries_per_s": 0, "MB_per_s": 1, "ms": 2, "MB": 0}


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure of a workload in the table."""

    name: str
    unit: str


FIGURES: Final[Mapping[str, Sequence[Shown]]] = {
    Workload.KIB: (Shown("entries_per_s", "entries_per_s"),),
    Workload.SMALL: (Shown("entries_per_s", "entries_per_s"),),
    Workload.SINGLE: (Shown("p50_ms", "ms"), Shown("p99_ms", "ms")),
    Workload.OPEN: tuple(Shown(f"{name}_ms", "ms") for name in ("p50", "p99", "p999", "max")),
    Workload.READ: (Shown("entries_per_s", "entries_per_s"),),
    Workload.PAUSE: (Shown("max_ms", "ms"), Shown("before_max_ms", "ms")),
    Workload.MEMORY: (Shown("resident_MB", "MB"),),
}


@dataclass(frozen=True, slots=True)
class Ratio:
    """One comparison: Quire's figure divided by the peer's, and its targets (empty: only shown)."""

    workload: str
    figure: str
    ours: str
    theirs: str
    wanted: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the ratio in reports."""
        return f"{self.workload}, {self.figure}: {self.ours} / {self.theirs}"


@dataclass(frozen=True, slots=True)
class Table:
    """Content of one benchmark's table: columns, figures of each workload, and ratios."""

    subjects: Sequence[str]
    figures: Mapping[str, Sequence[Shown]]
    ratios: Sequence[Ratio]


def _appending(theirs: Subject, kib: float, small: float) -> Iterator[Ratio]:
    for workload, least in ((Workload.KIB, kib), (Workload.SMALL, small)):
        for ours in (Subject.QUIRE, Subject.QUIRE_MANY):
            yield Ratio(workload, "entries_per_s", ours, theirs, {"at_least": least})


def _latencies(theirs: Subject, wanted: Mapping[str, float]) -> Iterator[Ratio]:
    yield Ratio(Workload.SINGLE, "p50_ms", Subject.QUIRE, theirs, wanted)
    yield Ratio(Workload.OPEN, "p99_ms", Subject.QUIRE, theirs, wanted)


def _reading(theirs: Subject, wanted: Mapping[str, float]) -> Iterator[Ratio]:
    for ours in (Subject.QUIRE, Subject.QUIRE_ENTRIES):
        yield Ratio(Workload.READ, "entries_per_s", ours, theirs, wanted)


RATIOS: Final[Sequence[Ratio]] = (
    *_appending(Subject.BOOKKEEPER, 3.0, 5.0),
    *_latencies(Subject.BOOKKEEPER, {"at_most": 0.5}),
    *_reading(Subject.BOOKKEEPER_BATCH, {"at_least": 3.0}),
    *_reading(Subject.BOOKKEEPER, {}),
    Ratio(Workload.PAUSE, "max_ms", Subject.QUIRE, Subject.BOOKKEEPER, {"at_most": 0.1}),
    Ratio(Workload.MEMORY, "resident_MB", Subject.QUIRE, Subject.BOOKKEEPER, {"at_most": 1 / 3}),
    *_appending(Subject.KAFKA_SYNCED, 3.0, 2.0),
    *_latencies(Subject.KAFKA_SYNCED, {}),
    # The target is to be ahead of a Kafka that does not sync, although Quire does.
    *_appending(Subject.KAFKA, 1.0, 1.0),
    *_latencies(Subject.KAFKA, {"at_most": 1.0}),
    *_reading(Subject.KAFKA, {"at_least": 1.0}),
    Ratio(Workload.MEMORY, "resident_MB", Subject.QUIRE, Subject.KAFKA),
)

BESIDE_PEERS: Final = Table(tuple(Subject), FIGURES, RATIOS)


def ratios_by_run(ratio: Ratio, samples: Samples) -> list[float]:
    """Return the ratio for each repetition that has both figures, in order."""
    ours = samples.of(Case(ratio.workload, ratio.ours), ratio.figure)
    theirs = samples.of(Case(ratio.workload, ratio.theirs), ratio.figure)
    return [
        ours[repetition] / theirs[repetition]
        for repetition in sorted(ours)
        if theirs.get(repetition)
    ]


def markdown(samples: Samples, table: Table = BESIDE_PEERS) -> str:
    """Return two tables: medians with their ranges, and ratios with their targets."""
    subjects = table.subjects
    rows = [
        "| workload | figure | " + " | ".join(subjects) + " |",
        "|---" * (len(subjects) + 2) + "|",
    ]
    for workload, figures in table.figures.items():
        for shown in figures:
            cells = [_cell(samples, Case(workload, subject), shown) for subject in subjects]
            if any(cells):
                rows.append(f"| {workload} | {shown.name} | " + " | ".join(cells) + " |")
    rows += ["", "| Quire by a peer | ratio (range) | target | |", "|---|---|---|---|"]
    rows += [row for ratio in table.ratios if (row := _ratio_row(ratio, samples))]
    return "\n".join(rows)


def _cell(samples: Samples, case: Case, shown: Shown) -> str:
    values = list(samples.of(case, shown.name).values())
    if not values:
        return ""
    over, digits = spread(values), DIGITS[shown.unit]
    text = f"{over.median:,.{digits}f} ({over.low:,.{digits}f} to {over.high:,.{digits}f})"
    failed_count = sum(samples.of(case, "failed_count").values())
    return f"{text}; {failed_count:,.0f} failed" if failed_count else text


def _ratio_row(ratio: Ratio, samples: Samples) -> str | None:
    runs = ratios_by_run(ratio, samples)
    if not runs:
        return None
    over = spread(runs)
    bounds = [f"{key.replace('_', ' ')} {value:.3g}" for key, value in ratio.wanted.items()]
    verdict = ("met" if is_met(over.median, ratio.wanted) else "missed") if bounds else ""
    middle = f"{over.median:.3g} ({over.low:.3g} to {over.high:.3g})"
    return f"| {ratio.name} | {middle} | {', '.join(bounds)} | {verdict} |"
