"""All ledgers of a cluster, by what repair needs to know of them, in little memory.

Invariants: a ledger costs 20 bytes, and each different combination of ensembles is stored once,
whatever the order of bookies that all hold every entry; those that no ledger has any more are
dropped after each pass. Ledgers are in the order of their ids. Changing one ledger moves the later
ones, which is cheap while most changes are at the end.

Source: protocol rules 9.1 and 9.17.
"""

import heapq
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from types import MappingProxyType
from typing import Final

from metadata.ids import BookieId, LedgerId
from metadata.ledgers.copies import Holders
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState, QuorumSpec
from quire.repair.bad_entries import NO_MISSING_RANGES, MissingRanges
from quire.repair.needs import (
    RepairClass,
    class_of_fragment,
    class_with_absent,
    class_without_copies,
    holders_of,
    lost_members,
)
from quire.repair.spread import NO_PLACES, Places, misplaced_member
from quire.repair.standing import Standing, Standings

BadCopies = Mapping[LedgerId, Collection[BookieId]]
"""Bookies whose copies of a ledger do not count, by ledger."""

NO_BAD_COPIES: Final[BadCopies] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Shape:
    """What repair needs to know of a ledger, besides its id and length."""

    quorum: QuorumSpec
    closed: tuple[Holders, ...]
    """The different holders of its closed fragments."""
    open_ensemble: tuple[BookieId, ...]
    """Ensemble of its open fragment; empty if the ledger is CLOSED."""
    incoming: tuple[BookieId, ...]
    """Bookies that it names as targets of copies."""
    others: tuple[BookieId, ...]
    """Bookies of other fragments: of those that an unclean recovery gave up, and of those of an
    open in-sync ledger that only its writer copies.
    """
    lost: int = 0
    """Number of entries whose loss was accepted."""

    @property
    def named(self) -> frozenset[BookieId]:
        """All bookies that the ledger names."""
        closed = (holders.ensemble for holders in self.closed)
        return frozenset(chain(self.open_ensemble, self.incoming, self.others, *closed))


@dataclass(frozen=True, order=True, slots=True)
class RankedLedger:
    """A ledger that needs repair; the order is the priority."""

    repair_class: RepairClass
    byte_count: int
    """Bytes to copy, estimated."""
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ClassTotal:
    """All ledgers of one class."""

    ledgers: int
    byte_count: int


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Ledgers that need repair."""

    first: tuple[RankedLedger, ...]
    """Those with the highest priority."""
    totals: dict[RepairClass, ClassTotal]
    open_ledgers: tuple[LedgerId, ...]
    """Ledgers whose open fragment names a bookie that is gone or drains."""
    damaged: BadCopies = field(default_factory=dict)
    """Bookies with damaged entries."""
    missing: MissingRanges = field(default_factory=dict)
    """Missing entries of bookies."""


@dataclass(frozen=True, slots=True)
class _Assessment:
    repair_class: RepairClass | None
    share: float
    """Share of the ledger's bytes that must be copied, estimated."""
    is_open_affected: bool
    lost_share: float = 0.0
    """Share of the bytes without a copy, at most, if other entries need a repair."""

    @property
    def is_affected(self) -> bool:
        """Whether a ledger of this shape needs something."""
        return self.repair_class is not None or self.is_open_affected


