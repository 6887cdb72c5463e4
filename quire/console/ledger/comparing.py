"""Comparison of all copies of a ledger for one page, in slices: other pages go on meanwhile.

Leaves what the copies are to `parts`.

Invariant: after PARTS_PER_SLICE parts the event loop serves what else is due.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.console.ledger.parts import Held, Part, last_compared, last_listed, parts

PARTS_PER_SLICE: Final = 250


@dataclass(frozen=True, slots=True)
class Compared:
    """Copies of a ledger's entries."""

    parts: Sequence[Part]
    """All entries up to `compared_to`."""
    last: int
    """Last entry of the ledger, also if it is not confirmed."""
    compared_to: int
    """Last entry whose copies were compared."""
    confirmed: int
    """Last confirmed entry."""


async def compare_copies(
    ledger: LedgerMetadata, held: Mapping[BookieId, Held], confirmed: int
) -> Compared:
    """Compare what the bookies of a ledger list, up to its last entry."""
    last = last_listed(ledger, held, confirmed)
    compared_to = last_compared(ledger, last)
    found = list[Part]()
    for part in parts(ledger, held, 0, compared_to, confirmed):
        found.append(part)
        if len(found) % PARTS_PER_SLICE == 0:
            await asyncio.sleep(0)
    return Compared(found, last, compared_to, confirmed)
