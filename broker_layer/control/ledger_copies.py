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
from typing import Final

from metadata.ids import BookieId, LedgerId
from metadata.ledgers.copies import FragmentCopies, copies_of
from metadata.ledgers.ledger_metadata import LedgerMetadata

TOO_FEW: Final = "it has fewer members than it wants"
NAMED_BY_REPAIR: Final = "repair has a job for it"


@dataclass(frozen=True, slots=True)
class LedgerCopies:
    """Copies of the entries of a closed ledger."""

    fragments: tuple[FragmentCopies, ...]
    size_bytes: int

    @property
    def members(self) -> tuple[BookieId, ...]:
        """All bookies that it names."""
        return tuple(dict.fromkeys(each for one in self.fragments for each in one.ensemble))


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


def ledger_copies(ledger: LedgerMetadata) -> LedgerCopies | None:
    """Return the copies of a ledger; None unless it is closed."""
    if ledger.last_entry_id is None or ledger.length is None:
        return None
    return LedgerCopies(tuple(copies_of(ledger)), ledger.length)


def shortage_of(
    ledger_id: LedgerId, copies: LedgerCopies, why_short: Callable[[BookieId], str]
) -> Shortage | None:
    """Return what a ledger lacks; None if every entry has all its copies."""
    bookies: dict[BookieId, str] = {}
    short_count = 0
    lacks_members = False
    for fragment in copies.fragments:
        if fragment.is_empty:
            continue
        bad = {each: why for each in fragment.ensemble if (why := why_short(each))}
        is_small = fragment.lacking_members > 0
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
