"""HTML of a comparison: its content, and a page of its own that needs no other file and no script.

Leaves the sections' content to `quire.bench.compare.report.sections`, and colours to
`quire.bench.compare.report.style`.

Invariants: pure; every text is escaped; every picture has a table below it; the answer is first.
"""

import re
from html import escape
from typing import Final

from quire.bench.compare.choosing.advice import Advice
from quire.bench.compare.comparison import Comparison
from quire.bench.compare.report.charts import Chart, Table
from quire.bench.compare.report.sections import Section, sections_of
from quire.bench.compare.report.style import PAGE_STYLE, REPORT_STYLE

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
        f'<li><a href="#{escape(each.name)}">{escape(each.title)}</a></li>' for each in others
    )
    body = "".join(_section(each) for each in others)
    nav = f'<nav aria-label="Sections"><h2>More</h2><ul>{links}</ul></nav>'
    return f'<div class="report">{_section(answer)}{nav}{body}</div>'


def _section(section: Section) -> str:
    advice = "".join(_advice(each) for each in section.advice)
    paragraphs = "".join(f"<p>{_prose(text)}</p>" for text in section.paragraphs)
    tables = "".join(_table(table) for table in section.tables)
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
    table = f"<details><summary>The same as a table</summary>{_table(chart.table)}</details>"
    return f"<h3>{escape(title)}</h3><figure>{chart.picture}</figure>{table}"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in table.headings)
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
