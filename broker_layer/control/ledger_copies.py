"""Entries of a closed ledger that have too few copies. Pure.

Leaves which bookies' copies do not count to `bookie_states.py`, and reading the metadata to
`ledger_health.py`.

Invariants: a ledger of a topic has all its entries on each member, because its ensemble is its
write quorum. A fragment without entries lacks nothing. Entries whose loss was accepted need no
copies.

Source: protocol rules 9.1, 9.9 and 11.2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.lost_entries import entries_left

TOO_FEW: Final = "it has fewer members than it wants"
NAMED_BY_REPAIR: Final = "repair has a job for it"


@dataclass(frozen=True, slots=True)
class FragmentCopies:
    """Copies of the entries of one fragment."""

    members: tuple[BookieId, ...]
    entry_count: int
    wanted: int
    """Number of members that it is to have."""


@dataclass(frozen=True, slots=True)
class LedgerCopies:
    """Copies of the entries of a closed ledger."""

    fragments: tuple[FragmentCopies, ...]
    size_bytes: int

    @property
    def members(self) -> tuple[BookieId, ...]:
        """All bookies that it names."""
        return tuple(dict.fromkeys(each for one in self.fragments for each in one.members))


@dataclass(frozen=True, slots=True)
class Shortage:
    """What one ledger lacks."""

    ledger_id: LedgerId
    why: str
    bookies: tuple[BookieId, ...] = ()
    """Bookies that it names and whose copies do not count."""
    entry_count: int = 0
    """Entries with fewer copies than they are to have; 0 if only a job of repair names it."""
    size_bytes: int = 0
    """Bytes of these entries, estimated from the length of the ledger."""


def copies_of(ledger: LedgerMetadata) -> LedgerCopies | None:
    """Return the copies of a ledger; None unless it is closed."""
    if ledger.last_entry_id is None or ledger.length is None:
        return None
    firsts = [
        *(each.first_entry_id for each in ledger.fragments),
        EntryId(ledger.last_entry_id + 1),
    ]
    fragments = tuple(
        FragmentCopies(
            members=fragment.ensemble,
            entry_count=sum(
                end - begin + 1 for begin, end in entries_left(ledger.lost, first, after - 1)
            ),
            wanted=ledger.quorum.ensemble_size,
        )
        for fragment, (first, after) in zip(ledger.fragments, pairwise(firsts), strict=True)
    )
    return LedgerCopies(fragments, ledger.length)


def shortage_of(
    ledger_id: LedgerId, copies: LedgerCopies, why_short: Callable[[BookieId], str]
) -> Shortage | None:
    """Return what a ledger lacks; None if every entry has all its copies."""
    bookies: dict[BookieId, str] = {}
    short_count = 0
    lacks_members = False
    for fragment in copies.fragments:
        if not fragment.entry_count:
            continue
        bad = {each: why for each in fragment.members if (why := why_short(each))}
        is_small = len(fragment.members) < fragment.wanted
        if bad or is_small:
            short_count += fragment.entry_count
        bookies |= bad
        lacks_members |= is_small
    if not short_count:
        return None
    reasons = [f"{bookie_id} {why}" for bookie_id, why in bookies.items()]
    reasons += [TOO_FEW] * lacks_members
    entry_count = sum(each.entry_count for each in copies.fragments)
    size_bytes = copies.size_bytes * short_count // entry_count
    return Shortage(ledger_id, "; ".join(reasons), tuple(bookies), short_count, size_bytes)
