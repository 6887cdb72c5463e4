"""Drawings of a ledger as SVG, and patterns, so that no meaning is in a colour alone. Pure.

- The safety strip: the entries as one bar, the oldest at the left.
- The map: bookies and fragments as cells, each of which is a link.
- The grid: single entries of one fragment, and the bookies that hold them.

Leaves finding zones and cells to `quire.console.ledger`, colours to `console.css`, tables with the
same content to the pages, and walking by arrow keys to `static/ledger.js`: without it, each cell is
reached by the tab key. A page that has drawings with these patterns draws `definitions` once.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from metadata.ids import BookieId
from quire.console.ledger.fragment_cells import Cell, CellState, Column, FragmentMap
from quire.console.ledger.parts import Part, Why
from quire.console.ledger.zones import Zone, ZoneRange

_LINES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "good": "",
        "warn": "M0 8L8 0M-2 2L2 -2M6 10L10 6",
        "bad": "M0 0L8 8M0 8L8 0",
        "dotted": "M2 2h1M6 6h1",
        "lined": "M0 4H8",
        "barred": "M2 0V8M6 0V8",
        "lost": "M0 0H8V8H0Z",
    }
)
"""Name of a pattern -> path of its lines; a pattern without lines is a plain surface."""


def definitions() -> Markup:
    """Return the patterns as an invisible image."""
    found = Markup("").join(
        Markup(
            '<pattern id="pattern-{}" patternUnits="userSpaceOnUse" width="8" height="8" '
            'class="pattern {}"><rect width="8" height="8"></rect><path d="{}"></path></pattern>'
        ).format(name, name, lines)
        for name, lines in _LINES.items()
    )
    return Markup(
        '<svg width="0" height="0" aria-hidden="true" class="patterns"><defs>{}</defs></svg>'
    ).format(found)


def fill(name: str) -> Markup:
    """Return the attribute that fills a shape with a pattern."""
    assert name in _LINES, name
    return Markup('fill="url(#pattern-{})"').format(name)


def swatch(name: str) -> Markup:
    """Return a small square with a pattern, for the explanation beside a drawing."""
    return Markup(
        '<svg width="24" height="16" aria-hidden="true" class="swatch">'
        '<rect x="1" y="1" width="22" height="14" class="shape" {}></rect></svg>'
    ).format(fill(name))


STRIP_WIDTH: Final = 1_000
STRIP_HEIGHT: Final = 42
BAR_HEIGHT: Final = 36
NARROWEST_RANGE: Final = 4.0
"""Minimum width of a range that is not safe, so that it is seen."""
DRAWN_MAX: Final = 400
ZONE_PATTERNS: Final[Mapping[Zone, str]] = MappingProxyType(
    {
        Zone.FULL: "good",
        Zone.ACK: "warn",
        Zone.UNKNOWN: "lined",
        Zone.SHORT: "bad",
        Zone.UNCONFIRMED: "dotted",
        Zone.LOST: "lost",
    }
)
"""In the order of drawing: what is worse is drawn over what is better."""
_ZONE_ORDER: Final = list(ZONE_PATTERNS)


def safety_strip(ranges: Sequence[ZoneRange], last: int, confirmed: int, text: str) -> Markup:
    """Return the bar of the entries 0 to `last`, which is at least 0, with a text that says what
    it shows.
    """
    shown = sorted(ranges, key=lambda each: _ZONE_ORDER.index(each.zone))[-DRAWN_MAX:]
    scale = STRIP_WIDTH / (last + 1)
    shapes = Markup("").join(_shape(each, scale) for each in shown)
    end = (confirmed + 1) * scale
    mark = Markup("")
    if 0 <= confirmed < last:
        mark = Markup('<path class="mark" d="M{:.1f} 0V{}"></path>').format(end, BAR_HEIGHT + 4)
    return Markup(
        '<svg viewBox="0 0 {} {}" class="strip" role="img" aria-labelledby="strip-title strip-text"'
        ' preserveAspectRatio="none"><title id="strip-title">Safety of the entries</title>'
        '<desc id="strip-text">{}</desc>{}{}</svg>'
    ).format(STRIP_WIDTH, STRIP_HEIGHT, text, shapes, mark)


def _shape(each: ZoneRange, scale: float) -> Markup:
    x, width = each.first * scale, each.count * scale
    if each.zone is not Zone.FULL:
        width = max(width, NARROWEST_RANGE)
        x = min(x, STRIP_WIDTH - width)
    return Markup(
        '<rect x="{:.2f}" y="2" width="{:.2f}" height="{}" class="shape" {}>'
        "<title>{}</title></rect>"
    ).format(x, width, BAR_HEIGHT, fill(ZONE_PATTERNS[each.zone]), _title(each))


def _title(each: ZoneRange) -> str:
    entries = f"entry {each.first:,}" if each.count == 1 else f"{each.first:,} to {each.last:,}"
    return f"{entries}: {each.zone}, {each.copies} of {each.wanted} copies"


LABEL_WIDTH: Final = 190
LABEL_CHARACTERS: Final = 24
MAP_ROW_HEIGHT: Final = 30
CELL_HEIGHT: Final = 26
MAP_HEAD_HEIGHT: Final = 24
NARROWEST_FRAGMENT: Final = 26
PER_DOUBLING: Final = 5.0
"""Width that a fragment gets for each doubling of its entries."""
GAP: Final = 3
CELL_PATTERNS: Final[Mapping[CellState, str]] = MappingProxyType(
    {
        CellState.VERIFIED: "good",
        CellState.MISSING: "bad",
        CellState.DOWN: "barred",
        CellState.NOT_CHECKED: "lined",
        CellState.ASSIGNED: "dotted",
        CellState.INCOMING: "warn",
    }
)


def width_of(column: Column) -> float:
    """Return the width of a fragment: it grows with the logarithm of its entries."""
    return NARROWEST_FRAGMENT + PER_DOUBLING * math.log2(1 + column.count)


def draw_fragment_map(found: FragmentMap, address: str, text: str) -> Markup:
    """Return the map; the link of a cell is `address` with the fragment's number."""
    x, shapes = float(LABEL_WIDTH), list[Markup]()
    for number, column in enumerate(found.columns):
        width = width_of(column)
        head = Markup('<text x="{:.1f}" y="16" class="head">{}</text>')
        shapes.append(head.format(x, column.index))
        for row, bookie_id in enumerate(found.bookies):
            cell = found.cells.get((bookie_id, column.index))
            if cell is not None:
                shapes.append(_cell(cell, column, (row, number), (x, width), address))
        x += width + GAP
    for row, bookie_id in enumerate(found.bookies):
        y = MAP_HEAD_HEIGHT + row * MAP_ROW_HEIGHT + MAP_ROW_HEIGHT / 2 + 2
        name = bookie_id[:LABEL_CHARACTERS]
        name += "…" if len(bookie_id) > LABEL_CHARACTERS else ""
        label = Markup('<text x="0" y="{:.1f}">{}<title>{}</title></text>')
        shapes.append(label.format(y, name, bookie_id))
    height = MAP_HEAD_HEIGHT + len(found.bookies) * MAP_ROW_HEIGHT + 4
    return Markup(
        '<svg width="{:.0f}" height="{}" viewBox="0 0 {:.0f} {}" class="map" role="group" '
        'aria-labelledby="map-title" aria-describedby="map-text" data-walk="">'
        '<title id="map-title">Bookies and fragments</title>'
        '<desc id="map-text">{}</desc>{}</svg>'
    ).format(x + GAP, height, x + GAP, height, text, Markup("").join(shapes))


