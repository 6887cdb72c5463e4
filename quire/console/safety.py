"""How safe the entries of a ledger are, by what its metadata assigns and its bookies list. Pure.

Source: protocol rules 1.4, 3.1, 4.5, 5.1, 9.1 and 9.9.
"""

import asyncio
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, BookieId, EntryId
from metadata.ledgers.copies import (
    FragmentCopies,
    copies_of,
    fragment_copies,
    holders_of_entry,
    is_striped,
    stripe_end,
)
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.console.entries import End

STRIPES_MAX: Final = 10_000
"""Maximum number of stripes of a striped ledger that are compared for one page: other pages wait
meanwhile.
"""
PARTS_PER_SLICE: Final = 250
FRAGMENTS_SHOWN: Final = 40
"""Maximum number of fragments in one drawing."""
ROWS_SHOWN_MAX: Final = 60
"""Maximum number of bookies in one drawing."""
ROWS_MAX: Final = 100
"""Maximum number of ranges in the table beside the strip; those that lack most are first."""
Key = list[tuple[Markup, str]]
"""Patterns of a drawing with what they mean."""
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
STRIP_WIDTH: Final = 1_000
STRIP_HEIGHT: Final = 42
BAR_HEIGHT: Final = 36
NARROWEST_RANGE: Final = 4.0
"""Minimum width of a range that is not safe, so that it is seen."""
DRAWN_MAX: Final = 400
LABEL_WIDTH: Final = 190
LABEL_CHARACTERS: Final = 24
MAP_ROW_HEIGHT: Final = 30
CELL_HEIGHT: Final = 26
MAP_HEAD_HEIGHT: Final = 24
NARROWEST_FRAGMENT: Final = 26
PER_DOUBLING: Final = 5.0
"""Width that a fragment gets for each doubling of its entries."""
GAP: Final = 3
ENTRIES_MAX: Final = 200
SQUARE: Final = 8
GRID_ROW_HEIGHT: Final = 22
GRID_HEAD_HEIGHT: Final = 20


class Why(StrEnum):
    """Why a copy is not known to exist."""

    MISSING = "missing"
    DOWN = "bookie down"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Held:
    """Entries of a ledger that one bookie lists.

    Parts ascend and do not overlap; together they are all entries of the range asked for; a bookie
    that did not answer is never taken for one that lacks an entry. A comparison of all copies lets
    the event loop serve what else is due after PARTS_PER_SLICE parts.
    """

    ranges: Sequence[Range] = ()
    """Ascending; neither touching nor overlapping."""
    through: int = NO_ENTRY
    """Last entry about which the list says something: -1 if there is no list, ENTRY_ID_MAX for a
    complete one.
    """
    problem: str = ""
    """Why there is no list; empty if there is one."""
    is_up: bool = True

    def why_not(self, entry_id: int) -> Why | None:
        """Return why a copy of an entry is not known to exist; None if it is in the list."""
        index = bisect_right(self.ranges, (entry_id, ENTRY_ID_MAX)) - 1
        if index >= 0 and self.ranges[index][1] >= entry_id:
            return None
        if not self.is_up:
            return Why.DOWN
        return Why.MISSING if entry_id <= self.through else Why.NOT_CHECKED

    def edges(self, first: int, last: int) -> Iterator[int]:
        """Yield the entries from `first` to `last` at which the answer may change, and some around
        them.
        """
        begin = max(0, bisect_left(self.ranges, (first + 1, NO_ENTRY)) - 1)
        if self.ranges and self.ranges[begin][0] <= first and self.ranges[begin][1] >= last:
            return  # it lists all of them
        yield self.through + 1
        for index in range(begin, len(self.ranges)):
            low, high = self.ranges[index]
            if low > last:
                return
            yield from (low, high + 1)


