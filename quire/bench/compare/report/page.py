"""HTML page of a comparison; it needs no other file and no script.

Leaves the sections' content to `quire.bench.compare.report.sections`.

Invariants: pure; every text is escaped; every picture has a table below it.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from quire.bench.compare.comparison import Comparison
from quire.bench.compare.report.charts import Chart, Table
from quire.bench.compare.report.sections import Section, sections_of

TITLE: Final = "Ways to replicate a ledger, side by side"
LIGHT: Final = (
    "#0072b2", "#b34700", "#00795a", "#a8437f", "#8a6100", "#2e7ebf", "#6b4bb3", "#555555",
    "#a3161f",
)  # fmt: skip
DARK: Final = (
    "#56b4e9", "#ff9a57", "#33cfa0", "#eba3cf", "#f2c14e", "#a5d8ff", "#c4adff", "#c2c2c2",
    "#ff9aa2",
)  # fmt: skip
DASHES: Final = ("none", "7 3", "2 3", "9 3 2 3", "none", "7 3", "2 3", "9 3 2 3", "4 2")
STYLE: Final = """\
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --faint: #d5d5d5;
  --mark: #c00000; --full: #2f7d4f; --ack: #d9962b; --open: #9a9a9a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181b; --faint: #3a3f45; --mark: #ff6b6b; --full: #4fae78;
    --ack: #f0b54f; --open: #7c7c7c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font-size: 12px; } svg .tick { font-size: 9px; }
.grid { stroke: var(--faint); }
.mark { stroke: var(--mark); stroke-width: 2; stroke-dasharray: 3 2; }
.series { fill: none; stroke-width: 2; } .series.thin { stroke-width: 1; }
.series.thick { stroke-width: 7; } svg .end { font-weight: bold; stroke: none; }
.zone-full { fill: var(--full); } .zone-ack { fill: var(--ack); stroke: var(--ink); }
.zone-open { fill: var(--paper); stroke: var(--ink); stroke-dasharray: 3 2; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; margin: .5rem 0 1rem; }
th, td { border-bottom: 1px solid var(--faint); padding: .15rem .6rem; text-align: right; }
th:first-child { text-align: left; white-space: nowrap; } tbody th { font-weight: normal; }
summary { cursor: pointer; }
"""


def render(comparison: Comparison) -> str:
    """Return the complete page."""
    sections = sections_of(comparison)
    links = "".join(
        f'<li><a href="#{escape(each.name)}">{escape(each.title)}</a></li>' for each in sections
    )
    body = "".join(_section(each) for each in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{TITLE}</title><style>{STYLE}{_colours()}</style></head><body>"
        f"<h1>{TITLE}</h1><nav><ul>{links}</ul></nav>{body}</body></html>\n"
    )


def _colours() -> str:
    def rules(colours: Sequence[str]) -> str:
        return "".join(
            f".s{n} {{ stroke: {colour}; }} .dot.s{n}, svg .end.s{n} {{ fill: {colour}; }}\n"
            for n, colour in enumerate(colours)
        )

    dashes = "".join(f"path.s{n} {{ stroke-dasharray: {d}; }}\n" for n, d in enumerate(DASHES))
    dark = f"@media (prefers-color-scheme: dark) {{ {rules(DARK)} }}\n"
    return rules(LIGHT) + dark + dashes


def _section(section: Section) -> str:
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in section.paragraphs)
    tables = "".join(_table(table) for table in section.tables)
    charts = "".join(_chart(title, chart) for title, chart in section.charts)
    head = f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>'
    return f"{head}{paragraphs}{tables}{charts}</section>\n"


def _chart(title: str, chart: Chart) -> str:
    table = f"<details><summary>The same as a table</summary>{_table(chart.table)}</details>"
    return f"<h3>{escape(title)}</h3><figure>{chart.picture}</figure>{table}"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in table.headings)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table>{inside}</table></div>'
