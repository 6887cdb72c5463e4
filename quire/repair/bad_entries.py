"""Damaged and missing entries of one ledger that can be repaired where they are. Pure.

Leaves finding damage to the bookies, finding missing entries to `quire.repair.missing`, and copying
to `quire.repair.range_repair`.

Invariants: only entries of closed fragments are repaired, and only on a member of the fragment:
what a bookie holds besides, for example after the end of the ledger, needs no copy, and neither do
entries whose loss was accepted.

Source: protocol rules 9.9, 9.12 and 9.16.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledger_client.reading.entry_ranges import Range
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.lost_entries import entries_left
from metadata.repair.scrub import BadRange
from quire.repair.needs import closed_fragments


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
    found: list[BadEntries] = []
    starts = [each.first_entry_id for each in ledger.fragments[1:]]
    ends = [*(EntryId(start - 1) for start in starts), ledger.last_entry_id]
    for fragment, end_id in zip(closed_fragments(ledger), ends, strict=False):
        if bookie_id not in fragment.ensemble or end_id is None:
            continue
        for each in reported:
            first = max(each.first_entry_id, fragment.first_entry_id)
            last = min(each.last_entry_id, end_id)
            if each.ledger_id == ledger.ledger_id:
                found += [
                    BadEntries(bookie_id, EntryId(begin), EntryId(end))
                    for begin, end in entries_left(ledger.lost, first, last)
                ]
    return sorted(found, key=lambda each: each.first_entry_id)


def missing_entries(missing: Mapping[BookieId, Iterable[Range]]) -> list[BadEntries]:
    """Return the missing ranges of some bookies, each in one fragment, in the order of entries."""
    found = [
        BadEntries(bookie_id, EntryId(first), EntryId(last))
        for bookie_id, ranges in missing.items()
        for first, last in ranges
    ]
    return sorted(found, key=lambda each: each.first_entry_id)
