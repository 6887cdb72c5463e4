"""Ledgers that have metadata only, created quickly.

Leaves pages about them to `console_pages`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ledger_client.cluster_access import open_cluster
from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)

FIRST_ID: Final = 1_000_000
AT_ONCE: Final = 500
ENTRIES: Final = 10
"""Number of entries of each fragment."""
BYTES: Final = 1_000
QUORUM: Final = QuorumSpec(3, 3, 2)


def closed_ledger(ledger_id: int, bookies: Sequence[BookieId], fragments: int) -> LedgerMetadata:
    """Return a closed ledger whose fragments differ from their neighbours by one bookie."""
    ensembles = [
        tuple(bookies[(number + place) % len(bookies)] for place in range(QUORUM.ensemble_size))
        for number in range(fragments)
    ]
    opened = LedgerMetadata(
        ledger_id=LedgerId(ledger_id),
        state=LedgerState.OPEN,
        quorum=QUORUM,
        fragments=tuple(
            Fragment(EntryId(ENTRIES * number), ensemble)
            for number, ensemble in enumerate(ensembles)
        ),
        digest=DigestType.CRC32C,
        created_ms=0,
        creation_token=UpdateToken(bytes(16)),
        update_token=UpdateToken(bytes(16)),
        writer=ClientId("benchmark"),
    )
    last = EntryId(ENTRIES * fragments - 1)
    return replace(opened, state=LedgerState.CLOSED, last_entry_id=last, length=BYTES)


async def store_ledgers(
    metadata: str, bookies: Sequence[BookieId], count: int, fragments_of_the_last: int
) -> LedgerId:
    """Store closed ledgers, of which the last has many fragments; return its id."""
    last = closed_ledger(FIRST_ID + count - 1, bookies, fragments_of_the_last)
    async with open_cluster(metadata) as cluster:
        for begin in range(0, count - 1, AT_ONCE):
            numbers = range(begin, min(count - 1, begin + AT_ONCE))
            ledgers = [closed_ledger(FIRST_ID + number, bookies, 1) for number in numbers]
            await asyncio.gather(*map(cluster.ledgers.create, ledgers))
        await cluster.ledgers.create(last)
    return last.ledger_id