NOT_ASKED: Final = Held(problem="it was not asked")


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive entries of one fragment with the same copies."""

    first: int
    last: int
    fragment_index: int
    assigned: tuple[BookieId, ...]
    """Bookies of their write set."""
    lacking: tuple[tuple[BookieId, Why], ...]
    """Bookies of the write set that do not list them."""
    ack_quorum: int
    """Copies that acknowledge an entry; in in-sync mode the minimum of members."""
    is_confirmed: bool
    is_lost: bool
    """Whether an operator accepted their loss."""

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.last - self.first + 1

    @property
    def copies(self) -> int:
        """Number of copies that bookies list."""
        return len(self.assigned) - len(self.lacking)

    @property
    def unknown(self) -> int:
        """Number of copies that may exist on bookies without a list."""
        return sum(why is not Why.MISSING for _, why in self.lacking)


def last_compared(ledger: LedgerMetadata, last: int) -> int:
    """Return the last entry up to which copies are compared: with stripes, at most so many."""
    if not is_striped(ledger.quorum):
        return last
    return min(last, STRIPES_MAX * ledger.quorum.stripe_entries - 1)


def last_listed(ledger: LedgerMetadata, held: Mapping[BookieId, Held], confirmed: int) -> int:
    """Return the last entry to show: of an open ledger also those that bookies list beyond the
    confirmed ones.
    """
    if ledger.last_entry_id is not None:
        return ledger.last_entry_id
    fragment = ledger.last_fragment
    lists = [held[bookie].ranges for bookie in fragment.ensemble if bookie in held]
    ends = [ranges[-1][1] for ranges in lists if ranges]
    return max(confirmed, *(end for end in ends if end >= fragment.first_entry_id), NO_ENTRY)


def parts(
    ledger: LedgerMetadata,
    held: Mapping[BookieId, Held],
    first: int,
    last: int,
    confirmed: int,
) -> Iterator[Part]:
    """Yield the entries `first` to `last` in parts; those up to `confirmed` are confirmed."""
    begin = ledger.fragment_index_of(EntryId(max(first, 0)))
    for index, copies in enumerate(copies_of(ledger, max(first, 0), last), begin):
        yield from _parts_of(ledger, copies, index, held, confirmed)


def _parts_of(
    ledger: LedgerMetadata,
    copies: FragmentCopies,
    index: int,
    held: Mapping[BookieId, Held],
    confirmed: int,
) -> Iterator[Part]:
    quorum = copies.quorum
    cuts = _cuts(copies, held, confirmed)
    for begin, following in pairwise(cuts):
        assigned = holders_of_entry(ledger, begin)
        answers = [(bookie, held.get(bookie, NOT_ASKED).why_not(begin)) for bookie in assigned]
        yield Part(
            first=begin,
            last=following - 1,
            fragment_index=index,
            assigned=assigned,
            lacking=tuple((bookie, why) for bookie, why in answers if why is not None),
            ack_quorum=quorum.min_in_sync if quorum.is_in_sync else quorum.ack_quorum,
            is_confirmed=begin <= confirmed,
            is_lost=ledger.lost_range_of(begin) is not None,
        )


def _cuts(copies: FragmentCopies, held: Mapping[BookieId, Held], confirmed: int) -> list[int]:
    """Return the first entries of the parts of a fragment, ascending, and the entry after them."""
    first, last, quorum = copies.first_entry_id, copies.last_entry_id, copies.quorum
    assert last is not None, "the end is given"
    points = {first, confirmed + 1, last + 1}
    for low, high in copies.ranges:
        points |= {low, high + 1}
    for bookie_id in copies.ensemble:
        points.update(held.get(bookie_id, NOT_ASKED).edges(first, last))
    if is_striped(quorum):
        points.update(range(stripe_end(quorum, first) + 1, last + 1, quorum.stripe_entries))
    return sorted(point for point in points if first <= point <= last + 1)


@dataclass(frozen=True, slots=True)
class Compared:
    """Copies of a ledger's entries."""

    parts: Sequence[Part]
    """All entries up to `compared_to`."""
    last: int
    """Last entry of the ledger, also if it is not confirmed."""
    compared_to: int
    """Last entry whose copies were compared."""
    confirmed: int
    """Last confirmed entry."""


async def compare_copies(
    ledger: LedgerMetadata, held: Mapping[BookieId, Held], confirmed: int
) -> Compared:
    """Compare what the bookies of a ledger list, up to its last entry."""
    last = last_listed(ledger, held, confirmed)
    compared_to = last_compared(ledger, last)
    compared = list[Part]()
    for part in parts(ledger, held, 0, compared_to, confirmed):
        compared.append(part)
        if len(compared) % PARTS_PER_SLICE == 0:
            await asyncio.sleep(0)
    return Compared(compared, last, compared_to, confirmed)