def _cell(
    cell: Cell,
    column: Column,
    at: tuple[int, int],
    across: tuple[float, float],
    address: str,
) -> Markup:
    (row, number), (x, width) = at, across
    y = MAP_HEAD_HEIGHT + row * MAP_ROW_HEIGHT
    label = f"{cell.bookie_id}, fragment {column.index}, entries {column.text}: {cell.text}"
    return Markup(
        '<a href="{}{}#fragment" aria-label="{}" data-row="{}" data-column="{}">'
        '<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="3" class="shape" {}>'
        "<title>{}</title></rect></a>"
    ).format(
        address,
        column.index,
        label,
        row,
        number,
        x,
        y,
        width,
        CELL_HEIGHT,
        fill(CELL_PATTERNS[cell.state]),
        label,
    )


ENTRIES_MAX: Final = 200
SQUARE: Final = 8
GRID_ROW_HEIGHT: Final = 22
GRID_HEAD_HEIGHT: Final = 20


class Copy(StrEnum):
    """State of one copy of an entry."""

    LISTED = "listed"
    MISSING = "missing"
    DOWN = "bookie down"
    NOT_CHECKED = "not checked"
    NOT_ASSIGNED = "not assigned"
    LOST = "loss accepted"


COPY_PATTERNS: Final[Mapping[Copy, str]] = MappingProxyType(
    {
        Copy.LISTED: "good",
        Copy.MISSING: "bad",
        Copy.DOWN: "barred",
        Copy.NOT_CHECKED: "lined",
        Copy.LOST: "lost",
    }
)
_STATES: Final[Mapping[Why, Copy]] = MappingProxyType(
    {Why.MISSING: Copy.MISSING, Why.DOWN: Copy.DOWN, Why.NOT_CHECKED: Copy.NOT_CHECKED}
)


