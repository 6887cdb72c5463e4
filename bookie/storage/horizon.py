"""Keeps the number of tombstones bounded: the lowest are trimmed, and a horizon rises above them.

Leaves the transactions to `bookie.index.stored_states`, and what the horizon means for requests to
`bookie.storage.admission`.

Invariants: the horizon never falls; it is durable in the transaction that trims, and in memory
before it, so no look-up finds a trimmed tombstone missing below the horizon that it knows.
Source: protocol rule 10.3.
"""

from typing import Final

from bookie.index.index import Index
from bookie.storage.ledgers import Ledgers

KEPT_SHARE: Final = 7 / 8
"""Of the most tombstones allowed, so many stay when some are trimmed: trimming reads all ids."""


async def trim_tombstones(ledgers: Ledgers, index: Index, tombstones_max: int) -> int:
    """Trim the lowest tombstones if there are more than `tombstones_max`; return how many went.
    Only while no checkpoint runs. Raises DiskFullError.
    """
    if ledgers.tombstone_count <= tombstones_max:
        return 0
    wanted = ledgers.tombstone_count - int(tombstones_max * KEPT_SHARE)
    trimmed = 0
    after: int | None = -1
    while after is not None and trimmed < wanted:
        found, after = await index.find_tombstones(after, wanted - trimmed)
        ids = [each for each in found if each not in ledgers.tombstones]
        if ids:
            ledgers.raise_horizon(ids[-1])
            count = await index.trim_tombstones(ids)
            ledgers.tombstone_count -= count
            trimmed += count
    return trimmed
