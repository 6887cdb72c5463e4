"""HTML of a comparison: its content, with one section per scenario, and a page of its own that
needs no other file and no script. The console puts its own page around the content.

Invariants: pure; every text is escaped; every picture has a table below it; the answer is first;
curves join all repetitions; pictures over time and of zones show the first repetition. Every colour
has a twin for the dark; rules of the content are below `.report`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Final

from quire.bench import configurations, figures, report_charts, scenarios
from quire.bench.choosing import Advice, advise, recommend, title_of
from quire.bench.comparison import Comparison
from quire.bench.figures import Figure, Spread, Verdict, verdicts
from quire.bench.measuring import Histogram
from quire.bench.report_charts import Chart, Table
from quire.bench.results import CURVE, RunResult

LIGHT: Final = (
    "#0072b2", "#b34700", "#00795a", "#a8437f", "#8a6100", "#2e7ebf", "#6b4bb3", "#555555",
    "#a3161f",
)  # fmt: skip
DARK: Final = (
    "#56b4e9", "#ff9a57", "#33cfa0", "#eba3cf", "#f2c14e", "#a5d8ff", "#c4adff", "#c2c2c2",
    "#ff9aa2",
)  # fmt: skip
DASHES: Final = ("none", "7 3", "2 3", "9 3 2 3", "none", "7 3", "2 3", "9 3 2 3", "4 2")
_RULES: Final = """\
.report { --ink: #1b1b1b; --paper: #ffffff; --faint: #d5d5d5; --mark: #c00000; --full: #2f7d4f;
  --ack: #d9962b; --open: #9a9a9a; --best: #dff0e4; max-width: 64rem; }
@media (prefers-color-scheme: dark) {
  .report { --ink: #e6e6e6; --paper: #16181b; --faint: #3a3f45; --mark: #ff6b6b; --full: #4fae78;
    --ack: #f0b54f; --open: #7c7c7c; --best: #1d3a28; } }
.report figure { margin: 0; }
.report svg { width: 100%; height: auto; }
.report svg text { fill: var(--ink); font-size: 12px; } .report svg .tick { font-size: 9px; }
.report .grid { stroke: var(--faint); }
.report .mark { stroke: var(--mark); stroke-width: 2; stroke-dasharray: 3 2; }
.report .series { fill: none; stroke-width: 2; } .report .series.thin { stroke-width: 1; }
.report .series.thick { stroke-width: 7; }
.report svg .end { font-weight: bold; stroke: none; }
.report .zone-full { fill: var(--full); }
.report .zone-ack { fill: var(--ack); stroke: var(--ink); }
.report .zone-open { fill: var(--paper); stroke: var(--ink); stroke-dasharray: 3 2; }
.report .wide { overflow-x: auto; }
.report table { border-collapse: collapse; font-size: 13px; margin: .5rem 0 1rem; }
.report th, .report td { border-bottom: 1px solid var(--faint); padding: .15rem .6rem;
  text-align: right; }
.report th:first-child { text-align: left; white-space: nowrap; }
.report tbody th { font-weight: normal; }
.report .best { font-weight: bold; background: var(--best); }
.report .advice { border-left: 4px solid var(--full); padding: .1rem 0 .1rem .9rem;
  margin: 1rem 0; }
.report .advice h3, .report .advice p { margin: .2rem 0; }
.report .advice h3 { font-weight: normal; font-size: 1.1rem; }
.report .left-out { font-size: 13px; }
.report summary { cursor: pointer; }
"""
PAGE_STYLE: Final = """\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 64rem;
  color: #1b1b1b; background: #ffffff; }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #16181b; } }
"""
"""Rules of a page that holds nothing but the content."""


def _colours() -> str:
    def rules(colours: Sequence[str]) -> str:
        return "".join(
            f".report .s{n} {{ stroke: {colour}; }}\n"
            f".report .dot.s{n}, .report svg .end.s{n} {{ fill: {colour}; }}\n"
            for n, colour in enumerate(colours)
        )

    dashes = "".join(
        f".report path.s{n} {{ stroke-dasharray: {d}; }}\n" for n, d in enumerate(DASHES)
    )
    dark = f"@media (prefers-color-scheme: dark) {{ {rules(DARK)} }}\n"
    return rules(LIGHT) + dark + dashes


REPORT_STYLE: Final = _RULES + _colours()
"""Rules of the content."""


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
    styles = {
        configuration.title: number
        for number, configuration in enumerate(configurations.CONFIGURATIONS)
    }
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
    advice = tuple(advise(comparison, recommendation) for recommendation in recommend(comparison))
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
        (configuration.title, configuration.name, configuration.says)
        for configuration in (configurations.BY_NAME[name] for name in comparison.configurations)
    )
    table = Table(("configuration", "name in commands", "what it is"), rows)
    tables = (table, Table(("machine", ""), tuple(comparison.machine.items())))
    return Section("method", "What was compared, and how", METHOD, tables)


def _overview(comparison: Comparison) -> Section:
    """Return one table per figure, with a row for each scenario at its lowest rate."""
    names = comparison.configurations
    tables = []
    for figure in (figures.BY_NAME[overview_figure] for overview_figure in OVERVIEW_FIGURES):
        rows = []
        for scenario in comparison.scenarios:
            runs = (comparison.at_lowest_rate(scenario, name) for name in names)
            rows.append((scenario, figure, [figures.summarise(run, figure) for run in runs]))
        unit = f", {figure.unit}" if figure.unit else ""
        tables.append(_table((f"{figure.title}{unit}", *map(title_of, names)), rows))
    return Section("glance", "At a glance", tables=tuple(tables))


def _of_scenario(scenario: str, rate: float, runs: Runs, styles: Mapping[str, int]) -> Section:
    name = f"{scenario}-{rate:g}"
    seconds = next(iter(runs.values()))[0].seconds
    first = {label: found[0] for label, found in runs.items()}
    curves = {label: _curve(found) for label, found in runs.items()}
    over_time = report_charts.latency_over_time(
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
            ("Latency quantiles", report_charts.quantile_curves(f"{name}-curve", curves, styles)),
            ("Latency over time", over_time),
            (
                "From the acknowledgement to the complete write quorum",
                report_charts.time_at_ack_quorum(f"{name}-at-aq", at_quorum, styles),
            ),
            ("Safety zones", report_charts.safety_zones(f"{name}-zones", zones, styles)),
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
    chart = report_charts.throughput_against_p99("sweep", series, styles)
    return Section("sweep", "Throughput against p99", charts=(("Rate sweep", chart),))


def _failures(comparison: Comparison) -> Section:
    rows = tuple(
        (run.cell.scenario, title_of(run.cell.configuration), f"{run.cell.repetition}", run.reason)
        for run in comparison.failures()
    )
    table = Table(("scenario", "configuration", "repetition", "why"), rows)
    return Section("failures", "Runs that gave no figures", tables=(table,))


TITLE: Final = "Ways to replicate a ledger, side by side"


def render(comparison: Comparison) -> str:
    """Return the complete page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{TITLE}</title><style>{PAGE_STYLE}{REPORT_STYLE}</style></head><body>"
        f"<h1>{TITLE}</h1>{content(comparison)}</body></html>\n"
    )


def content(comparison: Comparison) -> str:
    """Return what is below the title of the page, as HTML that refers to nothing."""
    answer, *others = sections_of(comparison)
    links = "".join(
        f'<li><a href="#{escape(other.name)}">{escape(other.title)}</a></li>' for other in others
    )
    body = "".join(_section(other) for other in others)
    nav = f'<nav aria-label="Sections"><h2>More</h2><ul>{links}</ul></nav>'
    return f'<div class="report">{_section(answer)}{nav}{body}</div>'


def _section(section: Section) -> str:
    advice = "".join(_advice(each) for each in section.advice)
    paragraphs = "".join(f"<p>{_prose(text)}</p>" for text in section.paragraphs)
    tables = "".join(_table_html(table) for table in section.tables)
    charts = "".join(_chart(title, chart) for title, chart in section.charts)
    head = f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>'
    return f"{head}{advice}{paragraphs}{tables}{charts}</section>\n"


def _prose(text: str) -> str:
    """Return a text of the page, with commands in `code` elements."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _advice(advice: Advice) -> str:
    lines = "".join(f"<p>{_prose(text)}</p>" for text in (advice.reason, advice.cost) if text)
    if advice.left_out:
        lines += f'<p class="left-out">{escape(advice.left_out)}</p>'
    title = f"{escape(advice.title)}: <strong>{escape(advice.answer)}</strong>"
    return f'<div class="advice"><h3>{title}</h3>{lines}</div>'


def _chart(title: str, chart: Chart) -> str:
    table = f"<details><summary>The same as a table</summary>{_table_html(chart.table)}</details>"
    return f"<h3>{escape(title)}</h3><figure>{chart.picture}</figure>{table}"


def _table_html(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in table.headings)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(
            f'<td class="best">★ {escape(cell)}</td>'
            if (number, column) in table.best
            else f"<td>{escape(cell)}</td>"
            for column, cell in enumerate(row[1:], 1)
        )
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table>{inside}</table></div>'
