"""HTML of a comparison: its content, with one section per scenario, and a page of its own that
needs no other file and no script. The console puts its own page around the content.

Invariants: pure; every text is escaped; every picture has a table below it; the first screen has
the question, the answer and a picture for each reason; curves join all repetitions; pictures over
time and of zones show the first repetition. Every colour has a twin for the dark; rules of the
content are below `.report`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Final

from quire.bench import configurations, figures, report_charts, scenarios
from quire.bench.choosing import (
    ONE_BOOKIE_FAILS,
    Advice,
    advise,
    doubts,
    recommend,
    title_of,
    worst,
)
from quire.bench.comparison import Comparison
from quire.bench.figures import Figure, Spread, Verdict, verdicts
from quire.bench.measuring import Histogram
from quire.bench.report_charts import Chart, Pair, Table
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
  --ack: #d9962b; --open: #9a9a9a; --best: #dff0e4; --soft: #5d6269; --accent: #0b63b0;
  --warn: #fff3d6; max-width: 72rem; }
@media (prefers-color-scheme: dark) {
  .report { --ink: #e6e6e6; --paper: #16181b; --faint: #3a3f45; --mark: #ff6b6b; --full: #4fae78;
    --ack: #f0b54f; --open: #7c7c7c; --best: #1d3a28; --soft: #a2a8b0; --accent: #6cb3f2;
    --warn: #3a3016; } }
.report figure { margin: 0; overflow-x: auto; }
.report svg { width: 100%; height: auto; min-width: 40rem; }
.report .three { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr));
  gap: 1rem 2.5rem; margin: 1.5rem 0 0; }
.report .three svg { min-width: 0; max-width: 30rem; }
.report .three h3 { font-size: 1rem; margin: 0; }
.report .three p { margin: .1rem 0 .3rem; min-height: 2.4em; }
.report .small, .report .three p, .report details { font-size: 13px; color: var(--soft); }
.report svg .rule { font-size: 9.5px; fill: var(--soft); } .report svg .value { font-weight: 600; }
.report .link { stroke: var(--accent); stroke-width: 2; }
.report .calm { fill: var(--paper); stroke: var(--accent); stroke-width: 2; }
.report .faulty { fill: var(--accent); stroke: var(--accent); stroke-width: 2; }
.report .warning { background: var(--warn); padding: .5rem .9rem; border-radius: 4px; }
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
  text-align: left; vertical-align: top; }
.report .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.report .wide th:first-child { position: sticky; left: 0; background: var(--paper);
  min-width: 8rem; max-width: 20rem; }
.report tbody th { font-weight: normal; }
.report .best { font-weight: bold; background: var(--best); }
.report .advice { font-size: 14px; } .report .advice td:nth-child(2) { font-weight: 600; }
.report .advice .small { font-weight: normal; }
@media (min-width: 45rem) { .report .advice td:nth-child(2) { white-space: nowrap; } }
@media (max-width: 45rem) { .report .advice thead { display: none; }
  .report .advice th, .report .advice td { display: block; border: 0; max-width: none; }
  .report .advice tr { border-bottom: 1px solid var(--faint); } }
.report .advice details { margin: .1rem 0; } .report .advice details p { margin: .2rem 0; }
.report summary { cursor: pointer; }
"""
PAGE_STYLE: Final = """\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; padding: 0 1rem; max-width: 72rem;
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


Runs = Mapping[str, Sequence[RunResult]]
"""The repetitions of one scenario and rate, by the configuration's name in words."""
Row = tuple[str, Figure, Sequence[Spread | None]]
"""Heading, figure and cells of one row."""


def sections_of(comparison: Comparison) -> list[Section]:
    """Return every section, in order."""
    styles = {row.title: number for number, row in enumerate(configurations.CONFIGURATIONS)}
    made = [_overview(comparison), _opening(comparison)]
    for scenario in comparison.scenarios:
        for rate in comparison.rates:
            runs = {
                title_of(name): results
                for name in comparison.configurations
                if (results := comparison.of(scenario, name, rate))
            }
            if runs:
                made.append(_of_scenario(scenario, rate, runs, styles))
    if len(comparison.rates) > 1:
        made.append(_sweep(comparison, styles))
    if comparison.failures():
        made.append(_failures(comparison))
    return made


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
        (configuration.title, configuration.name, configuration.rule, configuration.says)
        for configuration in (configurations.BY_NAME[name] for name in comparison.configurations)
    )
    table = Table(("configuration", "name in commands", "whose rule", "what it is"), rows)
    tables = (table, Table(("machine", ""), tuple(comparison.machine.items())))
    return Section(
        "method", "What was compared, and how", (_spread_text(comparison), *METHOD), tables
    )


