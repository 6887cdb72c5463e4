"""Positions in ledgers and chains: the start of a query, the end of a micro-batch.

Leaves the ends of ledgers to `selecting` and `following`. Pure.

Format of an offset, a JSON object. Named ledgers: {"17": 5, "18": 0}, the next entry of each. A
chain: {"link": 3, "ledger": 0, "entry": 12}, the number of the link, the place of the ledger within
the link, and the next entry. After the last link, the offset is the next link's number, ledger 0,
entry 0. With "entries" it also counts the entries of the chain from the start of the query on, for
reports of its progress. The stored offset has the identities of the ledgers or of the chain too
(`spark_io.offsets`).

Invariants: an end is exclusive; a position never goes back; every entry between two positions is
read exactly once.

Source: Spark design, "Reading".
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from spark_io.common_options import EARLIEST, LATEST
from spark_io.errors import OffsetError, OptionError
from spark_io.offsets import (
    Identities,
    MicroBatchLimits,
    check_option,
    require_order,
    separated,
    shares,
)
from spark_io.ranges import EntryRange, LinkRanges, PackedRanges

COUNT: Final = "entries"
"""Name of the number of entries in the position of a chain."""
LedgerOffsets = dict[int, int]
"""Next entry of each named ledger."""


@dataclass(frozen=True, slots=True, order=True)
class ChainPosition:
    """Next entry of a chain."""

    link: int
    ledger: int = 0
    entry: int = 0
    entries: int | None = field(default=None, compare=False)
    """Number of entries between the start of the query and the position, if they were counted."""

    def as_json(self) -> dict[str, int]:
        """Return the stored form."""
        place = {"link": self.link, "ledger": self.ledger, "entry": self.entry}
        return place if self.entries is None else place | {COUNT: self.entries}

    @classmethod
    def of_json(cls, stored: Mapping[str, object]) -> "ChainPosition":
        """Parse the stored form. Raises OffsetError."""
        names = ["link", "ledger", "entry", *([COUNT] if COUNT in stored else [])]
        values = [stored.get(name) for name in names]
        if len(stored) != len(values) or not all(_is_natural(value) for value in values):
            example = json.dumps(ChainPosition(0).as_json())
            raise OffsetError(f"{json.dumps(stored)} is not an offset of a chain such as {example}")
        return cls(*(int(str(value)) for value in values))


def ledger_offsets_of(stored: Mapping[str, object]) -> LedgerOffsets:
    """Parse the stored offsets of named ledgers. Raises OffsetError."""
    offsets: LedgerOffsets = {}
    for name, value in stored.items():
        if not name.isdecimal() or not _is_natural(value):
            raise OffsetError(
                f'{json.dumps(stored)} is not an offset of ledgers such as {{"17": 5}}'
            )
        offsets[int(name)] = int(str(value))
    return offsets


def identities_of(known: Iterable[EntryRange]) -> Identities:
    """Return the identities of ledgers by their ids."""
    return {str(entry_range.ledger_id): entry_range.creation_token.hex() for entry_range in known}


def starts_and_ends(
    known: Iterable[EntryRange],
    starting: str,
    ending: str,
    range_to: Callable[[EntryRange, int, int], EntryRange] = EntryRange.part,
) -> Iterator[EntryRange]:
    """Return the range of each ledger that a batch query covers; `range_to` returns those up to an
    end that the option names. Raises OptionError.
    """
    first = _chosen("startingOffsets", starting, known, EARLIEST)
    ends = _chosen("endingOffsets", ending, known, LATEST)
    ranges = (
        entry_range.part(first.get(entry_range.ledger_id, 0))
        if (end := ends.get(entry_range.ledger_id)) is None
        else range_to(entry_range, first.get(entry_range.ledger_id, 0), end)
        for entry_range in known
    )
    return (range_ for range_ in ranges if range_.count > 0)


def check_bounds(starting: str, ending: str) -> None:
    """Check the offsets of a batch query before anything is known about its ledgers. Raises
    OptionError.
    """
    first, _ = _parsed("startingOffsets", starting, EARLIEST)
    require_order(first, ends_given(ending), lambda ledger_id: f"ledger {ledger_id}", "entry")


def ends_given(ending: str) -> LedgerOffsets:
    """Return the ends of ledgers that `endingOffsets` gives. Raises OptionError."""
    return _parsed("endingOffsets", ending, LATEST)[0]


def _parsed(option: str, text: str, whole: str) -> tuple[LedgerOffsets, Identities]:
    """Parse `earliest`/`latest` (all of each ledger), or offsets by ledger and their identities."""
    if text.lower() == whole:
        return {}, {}
    try:
        stored, recorded = separated(json.loads(text))
        return ledger_offsets_of(stored), recorded
    except ValueError as error:
        text = f'{text!r} is neither {whole!r} nor offsets of ledgers such as {{"17": 5}}'
        raise OptionError(option, text) from error


def _chosen(option: str, text: str, known: Iterable[EntryRange], whole: str) -> LedgerOffsets:
    """Return the parsed offsets, if they are of ledgers that are read."""
    offsets, recorded = _parsed(option, text, whole)
    if not offsets and not recorded:
        return offsets
    there = frozenset(entry_range.ledger_id for entry_range in known)
    unknown = [ledger_id for ledger_id in offsets if ledger_id not in there]
    if unknown:
        raise OptionError(option, f"ledgers {unknown} are not among those that are read")
    check_option(option, "ledger", recorded, identities_of(known))
    return offsets


def advance_ledgers(
    known: Sequence[EntryRange], start: LedgerOffsets, limits: MicroBatchLimits
) -> LedgerOffsets:
    """Return the end of a micro-batch of named ledgers."""
    begin = {part.ledger_id: start.get(part.ledger_id, 0) for part in known}
    left = [max(0, part.end - begin[part.ledger_id]) for part in known]
    size = sum(count * part.entry_bytes for count, part in zip(left, known, strict=True))
    taken = shares(left, limits.count_of(sum(left), size))
    moved = zip(begin.items(), taken, strict=True)
    return start | {ledger_id: at + count for (ledger_id, at), count in moved}


def end_of_chain(
    links: Sequence[LinkRanges], next_index: int, begin: ChainPosition | None = None
) -> ChainPosition:
    """Return the position after all readable entries from `begin` on, at most in the first open
    ledger.
    """
    for link in links:
        for place, ledger in enumerate(link.ledgers):
            is_behind = begin is None or ChainPosition(link.index, place + 1) > begin
            if is_behind and ledger.is_open:
                return ChainPosition(link.index, place, ledger.end)
    return ChainPosition(next_index)


def advance_chain(
    links: Sequence[LinkRanges],
    start: ChainPosition,
    end: ChainPosition,
    limits: MicroBatchLimits,
) -> ChainPosition:
    """Return the end of a micro-batch of a chain: `end`, or earlier if there are entries before it
    for which the limits have no room.
    """
    count = start.entries or 0
    for part in chain_parts(links, start, end):
        piece = part.ledger.part(part.first, part.end)
        if piece.count <= 0:
            continue
        room = 0.0 if limits.is_used_up else limits.entries_of(piece.entry_bytes)
        taken = int(min(room, piece.count))
        count += taken
        if taken < piece.count:
            return replace(part.place, entry=piece.first + taken, entries=count)
        limits = limits.without(piece.count, piece.entry_bytes)
    return start if end <= start else replace(end, entries=count)


def entries_between(links: Sequence[LinkRanges], start: ChainPosition, end: ChainPosition) -> int:
    """Return the number of entries from one position of a chain up to, not including, another."""
    count = 0
    for link in links:
        here, behind = ChainPosition(link.index), ChainPosition(link.index + 1)
        if isinstance(link.ledgers, PackedRanges) and start <= here and behind <= end:
            count += link.ledgers.entry_count
            continue
        for part in chain_parts([link], start, end):
            count += max(0, part.ledger.part(part.first, part.end).count)
    return count


@dataclass(frozen=True, slots=True)
class ChainPart:
    """Entries of one ledger between two positions of a chain."""

    place: ChainPosition
    """Entry 0 of the ledger."""
    ledger: EntryRange
    first: int
    end: int | None
    """The entry after the last, if the second position is in this ledger; None for all others,
    which are read to their ends.
    """


def chain_parts(
    links: Sequence[LinkRanges], start: ChainPosition, end: ChainPosition
) -> Iterator[ChainPart]:
    """Yield the ledgers that have entries from one position up to, but not including, another."""
    for link in links:
        for place, ledger in enumerate(link.ledgers):
            here, behind = ChainPosition(link.index, place), ChainPosition(link.index, place + 1)
            if behind <= start or here >= end:
                continue
            first = start.entry if start >= here else 0
            yield ChainPart(here, ledger, first, end.entry if end < behind else None)


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
