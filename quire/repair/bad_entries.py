"""Damaged and missing entries of one ledger that can be repaired where they are. Pure.

Invariants: only entries of closed fragments are repaired, and only on a member of the fragment:
what a bookie holds besides, for example after the end of the ledger, needs no copy, and neither do
entries whose loss was accepted.

Source: protocol rules 9.12 and 9.16.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.entry_ranges import Range, within
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.scrub import BadRange
from quire.repair.needs import closed_fragments

MissingRanges = Mapping[LedgerId, Mapping[BookieId, tuple[Range, ...]]]
"""The first missing ranges of bookies, by ledger."""

NO_MISSING_RANGES: Final[MissingRanges] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BadEntries:
    """Damaged or missing entries of one closed fragment on one of its members."""

    bookie_id: BookieId
    first_entry_id: EntryId
    last_entry_id: EntryId

    @property
    def text(self) -> str:
        """The entries and the bookie, for operators."""
        first, last = self.first_entry_id, self.last_entry_id
        entries = f"entry {first}" if first == last else f"entries {first} to {last}"
        return f"{entries} on {self.bookie_id}"


def bad_entries(
    ledger: LedgerMetadata, bookie_id: BookieId, reported: Iterable[BadRange]
) -> list[BadEntries]:
    """Return what can be repaired of the ranges that a bookie reports, in the order of entries."""
    parts: list[BadEntries] = []
    for fragment in closed_fragments(ledger):
        if bookie_id not in fragment.ensemble:
            continue
        needed = fragment.ranges
        for bad in reported:
            if bad.ledger_id == ledger.ledger_id:
                parts += [
                    BadEntries(bookie_id, EntryId(begin), EntryId(end))
                    for begin, end in within(needed, bad.first_entry_id, bad.last_entry_id)
                ]
    return sorted(parts, key=lambda part: part.first_entry_id)


def missing_entries(missing: Mapping[BookieId, Iterable[Range]]) -> list[BadEntries]:
    """Return the missing ranges of some bookies, each in one fragment, in the order of entries."""
    parts = [
        BadEntries(bookie_id, EntryId(first), EntryId(last))
        for bookie_id, ranges in missing.items()
        for first, last in ranges
    ]
    return sorted(parts, key=lambda part: part.first_entry_id)


async def lacking(
    wanted: Iterable[Range], held: AsyncIterator[Range]
) -> AsyncGenerator[Range, None]:
    """Yield the parts of the wanted ranges that are not held; both ascend."""
    have = await anext(held, None)
    for begin, last in wanted:
        first = begin
        while first <= last:
            while have is not None and have[1] < first:
                have = await anext(held, None)
            if have is None or have[0] > last:
                yield first, last
                break
            if have[0] > first:
                yield first, have[0] - 1
            first = have[1] + 1
