"""Content of the page of a comparison: one section per scenario, and the sections around them.

Leaves drawing to `quire.bench.compare.report.charts` and HTML to `quire.bench.compare.report.page`.

Invariants: pure; curves join all repetitions; pictures over time and of zones show the first
repetition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from quire.bench.compare import configurations, figures, scenarios
from quire.bench.compare.comparison import Comparison
from quire.bench.compare.figures import Figure
from quire.bench.compare.histogram import Histogram
from quire.bench.compare.report import charts
from quire.bench.compare.report.charts import Chart, Table, letter
from quire.bench.compare.results import CURVE, RunResult
from quire.bench.compare.spreads import Spread, verdicts

OVERVIEW_FIGURES: Final = ("p99_ms", "max_ms", "silence_s", "losable", "recoverable")
JUDGED: Final = ("p50_ms", "p99_ms", "p999_ms", "max_ms", "silence_longest_s")
METHOD: Final = (
    "Each run is an open loop of appends on a fixed schedule against real bookie processes and a "
    "real ZooKeeper on one machine. The latency of an append counts from the moment at which it "
    "was due, so a stall counts for every append that it held up. An append that was never "
    "acknowledged counts with the time until the run stopped waiting.",
    "For several runs of a cell the page shows the median and the range. Two ranges that overlap "
    "show no difference beyond noise. One run has no spread, and none is shown.",
    "The number of bookies that may be lost comes from reading every replica of every "
    "acknowledged entry after the run: it is the least number of sound copies of any entry, less "
    "one. A bookie that was killed and stayed away counts as empty; nothing was repaired.",
)


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page."""

    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[tuple[str, Chart], ...] = ()


Runs = Mapping[str, Sequence[RunResult]]
"""The repetitions of one scenario and rate, by configuration."""


def sections_of(comparison: Comparison) -> list[Section]:
    """Return every section, in order."""
    letters = {name: number for number, name in enumerate(configurations.BY_NAME)}
    made = [_opening(comparison, letters), _overview(comparison, letters)]
    for scenario in comparison.scenarios:
        for rate in comparison.rates:
            runs = {
                name: found
                for name in comparison.configurations
                if (found := comparison.of(scenario, name, rate))
            }
            if runs:
                made.append(_of_scenario(scenario, rate, runs, letters))
    if len(comparison.rates) > 1:
        made.append(_sweep(comparison, letters))
    if comparison.failures():
        made.append(_failures(comparison))
    return made


def _opening(comparison: Comparison, letters: Mapping[str, int]) -> Section:
    rows = tuple(
        (f"{letter(letters[name])} {name}", configurations.BY_NAME[name].says)
        for name in comparison.configurations
    )
    table = Table(("configuration", "what it is"), rows)
    tables = (table, Table(("machine", ""), tuple(comparison.machine.items())))
    return Section("method", "What was compared, and how", METHOD, tables)


def _overview(comparison: Comparison, letters: Mapping[str, int]) -> Section:
    """Return one table per figure, with a row for each scenario at its lowest rate."""
    names = comparison.configurations
    headings = tuple(f"{letter(letters[name])} {name}" for name in names)
    tables = []
    for figure in (figures.BY_NAME[each] for each in OVERVIEW_FIGURES):
        rows = []
        for scenario in comparison.scenarios:
            runs = (comparison.at_lowest_rate(scenario, name) for name in names)
            cells = (figures.show(figures.summarise(each, figure), figure.digits) for each in runs)
            rows.append((scenario, *cells))
        unit = f", {figure.unit}" if figure.unit else ""
        tables.append(Table((f"{figure.title}{unit}", *headings), tuple(rows)))
    return Section("glance", "At a glance", tables=tuple(tables))


