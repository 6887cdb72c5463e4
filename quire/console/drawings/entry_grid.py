"""Single entries of one fragment and the bookies that hold them, as a grid. Pure.

Leaves counting copies to `quire.console.ledger.parts`, and the table with the same content to the
page.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from metadata.ids import BookieId
from quire.console.drawings.patterns import fill
from quire.console.ledger.parts import Part, Why

ENTRIES_MAX: Final = 200
CELL: Final = 8
ROW_HEIGHT: Final = 22
LABEL_WIDTH: Final = 190
LABEL_CHARACTERS: Final = 24
HEAD_HEIGHT: Final = 20


class Copy(StrEnum):
    """State of one copy of an entry."""

    LISTED = "listed"
    MISSING = "missing"
    DOWN = "bookie down"
    NOT_CHECKED = "not checked"
    NOT_ASSIGNED = "not assigned"
    LOST = "loss accepted"


PATTERNS: Final[Mapping[Copy, str]] = MappingProxyType(
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
        y = HEAD_HEIGHT + row * ROW_HEIGHT
        name = bookie_id[:LABEL_CHARACTERS]
        shapes.append(Markup('<text x="0" y="{}">{}</text>').format(y + 14, name))
        for part in found:
            state = copy_of(part, bookie_id)
            if state is not Copy.NOT_ASSIGNED:
                shapes.append(_squares(part, first, y, state))
    label = Markup('<text x="{}" y="12" text-anchor="{}">{}</text>')
    width = LABEL_WIDTH + (found[-1].last - first + 1) * CELL
    shapes.append(label.format(LABEL_WIDTH, "start", first))
    if found[-1].last > first + ENTRIES_MAX // 10:
        shapes.append(label.format(width, "end", found[-1].last))
    height = HEAD_HEIGHT + len(bookies) * ROW_HEIGHT
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
            LABEL_WIDTH + (entry_id - first) * CELL,
            y,
            CELL - 1,
            ROW_HEIGHT - 4,
            fill(PATTERNS[state]),
            entry_id,
            state,
        )
        for entry_id in range(part.first, part.last + 1)
    )