class Zone(StrEnum):
    """How safe entries are."""

    FULL = "on all of the write quorum"
    ACK = "at the ack quorum only"
    SHORT = "below the ack quorum"
    UNKNOWN = "not known"
    UNCONFIRMED = "unconfirmed"
    LOST = "loss accepted"


NOT_SAFE: Final = (Zone.ACK, Zone.SHORT, Zone.UNKNOWN)
"""Zones of confirmed entries that lack copies."""


@dataclass(frozen=True, slots=True)
class ZoneRange:
    """Consecutive entries of one fragment with equally many copies."""

    first: int
    last: int
    fragment_index: int
    zone: Zone
    copies: int
    wanted: int
    lacking: tuple[tuple[BookieId, Why], ...]

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.last - self.first + 1

    def is_like(self, other: "ZoneRange") -> bool:
        """Return whether other entries differ only by their ids."""
        mine = (self.fragment_index, self.zone, self.copies, self.wanted, self.lacking)
        theirs = (other.fragment_index, other.zone, other.copies, other.wanted, other.lacking)
        return mine == theirs


def zone_of(part: Part) -> Zone:
    """Return how safe entries are."""
    if part.is_lost:
        return Zone.LOST
    if not part.is_confirmed:
        return Zone.UNCONFIRMED
    if not part.lacking:
        return Zone.FULL
    if part.copies >= part.ack_quorum:
        return Zone.ACK
    return Zone.SHORT if part.copies + part.unknown < part.ack_quorum else Zone.UNKNOWN


def zone_ranges(parts: Iterable[Part]) -> list[ZoneRange]:
    """Return the zones of parts; neighbours that are alike are joined."""
    joined: list[ZoneRange] = []
    for part in parts:
        range_ = ZoneRange(
            part.first,
            part.last,
            part.fragment_index,
            zone_of(part),
            part.copies,
            len(part.assigned),
            part.lacking,
        )
        if joined and joined[-1].is_like(range_):
            joined[-1] = replace(joined[-1], last=range_.last)
        else:
            joined.append(range_)
    return joined


def sentence(ranges: Sequence[ZoneRange], *, is_end_known: bool) -> str:
    """Return how many copies the confirmed entries of a ledger have."""
    said = _copies_text(ranges)
    return said if is_end_known else f"{said} Which later entries are confirmed is not known."


def _copies_text(ranges: Sequence[ZoneRange]) -> str:
    groups: dict[tuple[int, int, str], list[ZoneRange]] = {}
    for range_ in ranges:
        if range_.zone in NOT_SAFE:
            is_certain = all(why is Why.MISSING for _, why in range_.lacking)
            limit = "" if is_certain else " on the bookies that answered"
            groups.setdefault((range_.copies, range_.wanted, limit), []).append(range_)
    full = sum(range_.count for range_ in ranges if range_.zone is Zone.FULL)
    texts = [_group_text(*key, groups[key]) for key in sorted(groups)]
    if full:
        are = "is" if full == 1 else "are"
        others = f"{full:,} other entr{'y' if full == 1 else 'ies'}" if texts else _entries(full)
        texts.append(f"{others} {are} on all of the write quorum.")
    if texts:
        return " ".join(texts)
    return "No entry is known to be confirmed."


def reasons(ledger: LedgerMetadata, entries: ZoneRange, held: Mapping[BookieId, Held]) -> list[str]:
    """Return why copies are not known to exist, one text for each bookie."""
    return [_reason(ledger, entries, id_, why, held.get(id_)) for id_, why in entries.lacking]


def _reason(
    ledger: LedgerMetadata, entries: ZoneRange, bookie_id: BookieId, why: Why, held: Held | None
) -> str:
    if why is Why.DOWN:
        return f"{bookie_id} is down"
    if why is Why.NOT_CHECKED:
        problem = "" if held is None else held.problem
        return f"{bookie_id} was not checked" + (f": {problem}" if problem else "")
    following = ledger.fragments[entries.fragment_index + 1 : entries.fragment_index + 2]
    if following and bookie_id not in following[0].ensemble:
        return (
            f"{bookie_id} does not list them: it was replaced from entry "
            f"{following[0].first_entry_id:,} on, and never stored them, or lost them"
        )
    if entries.last == ledger.last_entry_id:
        return (
            f"{bookie_id} does not list them: the ledger was closed or recovered before it stored "
            "them, or it lost them"
        )
    return f"{bookie_id} does not list them: it never stored them, or lost them"


