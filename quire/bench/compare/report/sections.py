"""Content of the page of a comparison: one section per scenario, and the sections around them.

Leaves drawing to `quire.bench.compare.report.charts` and HTML to `quire.bench.compare.report.page`.

Invariants: pure; curves join all repetitions; pictures over time and of zones show the first
repetition.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from quire.bench.compare import configurations, figures, scenarios
from quire.bench.compare.choosing.advice import Advice, advise, title_of
from quire.bench.compare.choosing.recommendation import recommend
from quire.bench.compare.comparison import Comparison
from quire.bench.compare.figures import Figure
from quire.bench.compare.histogram import Histogram
from quire.bench.compare.report import charts
from quire.bench.compare.report.charts import Chart, Table
from quire.bench.compare.results import CURVE, RunResult
from quire.bench.compare.spreads import Spread, Verdict, verdicts

OVERVIEW_FIGURES: Final = ("p99_ms", "max_ms", "silence_s", "losable", "recoverable")
MARKS: Final = (
    "A star marks the best value of a row, and values whose range overlaps the best one's: these "
    "show no difference. A row without a star shows no difference at all."
)
METHOD: Final = (
    "Each run is an open loop of appends on a fixed schedule against real bookie processes and a "
    "real ZooKeeper on one machine. The latency of an append counts from the moment at which it "
    "was due, so a stall counts for every append that it held up. An append that was never "
    "acknowledged counts with the time until the run stopped waiting.",
    "For several runs of a cell the page shows the median and the range. Two ranges that overlap "
    "show no difference beyond noise.",
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
    advice: tuple[Advice, ...] = ()


Runs = Mapping[str, Sequence[RunResult]]
"""The repetitions of one scenario and rate, by the configuration's name in words."""
Row = tuple[str, Figure, Sequence[Spread | None]]
"""Heading, figure and cells of one row."""


def sections_of(comparison: Comparison) -> list[Section]:
    """Return every section, in order."""
    styles = {each.title: number for number, each in enumerate(configurations.CONFIGURATIONS)}
    made = [_answer(comparison), _overview(comparison), _opening(comparison)]
    for scenario in comparison.scenarios:
        for rate in comparison.rates:
            runs = {
                title_of(name): found
                for name in comparison.configurations
                if (found := comparison.of(scenario, name, rate))
            }
            if runs:
                made.append(_of_scenario(scenario, rate, runs, styles))
    if len(comparison.rates) > 1:
        made.append(_sweep(comparison, styles))
    if comparison.failures():
        made.append(_failures(comparison))
    return made


def _answer(comparison: Comparison) -> Section:
    """Return the recommendations, and what is to be known about all figures of the page."""
    advice = tuple(advise(comparison, each) for each in recommend(comparison))
    return Section("answer", "What to choose", (MARKS, _spread_text(comparison)), advice=advice)


def _spread_text(comparison: Comparison) -> str:
    """Say once how often the cells were run."""
    cells = Counter(
        (run.cell.scenario, run.cell.configuration, run.cell.rate) for run in comparison.runs
    )
    single = sum(count == 1 for count in cells.values())
    if not single:
        return f"Each cell was run {min(cells.values(), default=0)} times or more."
    which = "Every cell" if single == len(cells) else f"{single} of {len(cells)} cells"
    return (
        f"{which} was run once. One run has no spread, so it shows no difference, and has no star: "
        "run the same command again with the same --out."
    )


def _opening(comparison: Comparison) -> Section:
    rows = tuple(
        (each.title, each.name, each.says)
        for each in (configurations.BY_NAME[name] for name in comparison.configurations)
    )
    table = Table(("configuration", "name in commands", "what it is"), rows)
    tables = (table, Table(("machine", ""), tuple(comparison.machine.items())))
    return Section("method", "What was compared, and how", METHOD, tables)


