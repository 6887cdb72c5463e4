"""Bookies and fragments of a ledger as a map of cells, each of which is a link. Pure.

Leaves what a cell means to `quire.console.ledger.fragment_cells`, and walking by arrow keys to
`static/ledger.js`: without it, each cell is reached by the tab key.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from quire.console.drawings.patterns import fill
from quire.console.ledger.fragment_cells import Cell, CellState, Column, FragmentMap

LABEL_WIDTH: Final = 190
LABEL_CHARACTERS: Final = 24
ROW_HEIGHT: Final = 30
CELL_HEIGHT: Final = 26
HEAD_HEIGHT: Final = 24
NARROWEST: Final = 26
PER_DOUBLING: Final = 5.0
"""Width that a fragment gets for each doubling of its entries."""
GAP: Final = 3
PATTERNS: Final[Mapping[CellState, str]] = MappingProxyType(
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
    return NARROWEST + PER_DOUBLING * math.log2(1 + column.count)


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
        y = HEAD_HEIGHT + row * ROW_HEIGHT + ROW_HEIGHT / 2 + 2
        name = bookie_id[:LABEL_CHARACTERS]
        name += "…" if len(bookie_id) > LABEL_CHARACTERS else ""
        label = Markup('<text x="0" y="{:.1f}">{}<title>{}</title></text>')
        shapes.append(label.format(y, name, bookie_id))
    height = HEAD_HEIGHT + len(found.bookies) * ROW_HEIGHT + 4
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
    y = HEAD_HEIGHT + row * ROW_HEIGHT
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
        fill(PATTERNS[cell.state]),
        label,
    )