def _group_text(copies: int, wanted: int, limit: str, group: Sequence[ZoneRange]) -> str:
    count, number = sum(zone_range.count for zone_range in group), _joined_count(group)
    text = f"{number:,} entry range{'' if number == 1 else 's'} ({_entries(count)}) "
    text += "has" if number == 1 else "have"
    return f"{text} {copies} of {wanted} copies{limit}."


def _joined_count(group: Sequence[ZoneRange]) -> int:
    """Return the number of ranges, where those that touch are one."""
    starts = {zone_range.first for zone_range in group}
    return sum(zone_range.last + 1 not in starts for zone_range in group)


def _entries(count: int) -> str:
    return f"{count:,} entr{'y' if count == 1 else 'ies'}"


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
        first = f"{self.first:,}"
        return f"from {first}" if self.last is None else f"{first} to {self.last:,}"


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
    parts: Iterable[Part],
    held: Mapping[BookieId, Held],
    window: range,
    confirmed: int,
) -> FragmentMap:
    """Return the cells of some fragments, of parts that include all their confirmed entries."""
    cells: dict[tuple[BookieId, int], Cell] = {}
    for index in window:
        fragment = ledger.fragments[index]
        for bookie in (*fragment.ensemble, *fragment.incoming):
            is_up, is_incoming = held.get(bookie, NOT_ASKED).is_up, bookie in fragment.incoming
            cells[bookie, index] = Cell(bookie, index, is_up=is_up, is_incoming=is_incoming)
    for part in parts:
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


_WORST_FIRST: Final = (Zone.SHORT, Zone.UNKNOWN, Zone.ACK, Zone.LOST, Zone.UNCONFIRMED, Zone.FULL)


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


class Copy(StrEnum):
    """State of one copy of an entry."""

    LISTED = "listed"
    MISSING = "missing"
    DOWN = "bookie down"
    NOT_CHECKED = "not checked"
    NOT_ASSIGNED = "not assigned"
    LOST = "loss accepted"


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
    by_need = sorted(zones, key=lambda range_: _WORST_FIRST.index(range_.zone))
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
        rows=[_row(ledger, held, zone_range) for zone_range in by_need[:ROWS_MAX]],
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
    drawn = list(parts(ledger, held, first, last, confirmed))
    text = f"Copies of the entries {first:,} to {last:,} on {len(fragment.ensemble)} bookies."
    return GridView(
        column=column,
        bookies=fragment.ensemble,
        drawn=draw_entry_grid(fragment.ensemble, drawn, text),
        rows=[(part, [copy_of(part, bookie) for bookie in fragment.ensemble]) for part in drawn],
        key=key,
        earlier=max(column.first, first - ENTRIES_MAX) if first > column.first else None,
        later=last + 1 if last < column.last else None,
    )


def _row(ledger: LedgerMetadata, held: Mapping[BookieId, Held], entries: ZoneRange) -> ZoneRow:
    is_old = entries.fragment_index < len(ledger.fragments) - 1
    return ZoneRow(entries, reasons(ledger, entries, held), is_old)


def definitions() -> Markup:
    """Return the patterns as an invisible image."""
    patterns = Markup("").join(
        Markup(
            '<pattern id="pattern-{}" patternUnits="userSpaceOnUse" width="8" height="8" '
            'class="pattern {}"><rect width="8" height="8"></rect><path d="{}"></path></pattern>'
        ).format(name, name, lines)
        for name, lines in _LINES.items()
    )
    return Markup(
        '<svg width="0" height="0" aria-hidden="true" class="patterns"><defs>{}</defs></svg>'
    ).format(patterns)


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
    shown = sorted(ranges, key=lambda range_: _ZONE_ORDER.index(range_.zone))[-DRAWN_MAX:]
    scale = STRIP_WIDTH / (last + 1)
    shapes = Markup("").join(_shape(zone_range, scale) for zone_range in shown)
    end = (confirmed + 1) * scale
    mark = Markup("")
    if 0 <= confirmed < last:
        mark = Markup('<path class="mark" d="M{:.1f} 0V{}"></path>').format(end, BAR_HEIGHT + 4)
    return Markup(
        '<svg viewBox="0 0 {} {}" class="strip" role="img" aria-labelledby="strip-title strip-text"'
        ' preserveAspectRatio="none"><title id="strip-title">Safety of the entries</title>'
        '<desc id="strip-text">{}</desc>{}{}</svg>'
    ).format(STRIP_WIDTH, STRIP_HEIGHT, text, shapes, mark)