def copy_of(part: Part, bookie_id: BookieId) -> Copy:
    """Return the state of a bookie's copies of the entries of a part."""
    if bookie_id not in part.assigned:
        return Copy.NOT_ASSIGNED
    if part.is_lost:
        return Copy.LOST
    why = dict(part.lacking).get(bookie_id)
    return Copy.LISTED if why is None else _STATES[why]


def draw_entry_grid(bookies: Sequence[BookieId], found: Sequence[Part], text: str) -> Markup:
    """Return the grid of parts that have at most ENTRIES_MAX entries together."""
    first = found[0].first
    assert found[-1].last - first < ENTRIES_MAX, "the entries fit"
    shapes = list[Markup]()
    for row, bookie_id in enumerate(bookies):
        y = GRID_HEAD_HEIGHT + row * GRID_ROW_HEIGHT
        name = bookie_id[:LABEL_CHARACTERS]
        shapes.append(Markup('<text x="0" y="{}">{}</text>').format(y + 14, name))
        for part in found:
            state = copy_of(part, bookie_id)
            if state is not Copy.NOT_ASSIGNED:
                shapes.append(_squares(part, first, y, state))
    label = Markup('<text x="{}" y="12" text-anchor="{}">{}</text>')
    width = LABEL_WIDTH + (found[-1].last - first + 1) * SQUARE
    shapes.append(label.format(LABEL_WIDTH, "start", first))
    if found[-1].last > first + ENTRIES_MAX // 10:
        shapes.append(label.format(width, "end", found[-1].last))
    height = GRID_HEAD_HEIGHT + len(bookies) * GRID_ROW_HEIGHT
    return Markup(
        '<svg width="{}" height="{}" viewBox="0 0 {} {}" class="map" role="img" '
        'aria-labelledby="grid-title grid-text"><title id="grid-title">Entries of the fragment'
        '</title><desc id="grid-text">{}</desc>{}</svg>'
    ).format(width, height, width, height, text, Markup("").join(shapes))


def _squares(part: Part, first: int, y: int, state: Copy) -> Markup:
    square = Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" class="shape" {}><title>{}: {}</title></rect>'
    )
    return Markup("").join(
        square.format(
            LABEL_WIDTH + (entry_id - first) * SQUARE,
            y,
            SQUARE - 1,
            GRID_ROW_HEIGHT - 4,
            fill(COPY_PATTERNS[state]),
            entry_id,
            state,
        )
        for entry_id in range(part.first, part.last + 1)
    )
