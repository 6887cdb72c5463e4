"""Each bookie in each fragment of a ledger: what the metadata assigns, and what the bookie lists.

Leaves counting copies to `parts`, and drawing to `quire.console.drawings`. Pure.

Source: protocol rules 1.4, 3.1, 9.1 and 9.9.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from metadata.ids import BookieId
from metadata.ledgers.copies import fragment_copies
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.console.ledger.parts import NOT_ASKED, Held, Part, Why

FRAGMENTS_SHOWN: Final = 40
"""Maximum number of fragments in one drawing."""
ROWS_SHOWN_MAX: Final = 60
"""Maximum number of bookies in one drawing."""


class CellState(StrEnum):
    """State of one bookie's copies of one fragment."""

    VERIFIED = "verified"
    """The bookie lists every confirmed entry that the fragment assigns to it."""
    MISSING = "missing"
    """Its list lacks some of them."""
    DOWN = "bookie down"
    NOT_CHECKED = "not checked"
    ASSIGNED = "assigned"
    """The fragment has no confirmed entry yet, or none that needs a copy."""
    INCOMING = "incoming"
    """A repair copies entries to it."""


@dataclass(slots=True)
class Cell:
    """One bookie in one fragment. Only confirmed entries whose loss was not accepted count."""

    bookie_id: BookieId
    fragment_index: int
    assigned: int = 0
    missing: int = 0
    unknown: int = 0
    is_up: bool = True
    is_incoming: bool = False

    @property
    def state(self) -> CellState:
        """State of its copies."""
        if self.is_incoming:
            return CellState.INCOMING
        if not self.is_up:
            return CellState.DOWN
        if self.missing:
            return CellState.MISSING
        if self.unknown:
            return CellState.NOT_CHECKED
        return CellState.VERIFIED if self.assigned else CellState.ASSIGNED

    @property
    def text(self) -> str:
        """The state with its numbers."""
        match self.state:
            case CellState.MISSING:
                return f"missing {self.missing:,} of {self.assigned:,}"
            case CellState.VERIFIED | CellState.DOWN | CellState.NOT_CHECKED if self.assigned:
                return f"{self.state}, {self.assigned:,} assigned"
            case state:
                return str(state)


@dataclass(frozen=True, slots=True)
class Column:
    """One fragment."""

    index: int
    first: int
    last: int | None
    """Last confirmed entry; None if it has none."""

    @property
    def count(self) -> int:
        """Number of confirmed entries."""
        return 0 if self.last is None else self.last - self.first + 1

    @property
    def text(self) -> str:
        """Its entries."""
        return f"from {self.first}" if self.last is None else f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class FragmentMap:
    """Some fragments of a ledger, with all bookies that they name."""

    columns: tuple[Column, ...]
    bookies: tuple[BookieId, ...]
    """In the order in which the fragments first name them."""
    cells: Mapping[tuple[BookieId, int], Cell]
    left_out: int = 0
    """Bookies that do not fit."""


def window_of(ledger: LedgerMetadata, start: int | None) -> range:
    """Return the indexes of the fragments to show: from `start` on, or the newest ones."""
    count = len(ledger.fragments)
    begin = count - FRAGMENTS_SHOWN if start is None else start
    begin = max(0, min(begin, count - 1))
    return range(begin, min(count, begin + FRAGMENTS_SHOWN))


def map_of(
    ledger: LedgerMetadata,
    found: Iterable[Part],
    held: Mapping[BookieId, Held],
    window: range,
    confirmed: int,
) -> FragmentMap:
    """Return the cells of some fragments, of parts that include all their confirmed entries."""
    cells: dict[tuple[BookieId, int], Cell] = {}
    for index in window:
        fragment = ledger.fragments[index]
        for each in (*fragment.ensemble, *fragment.incoming):
            is_up, is_incoming = held.get(each, NOT_ASKED).is_up, each in fragment.incoming
            cells[each, index] = Cell(each, index, is_up=is_up, is_incoming=is_incoming)
    for part in found:
        if part.fragment_index in window and part.is_confirmed and not part.is_lost:
            _count(cells, part)
    rows = tuple(dict.fromkeys(bookie_id for bookie_id, _ in cells))
    columns = tuple(column_of(ledger, index, confirmed) for index in window)
    left_out = max(0, len(rows) - ROWS_SHOWN_MAX)
    return FragmentMap(columns, rows[:ROWS_SHOWN_MAX], cells, left_out)


def _count(cells: Mapping[tuple[BookieId, int], Cell], part: Part) -> None:
    for bookie_id in part.assigned:
        cells[bookie_id, part.fragment_index].assigned += part.count
    for bookie_id, why in part.lacking:
        cell = cells[bookie_id, part.fragment_index]
        if why is Why.MISSING:
            cell.missing += part.count
        else:
            cell.unknown += part.count


def column_of(ledger: LedgerMetadata, index: int, confirmed: int) -> Column:
    """Return one fragment with its entries up to `confirmed`."""
    entries = fragment_copies(ledger, index, last=confirmed)
    first, last = entries.first_entry_id, entries.last_entry_id
    return Column(index, first, None if last is None or last < first else last)
