"""Consecutive entries of a ledger with the same copies, by what bookies list.

Leaves asking bookies to `held_entries`, and what the copies mean for safety to `zones`.

Invariants: parts ascend and do not overlap; together they are all entries of the range asked for;
a bookie that did not answer is never taken for one that lacks an entry. A comparison of all copies
lets the event loop serve what else is due after PARTS_PER_SLICE parts.

Source: protocol rules 3.1 and 9.9.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, BookieId, EntryId
from metadata.ledgers.copies import (
    FragmentCopies,
    copies_of,
    holders_of_entry,
    is_striped,
    stripe_end,
)
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerMetadata

STRIPES_MAX: Final = 10_000
"""Maximum number of stripes of a striped ledger that are compared for one page: other pages wait
meanwhile.
"""


class Why(StrEnum):
    """Why a copy is not known to exist."""

    MISSING = "missing"
    DOWN = "bookie down"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Held:
    """Entries of a ledger that one bookie lists."""

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
    lists = [held[each].ranges for each in fragment.ensemble if each in held]
    ends = [ranges[-1][1] for ranges in lists if ranges]
    return max(confirmed, *(each for each in ends if each >= fragment.first_entry_id), NO_ENTRY)


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
        answers = [(each, held.get(each, NOT_ASKED).why_not(begin)) for each in assigned]
        yield Part(
            first=begin,
            last=following - 1,
            fragment_index=index,
            assigned=assigned,
            lacking=tuple((each, why) for each, why in answers if why is not None),
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
    return sorted(each for each in points if first <= each <= last + 1)


PARTS_PER_SLICE: Final = 250


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
    found = list[Part]()
    for part in parts(ledger, held, 0, compared_to, confirmed):
        found.append(part)
        if len(found) % PARTS_PER_SLICE == 0:
            await asyncio.sleep(0)
    return Compared(found, last, compared_to, confirmed)
