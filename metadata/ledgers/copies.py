"""Copies of a ledger's entries: which bookies must hold which entries, and which copies are left.

Every other module asks here. Leaves how urgent a repair is to `quire.repair.needs`, and what a
better place is to `quire.repair.spread`. Pure. Sees metadata only: an acknowledged entry is on at
least AQ bookies of its write set, and may be on all WQ of them.

Invariants: an entry whose loss was accepted, or that is after the end, needs no copy. A fragment
whose end is not known may have entries in all its write sets. No result costs a step for each
entry, and only ranges that are yielded one by one cost a step for each turn of the ensemble.

Source: protocol rules 3.1, 3.2, 4.5, 7.3, 9.7, 9.9, 9.13 and 11.1.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from metadata.ids import BookieId, EntryId
from metadata.ledgers.entry_ranges import Range, entry_count, merged
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, QuorumSpec
from metadata.ledgers.lost_entries import LostRange, entries_left, next_range

FIRST_ENTRY_ID: Final = EntryId(0)
SHAPES_REMEMBERED: Final = 64
"""Maximum number of sizes of ensembles and write quorums whose write sets are remembered."""


# -- one write set (rules 3.1 and 3.2) -------------------------------------------------------------


def write_set_positions(quorum: QuorumSpec, entry_id: int) -> tuple[int, ...]:
    """Return the WQ positions (e div S + i) mod E that hold an entry, in order (rule 3.1)."""
    return _window(quorum.ensemble_size, quorum.write_quorum, entry_id // quorum.stripe_entries)


def _window(size: int, width: int, start: int) -> tuple[int, ...]:
    return tuple([(start + i) % size for i in range(width)])


@lru_cache(maxsize=SHAPES_REMEMBERED)
def windows(size: int, width: int) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the different write sets of an ensemble, by their first positions;
    only one if each member holds every entry.
    """
    return tuple([_window(size, width, start) for start in range(size if width < size else 1)])


def write_set(quorum: QuorumSpec, fragment: Fragment, entry_id: int) -> tuple[BookieId, ...]:
    """Return the bookies that hold an entry of a fragment."""
    return tuple([fragment.ensemble[p] for p in write_set_positions(quorum, entry_id)])


