"""Limit on the number of tombstones: the lowest are trimmed, and the horizon rises above them.

Leaves the transactions to `bookie.index.stored_states`, and the horizon's effect on requests to
`bookie.storage.admission`.

Invariants: the horizon never falls; it rises in memory before the transaction that trims, and
durably in that transaction. So a look-up that misses a trimmed tombstone knows that the id is at or
below the horizon.
Source: protocol rule 10.3.
"""

from typing import Final

from bookie.index.index import Index
from bookie.storage.ledgers import Ledgers

KEPT_SHARE: Final = 7 / 8
"""Share of `tombstones_max` that stays after trimming. Trimming reads all ids, so it is not done
for each new tombstone.
"""


async def trim_tombstones(ledgers: Ledgers, index: Index, tombstones_max: int) -> int:
    """Trim the lowest tombstones if there are more than `tombstones_max`; return how many were
    trimmed. Not to be called during a checkpoint. Raises DiskFullError.
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
