"""What it means that a bookie holds a ledger that does not name it. Pure.

Leaves asking the bookies to `quire.cli.metadata.metadata_check`.

Source: protocol rules 10.1 and 10.6; docs/repair.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState


@dataclass(frozen=True, slots=True)
class Holding:
    """Entries that a bookie holds of a ledger: as many of them as its first answer lists."""

    count: int
    last_entry_id: int

    @staticmethod
    def of(ranges: Sequence[tuple[int, int]]) -> "Holding | None":
        """Return the entries of some ranges; None if there are none."""
        if not ranges:
            return None
        return Holding(sum(last - first + 1 for first, last in ranges), ranges[-1][1])


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a difference says, and what to do."""

    what: str
    advice: str


DELETED = Meaning("deleted: its data is not removed yet", "nothing: it is removed")
UNKNOWN = Meaning(
    "the metadata does not know it: created after the dump, or deleted before",
    "save its entries with `quire bookie entry`, or accept the loss",
)
MOVED = Meaning(
    "closed, and does not name this bookie: its copy moved away before the dump, or here after it",
    "`quire ledger verify ID`: keep this bookie up, and do not accept, until every entry is there",
)
NOT_CLOSED = Meaning(
    "not closed, and does not name this bookie: its ensemble changed after the dump",
    "do not recover it before you compared its entries: it would end before them",
)


def meaning_of(ledger: LedgerMetadata | None, *, is_deleted: bool) -> Meaning:
    """Return what it means that a bookie that a ledger does not name holds it."""
    if ledger is None:
        return DELETED if is_deleted else UNKNOWN
    return MOVED if ledger.state is LedgerState.CLOSED else NOT_CLOSED