def _overview(comparison: Comparison) -> Section:
    """Return one table per figure, with a row for each scenario at its lowest rate."""
    names = comparison.configurations
    tables = []
    for figure in map(figures.BY_NAME.__getitem__, OVERVIEW_FIGURES):
        rows = []
        for scenario in comparison.scenarios:
            runs = (comparison.at_lowest_rate(scenario, name) for name in names)
            rows.append((scenario, figure, [figures.summarise(run, figure) for run in runs]))
        unit = f", {figure.unit}" if figure.unit else ""
        tables.append(_table((f"{figure.title}{unit}", *map(title_of, names)), rows))
    return Section("glance", "At a glance", (MARKS,), tuple(tables))


def _of_scenario(scenario: str, rate: float, runs: Runs, styles: Mapping[str, int]) -> Section:
    name = f"{scenario}-{rate:g}"
    seconds = next(iter(runs.values()))[0].seconds
    first = {label: results[0] for label, results in runs.items()}
    curves = {label: _curve(results) for label, results in runs.items()}
    over_time = report_charts.latency_over_time(
        f"{name}-time",
        {label: run.slices for label, run in first.items()},
        {label: run.marks for label, run in first.items()},
        seconds,
        styles,
    )
    at_quorum = {label: run.at_ack_quorum for label, run in first.items()}
    zones = {label: run.zones for label, run in first.items() if run.zones}
    known = scenarios.BY_NAME[scenario]
    says = known.scaled(seconds / known.seconds).says
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
    shares = (share for share in CURVE if share == 1.0 or whole.carries(share))
    return [(share, whole.quantile_us(share) / 1e3) for share in shares]


def _figures_table(runs: Runs) -> Table:
    """Return a table with a row per figure and a column per configuration."""
    rows = []
    for figure in figures.FIGURES:
        cells = [figures.summarise(results, figure) for results in runs.values()]
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
    return [int(place) for place, verdict in judged.items() if verdict is not Verdict.WORSE]


def _sweep(comparison: Comparison, styles: Mapping[str, int]) -> Section:
    series = {}
    for label in comparison.configurations:
        points = []
        for rate in comparison.rates:
            runs = comparison.of("steady", label, rate)
            if runs:
                reached = median(sum(run.per_second.acked) / run.seconds for run in runs)
                p99 = figures.summarise(runs, figures.BY_NAME["p99_ms"])
                points += [(rate, reached, p99.median)] if p99 else []
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


TITLE: Final = "AQ = WQ, a majority, or Kafka's in-sync set?"


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
    others = sections_of(comparison)
    links = "".join(
        f'<li><a href="#{escape(other.name)}">{escape(other.title)}</a></li>' for other in others
    )
    body = "".join(_section(other) for other in others)
    nav = f'<nav aria-label="Sections"><h2>All figures</h2><ul>{links}</ul></nav>'
    return f'<div class="report">{_first_screen(comparison)}{nav}{body}</div>'


def _first_screen(comparison: Comparison) -> str:
    """Return the answer, and a picture for each reason: speed, safety and cost."""
    said = doubts(comparison)
    facts = comparison.machine
    names = (facts.get(name, "") for name in ("date", "processor"))
    release, cores, command = (facts.get(name, "") for name in ("release", "cores", "command"))
    about = [*names, f"{cores} cores" if cores else "", f"Quire {release}" if release else ""]
    line = escape(", ".join(part for part in about if part))
    line += f"<br/><code>{escape(command)}</code>" if command else ""
    warning = "".join(f'<p class="warning">{_prose(text)}</p>' for text in said)
    answer = "" if said else _answer(comparison)
    pictures = "".join(_reason(title, says, chart) for title, says, chart in _reasons(comparison))
    return (
        f'<section id="answer"><p class="small">{line}</p>{warning}{answer}'
        f'<div class="three">{pictures}</div></section>\n'
    )