def _shape(range_: ZoneRange, scale: float) -> Markup:
    x, width = range_.first * scale, range_.count * scale
    if range_.zone is not Zone.FULL:
        width = max(width, NARROWEST_RANGE)
        x = min(x, STRIP_WIDTH - width)
    return Markup(
        '<rect x="{:.2f}" y="2" width="{:.2f}" height="{}" class="shape" {}>'
        "<title>{}</title></rect>"
    ).format(x, width, BAR_HEIGHT, fill(ZONE_PATTERNS[range_.zone]), _title(range_))


def _title(span: ZoneRange) -> str:
    entries = f"entry {span.first:,}" if span.count == 1 else f"{span.first:,} to {span.last:,}"
    return f"{entries}: {span.zone}, {span.copies} of {span.wanted} copies"


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


def draw_fragment_map(map_: FragmentMap, address: str, text: str) -> Markup:
    """Return the map; the link of a cell is `address` with the fragment's number."""
    x, shapes = float(LABEL_WIDTH), list[Markup]()
    for number, column in enumerate(map_.columns):
        width = width_of(column)
        head = Markup('<text x="{:.1f}" y="16" class="head">{}</text>')
        shapes.append(head.format(x, column.index))
        for row, bookie_id in enumerate(map_.bookies):
            cell = map_.cells.get((bookie_id, column.index))
            if cell is not None:
                shapes.append(_cell(cell, column, (row, number), (x, width), address))
        x += width + GAP
    for row, bookie_id in enumerate(map_.bookies):
        y = MAP_HEAD_HEIGHT + row * MAP_ROW_HEIGHT + MAP_ROW_HEIGHT / 2 + 2
        name = bookie_id[:LABEL_CHARACTERS]
        name += "…" if len(bookie_id) > LABEL_CHARACTERS else ""
        label = Markup('<text x="0" y="{:.1f}">{}<title>{}</title></text>')
        shapes.append(label.format(y, name, bookie_id))
    height = MAP_HEAD_HEIGHT + len(map_.bookies) * MAP_ROW_HEIGHT + 4
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


def draw_entry_grid(bookies: Sequence[BookieId], parts: Sequence[Part], text: str) -> Markup:
    """Return the grid of parts that have at most ENTRIES_MAX entries together."""
    first = parts[0].first
    assert parts[-1].last - first < ENTRIES_MAX, "the entries fit"
    shapes = list[Markup]()
    for row, bookie_id in enumerate(bookies):
        y = GRID_HEAD_HEIGHT + row * GRID_ROW_HEIGHT
        name = bookie_id[:LABEL_CHARACTERS]
        shapes.append(Markup('<text x="0" y="{}">{}</text>').format(y + 14, name))
        for part in parts:
            state = copy_of(part, bookie_id)
            if state is not Copy.NOT_ASSIGNED:
                shapes.append(_squares(part, first, y, state))
    label = Markup('<text x="{}" y="12" text-anchor="{}">{}</text>')
    width = LABEL_WIDTH + (parts[-1].last - first + 1) * SQUARE
    shapes.append(label.format(LABEL_WIDTH, "start", f"{first:,}"))
    if parts[-1].last > first + ENTRIES_MAX // 10:
        shapes.append(label.format(width, "end", f"{parts[-1].last:,}"))
    height = GRID_HEAD_HEIGHT + len(bookies) * GRID_ROW_HEIGHT
    return Markup(
        '<svg width="{}" height="{}" viewBox="0 0 {} {}" class="map" role="img" '
        'aria-labelledby="grid-title grid-text"><title id="grid-title">Entries of the fragment'
        '</title><desc id="grid-text">{}</desc>{}</svg>'
    ).format(width, height, width, height, text, Markup("").join(shapes))


def _squares(part: Part, first: int, y: int, state: Copy) -> Markup:
    square = Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" class="shape" {}><title>{:,}: {}</title></rect>'
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