def stripe_end(quorum: QuorumSpec, entry_id: int) -> EntryId:
    """Return the last entry id of the stripe of `entry_id`, which has the same write set; no batch
    extends beyond it.
    """
    size = quorum.stripe_entries
    return EntryId((entry_id // size + 1) * size - 1)


def is_striped(quorum: QuorumSpec) -> bool:
    """Return whether members hold different entries, by stripes."""
    return quorum.write_quorum < quorum.ensemble_size


def most_out(quorum: QuorumSpec, is_out: Sequence[bool]) -> int:
    """Return how many positions are out in the write set that has the most of them. `is_out` says
    it for each position of the ensemble.
    """
    shape = windows(quorum.ensemble_size, quorum.write_quorum)
    return max(sum([is_out[position] for position in positions]) for positions in shape)


def covers(quorum: QuorumSpec, known_positions: Collection[int]) -> bool:
    """Return whether answers from `known_positions` cover a fragment (rule 3.2).

    Every window of WQ consecutive positions must contain fewer than AQ unknown ones: then no ack
    quorum can have formed among bookies that did not answer.
    """
    unknown = [position not in known_positions for position in range(quorum.ensemble_size)]
    return most_out(quorum, unknown) < quorum.ack_quorum


def negatives_needed(quorum: QuorumSpec) -> int:
    """Return how many explicit negatives prove that an entry was never acknowledged: WQ - AQ + 1
    (rule 7.3).
    """
    return quorum.write_quorum - quorum.ack_quorum + 1


# -- one fragment ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Holders:
    """Bookies that hold the entries of a fragment, whichever entries these are."""

    ensemble: tuple[BookieId, ...]
    empty_starts: tuple[int, ...] = ()
    """First positions of the write sets without an entry that needs copies."""

    def write_sets(self, quorum: QuorumSpec) -> list[tuple[BookieId, ...]]:
        """Return the different write sets that may have entries. The quorum may be that of the
        ledger: in in-sync mode each member holds every entry (11.1).
        """
        ensemble = self.ensemble
        if quorum.is_in_sync or quorum.write_quorum == len(ensemble):
            return [] if self.empty_starts else [ensemble]
        return [
            tuple([ensemble[position] for position in positions])
            for start, positions in enumerate(windows(len(ensemble), quorum.write_quorum))
            if start not in self.empty_starts
        ]


@dataclass(frozen=True, slots=True)
class FragmentCopies:
    """Consecutive entries of one fragment, and the bookies that must hold them."""

    first_entry_id: EntryId
    last_entry_id: EntryId | None
    """Below the first one if there is no entry; None if the end is not known."""
    ensemble: tuple[BookieId, ...]
    quorum: QuorumSpec
    """The fragment's quorum: in in-sync mode all its members."""
    wanted: int
    """Members that the ledger wants; an in-sync fragment may have fewer."""
    lost: tuple[LostRange, ...] = ()
    """Entries of the ledger whose loss was accepted."""

    @property
    def ranges(self) -> list[Range]:
        """The entries that need copies. The end is known."""
        assert self.last_entry_id is not None, "the end is known"
        return entries_left(self.lost, self.first_entry_id, self.last_entry_id)

    @property
    def entry_count(self) -> int:
        """Number of entries that need copies. The end is known."""
        return entry_count(self.ranges)

    @property
    def is_empty(self) -> bool:
        """Whether no entry needs copies."""
        return self.last_entry_id is not None and not self.ranges

    @property
    def lacking_members(self) -> int:
        """Number of members that entries of the fragment lack (rule 11.5)."""
        return 0 if self.is_empty else self.wanted - len(self.ensemble)

    @property
    def empty_starts(self) -> tuple[int, ...]:
        """First positions of the write sets without an entry that needs copies."""
        if self.last_entry_id is None:
            return ()
        left = self.ranges
        if not is_striped(self.quorum):
            return () if left else (0,)
        size = self.quorum.ensemble_size
        turn = size * self.quorum.stripe_entries
        if any(last - first >= turn - 1 for first, last in left):
            return ()
        return tuple([start for start in range(size) if not self._count_from(start, left)])

    @property
    def holders(self) -> Holders:
        """The members, and which of their write sets may have entries."""
        return Holders(self.ensemble, self.empty_starts)

    def ranges_at(self, position: int | None) -> Iterator[Range]:
        """Yield the entries that need a copy at a position, ascending; at any one, for None. The
        end is known. Stripes that follow each other are one range.
        """
        first, last, quorum = self.first_entry_id, self.last_entry_id, self.quorum
        assert last is not None, "the end is known"
        if position is None or not is_striped(quorum):
            yield from self.ranges
            return
        turn = quorum.ensemble_size * quorum.stripe_entries
        width = quorum.write_quorum * quorum.stripe_entries
        begin = (position + 1) * quorum.stripe_entries - width
        begin += max(0, -((begin + width - 1 - first) // turn)) * turn
        for low in range(begin, last + 1, turn):
            yield from entries_left(self.lost, max(low, first), min(low + width - 1, last))

    def count_at(self, position: int | None) -> int:
        """Return the number of entries that need a copy at a position; at any one, for None. The
        end is known.
        """
        if position is None or not is_striped(self.quorum):
            return self.entry_count
        left = self.ranges
        shape = windows(self.quorum.ensemble_size, self.quorum.write_quorum)
        return sum(
            self._count_from(start, left)
            for start, positions in enumerate(shape)
            if position in positions
        )

    def _count_from(self, start: int, ranges: Sequence[Range]) -> int:
        """Return the number of entries of ranges whose write set begins at a position."""
        size = self.quorum.stripe_entries
        turn = size * self.quorum.ensemble_size

        def below(entry_id: int) -> int:
            turns, rest = divmod(entry_id, turn)
            return turns * size + max(0, min(size, rest - start * size))

        return sum(below(last + 1) - below(first) for first, last in ranges)


# -- a ledger, or some of its entries --------------------------------------------------------------


def copies_of(
    ledger: LedgerMetadata, first: int = 0, last: int | None = None
) -> Iterator[FragmentCopies]:
    """Yield the fragments of a ledger from that of `first` on, with the entries `first` to `last`.
    A `last` that is given ends an open fragment there. The fragments after it are empty.
    """
    for index in range(ledger.fragment_index_of(EntryId(first)), len(ledger.fragments)):
        yield fragment_copies(ledger, index, first, last)


def fragment_copies(
    ledger: LedgerMetadata, index: int, first: int = 0, last: int | None = None
) -> FragmentCopies:
    """Return the entries `first` to `last` of one fragment."""
    fragment, end = ledger.fragments[index], ledger.last_entry_of(index)
    begin = fragment.first_entry_id
    if begin < first:
        begin = EntryId(first)
    if last is not None and (end is None or last < end):
        end = EntryId(last)
    return FragmentCopies(
        begin,
        end,
        fragment.ensemble,
        ledger.quorum_of(fragment),
        ledger.quorum.ensemble_size,
        ledger.lost,
    )


def holders_of_entry(ledger: LedgerMetadata, entry_id: int) -> tuple[BookieId, ...]:
    """Return the bookies that hold an entry, or would hold it."""
    fragment = ledger.fragment_of(EntryId(entry_id))
    return write_set(ledger.quorum_of(fragment), fragment, entry_id)


def last_alike(ledger: LedgerMetadata, first: EntryId, last: EntryId) -> EntryId:
    """Return the last entry up to `last` to which all entries from `first` on are held by the same
    bookies, and are all lost, or none is.
    """
    end = ledger.last_entry_of(ledger.fragment_index_of(first))
    if end is None or end > last:
        end = last
    if is_striped(ledger.quorum):
        end = min(end, stripe_end(ledger.quorum, first))
    lost = ledger.lost_range_of(first)
    if lost is not None:
        return min(end, lost.last_entry_id)
    following = next_range(ledger.lost, first)
    return end if following is None else min(end, EntryId(following.first_entry_id - 1))


def ranges_on(ledger: LedgerMetadata, bookie_id: BookieId) -> Iterator[Range]:
    """Yield the entries of a CLOSED ledger that a bookie must hold, ascending; none of another
    ledger. No range reaches over the end of a fragment. A bookie that is only marked as incoming
    need not hold anything.
    """
    if ledger.last_entry_id is None:
        return
    for copy in copies_of(ledger):
        if bookie_id in copy.ensemble:
            yield from copy.ranges_at(copy.ensemble.index(bookie_id))


def ranges_by_bookie(ledger: LedgerMetadata, last: int) -> dict[BookieId, list[Range]]:
    """Return the ranges that each member of a ledger must hold, up to the entry `last`."""
    held: dict[BookieId, list[Range]] = {}
    for copy in copies_of(ledger, last=last):
        for position, bookie_id in enumerate(copy.ensemble):
            held.setdefault(bookie_id, []).extend(copy.ranges_at(position))
    return {bookie_id: merged(ranges) for bookie_id, ranges in held.items()}


def copy_count(ledger: LedgerMetadata, last: int) -> int:
    """Return the number of copies that the entries up to `last` must have."""
    return sum(copy.entry_count * copy.quorum.write_quorum for copy in copies_of(ledger, last=last))


def bytes_on(ledger: LedgerMetadata, bookie_id: BookieId) -> int:
    """Return about how many bytes of a closed ledger a bookie must hold, as if all entries had one
    size; 0 for a ledger that is not closed.
    """
    last = ledger.last_entry_id
    if last is None or not ledger.length:
        return 0
    naming = (copy for copy in copies_of(ledger) if bookie_id in copy.ensemble)
    held = sum(copies.count_at(copies.ensemble.index(bookie_id)) for copies in naming)
    return round(ledger.length * held / (last + 1))


# -- copies that are left while some bookies are away ----------------------------------------------


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
    none. A bookie in limbo may have lost what it acknowledged.
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
    """Yield the write sets that may hold entries."""
    for copy in copies_of(ledger):
        for bookies in copy.holders.write_sets(copy.quorum):
            yield WriteSet(copy.first_entry_id, bookies, copy.quorum.ack_quorum)


def bookies_with_entries(ledger: LedgerMetadata) -> list[BookieId]:
    """Return the bookies that may have to hold entries of a ledger."""
    return list(dict.fromkeys(bookie for set_ in write_sets(ledger) for bookie in set_.bookies))


def fewest_copies(
    ledger: LedgerMetadata, up: Collection[BookieId], in_limbo: Collection[BookieId] = ()
) -> Copies | None:
    """Return the copies of the entries that have the fewest; None if the ledger has no entry."""
    return fewest_copies_of(write_sets(ledger), up, in_limbo)


def fewest_copies_of(
    sets: Iterable[WriteSet], up: Collection[BookieId], in_limbo: Collection[BookieId] = ()
) -> Copies | None:
    """Return the copies of the entries that have the fewest; None if there is no write set."""
    counted = [_copies(set_, up, in_limbo) for set_ in sets]
    return min(counted, key=lambda copies: (copies.certain, copies.possible), default=None)


def _copies(set_: WriteSet, up: Collection[BookieId], in_limbo: Collection[BookieId]) -> Copies:
    possible = sum(bookie in up for bookie in set_.bookies)
    uncertain = sum(bookie not in up or bookie in in_limbo for bookie in set_.bookies)
    certain = max(0, set_.ack_quorum - uncertain)
    return Copies(set_.first_entry_id, certain, possible, set_.ack_quorum)


def loss_of(copies: Copies) -> Loss | None:
    """Return what a ledger lacks; None if every entry has two copies and an ack quorum."""
    if copies.possible == 0:
        return Loss.UNREADABLE
    if copies.certain == 0:
        return Loss.MAY_BE_UNREADABLE
    if copies.possible < copies.ack_quorum:
        return Loss.SHORT_OF_ACK_QUORUM
    return Loss.ONE_COPY if copies.possible == 1 else None