def _overview(comparison: Comparison) -> Section:
    """Return one table per figure, with a row for each scenario at its lowest rate."""
    names = comparison.configurations
    tables = []
    for figure in (figures.BY_NAME[each] for each in OVERVIEW_FIGURES):
        rows = []
        for scenario in comparison.scenarios:
            runs = (comparison.at_lowest_rate(scenario, name) for name in names)
            rows.append((scenario, figure, [figures.summarise(each, figure) for each in runs]))
        unit = f", {figure.unit}" if figure.unit else ""
        tables.append(_table((f"{figure.title}{unit}", *map(title_of, names)), rows))
    return Section("glance", "At a glance", tables=tuple(tables))


def _of_scenario(scenario: str, rate: float, runs: Runs, styles: Mapping[str, int]) -> Section:
    name = f"{scenario}-{rate:g}"
    seconds = next(iter(runs.values()))[0].seconds
    first = {label: found[0] for label, found in runs.items()}
    curves = {label: _curve(found) for label, found in runs.items()}
    over_time = charts.latency_over_time(
        f"{name}-time",
        {label: run.slices for label, run in first.items()},
        {label: run.marks for label, run in first.items()},
        seconds,
        styles,
    )
    at_quorum = {label: run.at_ack_quorum for label, run in first.items()}
    zones = {label: run.zones for label, run in first.items() if run.zones}
    says = scenarios.BY_NAME[scenario].says
    return Section(
        name,
        f"{scenario}: {says}",
        (f"{rate:,.0f} appends per second for {seconds:g} s.", *_faults(first)),
        (_figures_table(runs),),
        (
            ("Latency quantiles", charts.quantile_curves(f"{name}-curve", curves, styles)),
            ("Latency over time", over_time),
            (
                "From the acknowledgement to the complete write quorum",
                charts.time_at_ack_quorum(f"{name}-at-aq", at_quorum, styles),
            ),
            ("Safety zones", charts.safety_zones(f"{name}-zones", zones, styles)),
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


def _figures_table(runs: Runs) -> Table:
    """Return a table with a row per figure and a column per configuration."""
    rows = []
    for figure in figures.FIGURES:
        cells = [figures.summarise(found, figure) for found in runs.values()]
        if any(cell is not None for cell in cells):
            unit = f", {figure.unit}" if figure.unit else ""
            rows.append((f"{figure.title}{unit}", figure, cells))
    return _table(("", *runs), rows)


def _table(headings: tuple[str, ...], rows: Sequence[Row]) -> Table:
    """Return a table of spreads whose best values are known."""
    texts, best = [], []
    for number, (name, figure, cells) in enumerate(rows):
        texts.append((name, *(figures.show(cell, figure.digits) for cell in cells)))
        best += [(number, column + 1) for column in _best(figure, cells)]
    return Table(headings, tuple(texts), frozenset(best))


def _best(figure: Figure, cells: Sequence[Spread | None]) -> list[int]:
    """Return the cells that are not shown to be worse than the best; none if no cell is worse."""
    spreads = {str(number): cell for number, cell in enumerate(cells) if cell is not None}
    if not figure.is_judged:
        return []
    judged = verdicts(spreads, more_is_better=figure.more_is_better)
    if Verdict.WORSE not in judged.values():
        return []
    return [int(each) for each, verdict in judged.items() if verdict is not Verdict.WORSE]


def _sweep(comparison: Comparison, styles: Mapping[str, int]) -> Section:
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
            series[title_of(label)] = points
    chart = charts.throughput_against_p99("sweep", series, styles)
    return Section("sweep", "Throughput against p99", charts=(("Rate sweep", chart),))


def _failures(comparison: Comparison) -> Section:
    rows = tuple(
        (run.cell.scenario, title_of(run.cell.configuration), f"{run.cell.repetition}", run.reason)
        for run in comparison.failures()
    )
    table = Table(("scenario", "configuration", "repetition", "why"), rows)
    return Section("failures", "Runs that gave no figures", tables=(table,))
