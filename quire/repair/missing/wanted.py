"""What a member of a CLOSED ledger must hold, and what it lacks. Pure.

Leaves asking the bookies to `quire.repair.missing.comparison`.

Invariants: ranges ascend, and none reaches over the end of a fragment; a striped ledger of any
length needs the memory of one range.

Source: protocol rules 3.1, 9.9 and 9.16.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ledger_client.protocol.copy import member_ranges
from ledger_client.reading.entry_ranges import Range
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState

MissingRanges = Mapping[LedgerId, Mapping[BookieId, tuple[Range, ...]]]
"""The first missing ranges of bookies, by ledger."""

NO_MISSING_RANGES: Final[MissingRanges] = MappingProxyType({})


def members_of(ledger: LedgerMetadata) -> list[BookieId]:
    """Return the members of a CLOSED ledger that must hold any entry; none of another ledger."""
    named = dict.fromkeys(b for fragment in ledger.fragments for b in fragment.ensemble)
    return [each for each in named if next(wanted_ranges(ledger, each), None) is not None]


def wanted_ranges(ledger: LedgerMetadata, bookie_id: BookieId) -> Iterator[Range]:
    """Yield the entries that a bookie must hold: the stripes of its positions, without accepted
    losses. Bookies that are only marked as incoming need not hold anything.
    """
    if ledger.state is not LedgerState.CLOSED:
        return
    for fragment in ledger.fragments:
        if bookie_id in fragment.ensemble:
            yield from member_ranges(ledger, fragment.first_entry_id, bookie_id)


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
