"""Allocation of ledger ids that are unique in the cluster.

Leaves allocating blocks of ids to `number_blocks.py`, and creating the ledgers to
`ledger_store.py`.

Format: the value of `/ids/ledgers` is a msgpack array [1, first id that is in no block yet].

Invariant: ids are unique, not dense.

Source: metadata design, "Ids"; protocol rule 1.2.
"""

from random import Random
from typing import Final

from metadata.ids import LedgerId
from metadata.paths import LEDGER_IDS
from metadata.store.interface import MetadataStore
from metadata.store.number_blocks import NumberBlocks

BLOCK_IDS: Final = 1_000
FIRST_ID: Final = 1


class LedgerIdAllocator:
    """Allocates the ids of a block, and another block when it is used up."""

    def __init__(self, store: MetadataStore, rng: Random, *, block_ids: int = BLOCK_IDS) -> None:
        self._blocks = NumberBlocks(store, rng, LEDGER_IDS, block_ids, first=FIRST_ID)

    async def allocate(self) -> LedgerId:
        """Return an id that was never returned before, here or elsewhere.

        Raises MetadataError, for example StoreUnavailableError, when a new block is needed and
        cannot be allocated.
        """
        return LedgerId(await self._blocks.next())

    def leave_block(self) -> None:
        """Allocate the next id from a new block: a ledger with an allocated id exists, or a gateway
        does not know the block, because it belongs to a session that has ended.
        """
        self._blocks.leave_block()