class LedgerIndex:
    """The ledgers, with their shapes and lengths."""

    def __init__(self, on_closed: Callable[[LedgerId], None] = lambda _: None) -> None:
        """Create an empty index. `on_closed` is called for each ledger that is put as CLOSED, and
        was unknown or not CLOSED before.
        """
        self._on_closed = on_closed
        self._ids = array("Q")
        self._lengths = array("Q")
        self._shape_of = array("I")
        self._shapes: list[Shape] = []
        self._numbers: dict[Shape, int] = {}
        self._named: set[BookieId] = set()
        self._places = NO_PLACES
        self._misplaced: list[float] = []
        """By shape: the share of its fragments that these places show to be misplaced."""

    def __len__(self) -> int:
        return len(self._ids)

    def put(self, ledger: LedgerMetadata) -> bool:
        """Add a ledger, or replace what is known of it; return whether what was known changed."""
        number = self._number_of(shape_of(ledger))
        length, index = ledger.length or 0, self._index_of(ledger.ledger_id)
        is_known = self._is_at(index, ledger.ledger_id)
        was_closed = is_known and not self._is_open_at(index)
        has_changed = is_known and self._shape_of[index] != number
        if is_known:
            self._lengths[index], self._shape_of[index] = length, number
        else:
            self._ids.insert(index, ledger.ledger_id)
            self._lengths.insert(index, length)
            self._shape_of.insert(index, number)
        if not was_closed and not self._is_open_at(index):
            self._on_closed(ledger.ledger_id)
        return has_changed

    def drop(self, ledger_id: LedgerId) -> None:
        """Remove a ledger that was deleted."""
        index = self._index_of(ledger_id)
        if self._is_at(index, ledger_id):
            del self._ids[index], self._lengths[index], self._shape_of[index]

    def drop_unused_shapes(self) -> None:
        """Remove the shapes that no ledger has any more, once they are more than the others."""
        used = sorted(set(self._shape_of))
        if 2 * len(used) >= len(self._shapes):
            return
        numbers = {old: new for new, old in enumerate(used)}
        self._shape_of = array("I", map(numbers.__getitem__, self._shape_of))
        self._shapes = [self._shapes[old] for old in used]
        self._numbers = {shape: number for number, shape in enumerate(self._shapes)}
        self._misplaced = []

    @property
    def shape_count(self) -> int:
        """Number of different shapes that are stored."""
        return len(self._shapes)

    def known_between(self, first: LedgerId, last: LedgerId | None) -> list[LedgerId]:
        """Return the known ids from `first` to `last`, or to the end."""
        end = None if last is None else self._index_of(LedgerId(last + 1))
        return [LedgerId(id_) for id_ in self._ids[self._index_of(first) : end]]

    def closed_below(self, ledger_id: int) -> LedgerId | None:
        """Return the CLOSED ledger with the highest id below another; None if there is none."""
        index = bisect_left(self._ids, ledger_id) - 1
        while index >= 0 and self._is_open_at(index):
            index -= 1
        return LedgerId(self._ids[index]) if index >= 0 else None

    def open_ledgers(self) -> Iterator[LedgerId]:
        """Yield the ledgers that were not CLOSED when they were read."""
        is_open = [bool(shape.open_ensemble) for shape in self._shapes]
        for ledger_id, number in zip(self._ids, self._shape_of, strict=True):
            if is_open[number]:
                yield LedgerId(ledger_id)

    def count_naming(self, bookie_id: BookieId) -> int:
        """Return the number of ledgers that name a bookie."""
        naming = {n for n, shape in enumerate(self._shapes) if bookie_id in shape.named}
        return sum(number in naming for number in self._shape_of) if naming else 0

    @property
    def named(self) -> frozenset[BookieId]:
        """Bookies that a ledger names, or has named since this index was created."""
        return frozenset(self._named)

    def plan(
        self,
        standings: Standings,
        absent: Collection[BookieId],
        limit: int,
        damaged: BadCopies = NO_BAD_COPIES,
        missing: MissingRanges = NO_MISSING_RANGES,
        places: Places = NO_PLACES,
        set_aside: Container[LedgerId] = (),
    ) -> RepairPlan:
        """Rank the ledgers that need repair. `absent` bookies count as gone only for ledgers that
        would otherwise have one good copy left, or none. The copies of a ledger on bookies where it
        is damaged, or entries are missing, do not count. Copies that are all good are moved to a
        better one of the `places`. Ledgers that are `set_aside` only count in the totals.
        """
        bad_copies: dict[LedgerId, tuple[BookieId, ...]] = {
            id_: (*damaged.get(id_, ()), *missing.get(id_, ())) for id_ in (*damaged, *missing)
        }
        urgent = standings.with_gone(absent)
        assessed = [
            _assess(shape, standings, urgent if absent else None, misplaced)
            for shape, misplaced in zip(self._shapes, self._misplaced_in(places), strict=True)
        ]
        open_ledgers: list[LedgerId] = []
        counts, sizes = Counter[RepairClass](), Counter[RepairClass]()

        def ranked() -> Iterator[tuple[RepairClass, int, int]]:
            for ledger_id, length, number in self._rows_of(assessed, bad_copies):
                result = assessed[number]
                bad = bad_copies.get(LedgerId(ledger_id))
                if bad is not None:
                    result = _without_copies(result, self._shapes[number], standings, bad)
                is_ranked = LedgerId(ledger_id) not in set_aside
                if result.is_open_affected and is_ranked:
                    open_ledgers.append(LedgerId(ledger_id))
                if result.repair_class is not None:
                    byte_count = int(length * result.share)
                    counts[result.repair_class] += 1
                    sizes[result.repair_class] += byte_count
                    if result.lost_share:
                        counts[RepairClass.LOST] += 1
                        sizes[RepairClass.LOST] += int(length * result.lost_share)
                    if is_ranked:
                        yield result.repair_class, byte_count, ledger_id

        first = heapq.nsmallest(limit, ranked())  # a list of all would need much memory
        return RepairPlan(
            tuple(RankedLedger(urgency, size, LedgerId(id_)) for urgency, size, id_ in first),
            {count: ClassTotal(counts[count], sizes[count]) for count in sorted(counts)},
            tuple(open_ledgers),
            damaged,
            missing,
        )

    def _misplaced_in(self, places: Places) -> list[float]:
        """Return which share of the fragments of each shape can be moved to a better place."""
        if places != self._places:
            self._places, self._misplaced = places, []
        for shape in self._shapes[len(self._misplaced) :]:
            self._misplaced.append(_misplaced_share(shape, places))
        return self._misplaced

    def _rows_of(
        self, assessed: Sequence[_Assessment], bad_copies: Collection[LedgerId]
    ) -> Iterator[tuple[int, int, int]]:
        """Yield id, length and shape number of the ledgers that need something. The others are
        skipped without a step of Python for each.
        """
        is_affected = bytearray(assessment.is_affected for assessment in assessed)
        rows = zip(self._ids, self._lengths, self._shape_of, strict=True)
        if any(is_affected):
            yield from compress(rows, map(is_affected.__getitem__, self._shape_of))
        for ledger_id in sorted(bad_copies):
            index = self._index_of(ledger_id)
            if self._is_at(index, ledger_id) and not is_affected[self._shape_of[index]]:
                yield ledger_id, self._lengths[index], self._shape_of[index]

    def _index_of(self, ledger_id: LedgerId) -> int:
        return bisect_left(self._ids, ledger_id)

    def _is_at(self, index: int, ledger_id: LedgerId) -> bool:
        return index < len(self._ids) and self._ids[index] == ledger_id

    def _is_open_at(self, index: int) -> bool:
        return bool(self._shapes[self._shape_of[index]].open_ensemble)

    def _number_of(self, shape: Shape) -> int:
        number = self._numbers.get(shape)
        if number is None:
            number = self._numbers[shape] = len(self._shapes)
            self._shapes.append(shape)
            self._named |= shape.named
        return number


