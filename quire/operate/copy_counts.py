"""Copies of a ledger's entries that remain while some bookies are down. Pure.

Leaves texts for operators to `assessment`, and reading the metadata to the commands. Sees metadata
only: an acknowledged entry is on at least AQ bookies of its write set, and may be on all WQ of
them.

Entries whose loss was accepted do not count. A bookie in limbo may have lost what it acknowledged.

Source: protocol rules 3.1, 4.5, 9.9, 9.13 and 11.1.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from quire.repair.needs import empty_starts

FIRST_ENTRY_ID: Final = EntryId(0)


@dataclass(frozen=True, slots=True, order=True)
class WriteSet:
    """A set of bookies that hold the same entries of a ledger."""

    first_entry_id: EntryId
    """First entry of the fragment."""
    bookies: tuple[BookieId, ...]
    ack_quorum: int

    @property
    def of_any_fragment(self) -> "WriteSet":
        """The same set, without where its entries begin and the order of its bookies."""
        return WriteSet(FIRST_ENTRY_ID, tuple(sorted(self.bookies)), self.ack_quorum)


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of those entries of a ledger that have the fewest."""

    first_entry_id: EntryId
    """First entry of the fragment that has these entries."""
    certain: int
    """Copies that are certain to be on bookies that are up: 0 if an acknowledged entry may have
    none.
    """
    possible: int
    """Bookies that are up and may have a copy: 0 if no entry can be read."""
    ack_quorum: int


class Loss(StrEnum):
    """Consequence for a ledger of bookies that are down, the worst first."""

    UNREADABLE = "unreadable"
    MAY_BE_UNREADABLE = "may be unreadable"
    SHORT_OF_ACK_QUORUM = "short of an ack quorum"
    ONE_COPY = "down to one copy"


def write_sets(ledger: LedgerMetadata) -> Iterator[WriteSet]:
    """Yield the write sets that may hold entries: all of an open fragment, none of an empty one,
    or of one whose entries are all lost.
    """
    ends = [each.first_entry_id - 1 for each in ledger.fragments[1:]]
    for fragment, end in zip(ledger.fragments, [*ends, ledger.last_entry_id], strict=True):
        quorum = ledger.quorum_of(fragment)
        empty = () if end is None else empty_starts(ledger, fragment, end)
        for start in _starts(quorum, fragment.first_entry_id, end):
            if start % quorum.ensemble_size in empty:
                continue
            positions = [(start + i) % quorum.ensemble_size for i in range(quorum.write_quorum)]
            bookies = tuple(fragment.ensemble[each] for each in positions)
            yield WriteSet(fragment.first_entry_id, bookies, quorum.ack_quorum)


def _starts(quorum: QuorumSpec, first: EntryId, last: int | None) -> range:
    """Return the first position of each write set of the entries `first` to `last`."""
    if quorum.write_quorum == quorum.ensemble_size:
        return range(1 if last is None or last >= first else 0)
    if last is None:
        return range(quorum.ensemble_size)
    begin = first // quorum.stripe_entries
    stripes = last // quorum.stripe_entries + 1 - begin if last >= first else 0
    return range(begin, begin + min(stripes, quorum.ensemble_size))


def fewest_copies(
    ledger: LedgerMetadata, up: Collection[BookieId], in_limbo: Collection[BookieId] = ()
) -> Copies | None:
    """Return the copies of the entries that have the fewest; None if the ledger has no entry."""
    return fewest_copies_of(write_sets(ledger), up, in_limbo)


def fewest_copies_of(
    sets: Iterable[WriteSet], up: Collection[BookieId], in_limbo: Collection[BookieId] = ()
) -> Copies | None:
    """Return the copies of the entries that have the fewest; None if there is no write set."""
    counted = [_copies(each, up, in_limbo) for each in sets]
    return min(counted, key=lambda each: (each.certain, each.possible), default=None)


def loss_of(copies: Copies) -> Loss | None:
    """Return what a ledger lacks; None if every entry has two copies and an ack quorum."""
    if copies.possible == 0:
        return Loss.UNREADABLE
    if copies.certain == 0:
        return Loss.MAY_BE_UNREADABLE
    if copies.possible < copies.ack_quorum:
        return Loss.SHORT_OF_ACK_QUORUM
    return Loss.ONE_COPY if copies.possible == 1 else None


def bookies_with_entries(ledger: LedgerMetadata) -> list[BookieId]:
    """Return the bookies that may hold entries of a ledger."""
    return list(dict.fromkeys(bookie for each in write_sets(ledger) for bookie in each.bookies))


def names_bookie(ledger: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether a ledger names a bookie anywhere, also as incoming or in what was given up."""
    return any(
        bookie_id in each.ensemble or bookie_id in each.incoming
        for each in (*ledger.fragments, *ledger.given_up)
    )


def bytes_on(ledger: LedgerMetadata, bookie_id: BookieId) -> int:
    """Return about how many bytes of a closed ledger a bookie holds, as if all entries had one
    size; 0 for a ledger that is not closed.
    """
    last = ledger.last_entry_id
    if last is None or not ledger.length:
        return 0
    ends = [*(each.first_entry_id for each in ledger.fragments[1:]), last + 1]
    held = 0.0
    for fragment, end in zip(ledger.fragments, ends, strict=True):
        if bookie_id in fragment.ensemble:
            quorum = ledger.quorum_of(fragment)
            share = quorum.write_quorum / quorum.ensemble_size
            held += max(0, min(end, last + 1) - fragment.first_entry_id) * share
    return round(ledger.length * held / (last + 1))


def _copies(
    write_set: WriteSet, up: Collection[BookieId], in_limbo: Collection[BookieId]
) -> Copies:
    possible = sum(bookie in up for bookie in write_set.bookies)
    uncertain = sum(bookie not in up or bookie in in_limbo for bookie in write_set.bookies)
    certain = max(0, write_set.ack_quorum - uncertain)
    return Copies(write_set.first_entry_id, certain, possible, write_set.ack_quorum)
