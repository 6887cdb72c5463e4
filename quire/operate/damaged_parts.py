"""Damaged entries of one ledger, as the bookies report them, and whether each needs a repair. Pure.

Leaves the reports to `metadata.repair.scrub_store`, and what happens next to
`quire.operate.repair_explanation`.

Invariant: the parts that are repairable are those of `quire.repair.bad_entries`.

Source: protocol rule 9.12; docs/repair.md, "Scrub".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.repair.scrub import ScrubRecord
from quire.repair.bad_entries import BadEntries, bad_entries
from quire.repair.needs import closed_fragments


class Unrepaired(StrEnum):
    """Why damaged entries are not repaired where they are."""

    OPEN = (
        "once the fragment, or an in-sync ledger, is closed: until then its writer may change them"
    )
    NOT_A_MEMBER = "not needed: the ledger does not name this bookie for these entries"
    LOST = "not needed: the loss of these entries was accepted"
    AFTER_THE_END = "not needed: the ledger ends before these entries"


@dataclass(frozen=True, slots=True)
class DamagedPart:
    """Damaged entries of one fragment on one bookie."""

    entries: BadEntries
    why_not: Unrepaired | None
    """None if they are repairable."""


def damaged_parts(
    ledger: LedgerMetadata, scrubs: Mapping[BookieId, ScrubRecord]
) -> list[DamagedPart]:
    """Return all damaged entries of a ledger, by bookie, in the order of entries."""
    found: list[DamagedPart] = []
    for bookie_id, record in sorted(scrubs.items()):
        reported = record.bad_of(ledger.ledger_id)
        parts = [DamagedPart(each, None) for each in bad_entries(ledger, bookie_id, reported)]
        for start, end, why_not in _spans_without_repair(ledger, bookie_id):
            for each in reported:
                first, last = max(each.first_entry_id, start), min(each.last_entry_id, end)
                if first <= last:
                    entries = BadEntries(bookie_id, EntryId(first), EntryId(last))
                    parts.append(DamagedPart(entries, why_not))
        found += sorted(parts, key=lambda part: part.entries.first_entry_id)
    return found


def _spans_without_repair(
    ledger: LedgerMetadata, bookie_id: BookieId
) -> Iterator[tuple[int, int, Unrepaired]]:
    """Yield first and last entry of each span in which a bookie's damaged entries stay."""
    closed = closed_fragments(ledger)
    last = ledger.last_entry_id if ledger.state is LedgerState.CLOSED else None
    end = ENTRY_ID_MAX if last is None else last
    ends = [*(each.first_entry_id - 1 for each in ledger.fragments[1:]), end]
    for fragment, fragment_end in zip(ledger.fragments, ends, strict=True):
        if bookie_id not in fragment.ensemble:
            yield fragment.first_entry_id, min(fragment_end, end), Unrepaired.NOT_A_MEMBER
        elif fragment not in closed:
            yield fragment.first_entry_id, fragment_end, Unrepaired.OPEN
        else:
            for each in ledger.lost:
                first = max(each.first_entry_id, fragment.first_entry_id)
                yield first, min(each.last_entry_id, fragment_end, end), Unrepaired.LOST
    if last is not None:
        yield last + 1, ENTRY_ID_MAX, Unrepaired.AFTER_THE_END
