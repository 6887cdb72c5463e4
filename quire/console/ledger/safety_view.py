"""Drawings and tables about the copies of a ledger, with the texts beside them. Pure.

Leaves counting to `parts`, `zones` and `fragment_cells`, and the HTML to the template.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from metadata.ids import NO_ENTRY, BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.console.drawings import (
    CELL_PATTERNS,
    COPY_PATTERNS,
    ENTRIES_MAX,
    ZONE_PATTERNS,
    Copy,
    copy_of,
    definitions,
    draw_entry_grid,
    draw_fragment_map,
    safety_strip,
    swatch,
)
from quire.console.ledger.entry_reading import End
from quire.console.ledger.fragment_cells import (
    FRAGMENTS_SHOWN,
    Column,
    FragmentMap,
    column_of,
    map_of,
    window_of,
)
from quire.console.ledger.parts import Compared, Held, Part, last_listed, parts
from quire.console.ledger.zones import Zone, ZoneRange, reasons, sentence, zone_ranges

ROWS_MAX: Final = 100
"""Maximum number of ranges in the table beside the strip; those that lack most are first."""
_WORST_FIRST: Final = (Zone.SHORT, Zone.UNKNOWN, Zone.ACK, Zone.LOST, Zone.UNCONFIRMED, Zone.FULL)

Key = list[tuple[Markup, str]]
"""Patterns of a drawing with what they mean."""


@dataclass(frozen=True, slots=True)
class ZoneRow:
    """One range in the table beside the strip."""

    entries: ZoneRange
    reasons: list[str]
    is_old: bool
    """Whether it is in a fragment before the last one: no writer completes it."""


@dataclass(frozen=True, slots=True)
class SafetyView:
    """Copies of all entries of a ledger."""

    sentence: str
    patterns: Markup
    strip: Markup | None
    """None if there is no entry."""
    last: int
    """Last entry of the strip."""
    compared_to: int
    """Last entry whose copies were compared."""
    rows: list[ZoneRow]
    rows_left_out: int
    strip_key: Key
    map: FragmentMap
    drawn_map: Markup
    map_key: Key
    earlier: int | None
    """First fragment of the map before this one."""
    later: int | None


@dataclass(frozen=True, slots=True)
class GridView:
    """Single entries of one fragment."""

    column: Column
    bookies: tuple[BookieId, ...]
    drawn: Markup | None
    """None if no entry is shown."""
    rows: list[tuple[Part, list[Copy]]]
    key: Key
    earlier: int | None
    """First entry of the grid before this one."""
    later: int | None


def safety_view(
    ledger: LedgerMetadata,
    held: Mapping[BookieId, Held],
    end: End,
    compared: Compared,
    first_fragment: int | None,
    address: str,
) -> SafetyView:
    """Return the strip and the map of a ledger; the links of the map begin with `address`."""
    confirmed, compared_to = compared.confirmed, compared.compared_to
    zones, window = zone_ranges(compared.parts), window_of(ledger, first_fragment)
    cells = map_of(ledger, compared.parts, held, window, min(confirmed, compared_to))
    said = sentence(zones, is_end_known=not end.problem)
    by_need = sorted(zones, key=lambda each: _WORST_FIRST.index(each.zone))
    drawn_map = draw_fragment_map(
        cells, f"{address}?fragments={window.start}&fragment=", "Each cell opens its fragment."
    )
    strip = None
    if compared.last > NO_ENTRY:
        strip = safety_strip(zones, compared.last, confirmed, said)
    return SafetyView(
        sentence=said,
        patterns=definitions(),
        strip=strip,
        last=compared.last,
        compared_to=compared_to,
        rows=[_row(ledger, held, each) for each in by_need[:ROWS_MAX]],
        rows_left_out=max(0, len(zones) - ROWS_MAX),
        strip_key=[(swatch(name), str(zone)) for zone, name in ZONE_PATTERNS.items()],
        map=cells,
        drawn_map=drawn_map,
        map_key=[(swatch(name), str(state)) for state, name in CELL_PATTERNS.items()],
        earlier=max(0, window.start - FRAGMENTS_SHOWN) if window.start else None,
        later=window.stop if window.stop < len(ledger.fragments) else None,
    )


def grid_view(
    ledger: LedgerMetadata,
    held: Mapping[BookieId, Held],
    confirmed: int,
    fragment_index: int,
    at: int,
) -> GridView:
    """Return the grid of at most ENTRIES_MAX entries of a fragment, from entry `at` on."""
    fragment = ledger.fragments[fragment_index]
    column = column_of(ledger, fragment_index, last_listed(ledger, held, confirmed))
    key = [(swatch(name), str(state)) for state, name in COPY_PATTERNS.items()]
    if column.last is None:
        return GridView(column, fragment.ensemble, None, [], key, None, None)
    first = max(column.first, min(at, column.last))
    last = min(column.last, first + ENTRIES_MAX - 1)
    found = list(parts(ledger, held, first, last, confirmed))
    text = f"Copies of the entries {first} to {last} on {len(fragment.ensemble)} bookies."
    return GridView(
        column=column,
        bookies=fragment.ensemble,
        drawn=draw_entry_grid(fragment.ensemble, found, text),
        rows=[(part, [copy_of(part, each) for each in fragment.ensemble]) for part in found],
        key=key,
        earlier=max(column.first, first - ENTRIES_MAX) if first > column.first else None,
        later=last + 1 if last < column.last else None,
    )


def _row(ledger: LedgerMetadata, held: Mapping[BookieId, Held], entries: ZoneRange) -> ZoneRow:
    is_old = entries.fragment_index < len(ledger.fragments) - 1
    return ZoneRow(entries, reasons(ledger, entries, held), is_old)