def shape_of(ledger: LedgerMetadata) -> Shape:
    """Return the shape of a ledger."""
    is_closed = ledger.state is LedgerState.CLOSED
    incoming = [bookie for fragment in ledger.fragments for bookie in fragment.incoming]
    closed = holders_of(ledger)
    left_out = (*ledger.given_up, *(() if closed else ledger.fragments[:-1]))
    others = [bookie for fragment in left_out for bookie in fragment.ensemble]
    return Shape(
        ledger.quorum,
        closed,
        () if is_closed else tuple(sorted(ledger.last_fragment.ensemble)),
        tuple(sorted(dict.fromkeys(incoming))),
        tuple(sorted(dict.fromkeys(others))),
        sum(lost_range.last_entry_id - lost_range.first_entry_id + 1 for lost_range in ledger.lost),
    )


def _without_copies(
    result: _Assessment, shape: Shape, standings: Standings, bad: Collection[BookieId]
) -> _Assessment:
    """Return the assessment of a ledger of which the copies on the `bad` bookies do not count."""
    without = class_without_copies(shape.closed, shape.quorum, standings, bad)
    classes = [rank for rank in (result.repair_class, without) if rank is not None]
    return replace(result, repair_class=min(classes, default=None))


def _misplaced_share(shape: Shape, places: Places) -> float:
    misplaced = sum(
        misplaced_member(holders, shape.quorum, places) is not None for holders in shape.closed
    )
    return misplaced / len(shape.closed) if misplaced else 0.0


def _assess(
    shape: Shape, standings: Standings, urgent: Standings | None, misplaced: float
) -> _Assessment:
    repair_class, used = class_with_absent(shape.closed, shape.quorum, standings, urgent)
    is_marked = any(standings.of(id_) is not Standing.GOOD for id_ in shape.incoming)
    is_open_affected = any(standings.of(id_) is not Standing.GOOD for id_ in shape.open_ensemble)
    is_left = not is_open_affected and not (shape.open_ensemble and shape.quorum.is_in_sync)
    if repair_class is None and is_marked and is_left:
        repair_class = RepairClass.DRAINING  # a mark that a worker left is removed
    bad = sum(
        any(used.of(bookie) is not Standing.GOOD for bookie in holders.ensemble)
        for holders in shape.closed
    )
    share, lost_share = bad / len(shape.closed) if shape.closed else 0.0, 0.0
    if repair_class is not None and repair_class is not RepairClass.LOST:
        share -= sum(
            class_of_fragment(held, shape.quorum, used) is RepairClass.LOST for held in shape.closed
        ) / len(shape.closed)
        lost_share = _lost_share(shape, standings)
    if repair_class is None and misplaced:
        repair_class, share = RepairClass.MISPLACED, misplaced
    return _Assessment(repair_class, share, is_open_affected, lost_share)


def _lost_share(shape: Shape, standings: Standings) -> float:
    lost = sum(bool(lost_members(holders, shape.quorum, standings)) for holders in shape.closed)
    return lost / len(shape.closed)