def _answer(comparison: Comparison) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in ("you want", "choose", "because"))
    rows = "".join(
        _advice(advise(comparison, recommendation)) for recommendation in recommend(comparison)
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table class="advice">{inside}</table></div>'


def _reasons(comparison: Comparison) -> Iterator[tuple[str, str, Chart]]:
    """Yield heading, explanation and picture of each reason to choose."""
    slow = [name for name in ONE_BOOKIE_FAILS if name in comparison.scenarios]
    killed = [name for name in ("two-failures", "killed-bookie") if name in comparison.scenarios][
        :1
    ]
    headings = ("no fault", "with the fault")
    yield (
        "How slow are appends while one replica fails?",
        f"p99. Ring: no fault. Disk: the worst of {', '.join(slow) or '(none was run)'}.",
        report_charts.pairs(
            "reason-speed",
            "p99 of appends in milliseconds, on a log axis",
            headings,
            _pairs(comparison, "p99_ms", slow),
            unit="ms",
            digits=1,
        ),
    )
    yield (
        "How many bookies may be lost without losing data?",
        f"Ring: no fault. Disk: after {killed[0] if killed else '(none was run)'}, unrepaired.",
        report_charts.pairs(
            "reason-safety",
            "Bookies that may be lost without a loss",
            headings,
            _pairs(comparison, "losable", killed),
        ),
    )
    yield (
        "What does it cost?",
        "Bytes written to disks per entry, without a fault.",
        report_charts.pairs(
            "reason-cost",
            "Bytes written to disks per entry",
            headings,
            _pairs(comparison, "written", ()),
        ),
    )


def _pairs(comparison: Comparison, figure: str, faults: Sequence[str]) -> list[Pair]:
    """Return a figure of each configuration in `steady`, and its worst value in some scenarios."""
    pairs = []
    for name in comparison.configurations:
        known = configurations.BY_NAME.get(name)
        calm = worst(comparison, ("steady",), name, figure)
        faulty = worst(comparison, faults, name, figure)
        medians = (evidence.spread.median if evidence else None for evidence in (calm, faulty))
        pairs.append(Pair(title_of(name), known.rule if known else "", *medians))
    return pairs


def _reason(title: str, says: str, chart: Chart) -> str:
    return f"<div><h3>{escape(title)}</h3><p>{escape(says)}</p>{_figure(chart)}</div>"


def _section(section: Section) -> str:
    paragraphs = "".join(f"<p>{_prose(text)}</p>" for text in section.paragraphs)
    tables = "".join(_table_html(table) for table in section.tables)
    charts = "".join(_chart(title, chart) for title, chart in section.charts)
    head = f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>'
    return f"{head}{paragraphs}{tables}{charts}</section>\n"


def _prose(text: str) -> str:
    """Return a text of the page, with commands in `code` elements."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _advice(advice: Advice) -> str:
    more = "".join(f"<p>{_prose(text)}</p>" for text in (advice.cost, advice.left_out) if text)
    details = f"<details><summary>Details</summary>{more}</details>"
    return (
        f'<tr><th scope="row">{escape(advice.title)}</th>'
        f'<td>{escape(advice.answer)}<div class="small">{escape(advice.rule)}</div></td>'
        f"<td>{_prose(advice.reason)}{details if more else ''}</td></tr>"
    )


def _chart(title: str, chart: Chart) -> str:
    return f"<h3>{escape(title)}</h3>{_figure(chart)}"


def _figure(chart: Chart) -> str:
    table = f"<details><summary>The same as a table</summary>{_table_html(chart.table)}</details>"
    return f"<figure>{chart.picture}</figure>{table}"


def _table_html(table: Table) -> str:
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.headings)
    numbers = [bool(cells) and all(map(_is_number, cells)) for cells in columns]
    head = "".join(
        f'<th scope="col"{_NUMBER if is_number else ""}>{escape(heading)}</th>'
        for heading, is_number in zip(table.headings, numbers, strict=True)
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(
            f'<td class="n best">★ {escape(cell)}</td>'
            if (number, column) in table.best
            else f"<td{_NUMBER if numbers[column] else ''}>{escape(cell)}</td>"
            for column, cell in enumerate(row[1:], 1)
        )
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table>{inside}</table></div>'


_NUMBER: Final = ' class="n"'


def _is_number(cell: str) -> bool:
    """Return whether a cell of a table is a figure, a figure with its range, or none."""
    return re.fullmatch(r"[\d.,() /%–-]+", cell) is not None