def _of_scenario(scenario: str, rate: float, runs: Runs, letters: Mapping[str, int]) -> Section:
    name = f"{scenario}-{rate:g}"
    seconds = next(iter(runs.values()))[0].seconds
    first = {label: found[0] for label, found in runs.items()}
    curves = {label: _curve(found) for label, found in runs.items()}
    over_time = charts.latency_over_time(
        f"{name}-time",
        {label: run.slices for label, run in first.items()},
        {label: run.marks for label, run in first.items()},
        seconds,
        letters,
    )
    at_quorum = {label: run.at_ack_quorum for label, run in first.items()}
    zones = {label: run.zones for label, run in first.items() if run.zones}
    says = scenarios.BY_NAME[scenario].says
    return Section(
        name,
        f"{scenario}: {says}",
        (f"{rate:,.0f} appends per second for {seconds:g} s.", *_faults(first)),
        (_figures_table(runs, letters), _verdict_table(runs, letters)),
        (
            ("Latency quantiles", charts.quantile_curves(f"{name}-curve", curves, letters)),
            ("Latency over time", over_time),
            (
                "From the acknowledgement to the complete write quorum",
                charts.time_at_ack_quorum(f"{name}-at-aq", at_quorum, letters),
            ),
            ("Safety zones", charts.safety_zones(f"{name}-zones", zones, letters)),
        ),
    )


def _faults(first: Mapping[str, RunResult]) -> list[str]:
    """Describe the faults and their times in the first configuration's run."""
    marks = next(iter(first.values())).marks
    said = "; ".join(
        f"{number} at {mark.at:.1f} s {mark.label}" for number, mark in enumerate(marks, 1)
    )
    return [f"Faults, as in the first configuration's run: {said}."] if said else []


def _curve(runs: Sequence[RunResult]) -> list[tuple[float, float]]:
    whole = Histogram()
    for run in runs:
        whole.merge(run.latency)
    return [(share, whole.quantile_us(share) / 1e3) for share in CURVE]


def _figures_table(runs: Runs, letters: Mapping[str, int]) -> Table:
    """Return a table with a row per figure and a column per configuration."""
    rows = []
    for figure in figures.FIGURES:
        cells = [figures.summarise(found, figure) for found in runs.values()]
        if any(cell is not None for cell in cells):
            unit = f", {figure.unit}" if figure.unit else ""
            shown = (figures.show(cell, figure.digits) for cell in cells)
            rows.append((f"{figure.title}{unit}", *shown))
    return Table(("", *(f"{letter(letters[label])} {label}" for label in runs)), tuple(rows))


def _verdict_table(runs: Runs, letters: Mapping[str, int]) -> Table:
    rows = []
    for name in JUDGED:
        figure = figures.BY_NAME[name]
        found = verdicts(_spreads(runs, figure), more_is_better=figure.more_is_better)
        rows.append((figure.title, *(str(found.get(label, "–")) for label in runs)))
    headings = (f"{letter(letters[label])} {label}" for label in runs)
    return Table(("against the best", *headings), tuple(rows))


def _spreads(runs: Runs, figure: Figure) -> dict[str, Spread]:
    made = {label: figures.summarise(found, figure) for label, found in runs.items()}
    return {label: each for label, each in made.items() if each is not None}


def _sweep(comparison: Comparison, letters: Mapping[str, int]) -> Section:
    series = {}
    for label in comparison.configurations:
        points = []
        for rate in comparison.rates:
            runs = comparison.of("steady", label, rate)
            if runs:
                reached = median(sum(run.per_second.acked) / run.seconds for run in runs)
                p99_ms = median(run.latency.quantile_us(0.99) / 1e3 for run in runs)
                points.append((rate, reached, p99_ms))
        if points:
            series[label] = points
    chart = charts.throughput_against_p99("sweep", series, letters)
    return Section("sweep", "Throughput against p99", charts=(("Rate sweep", chart),))


def _failures(comparison: Comparison) -> Section:
    rows = tuple(
        (run.cell.scenario, run.cell.configuration, f"{run.cell.repetition}", run.reason)
        for run in comparison.failures()
    )
    table = Table(("scenario", "configuration", "repetition", "why"), rows)
    return Section("failures", "Runs that gave no figures", tables=(table,))
