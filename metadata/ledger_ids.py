"""Gives out ledger ids that no one else in the cluster ever gets.

Leaves creating the ledgers to `ledger_store.py`.

Format: the value of `/ids/ledgers` is a msgpack array [1, first id that is in no block yet].

Invariants: a block of ids is taken by compare-and-set, so it has one owner; a block whose taking
has an unknown outcome is left unused: ids are unique, not dense.

Source: metadata.md, Ids; protocol rule 1.2.
"""

import asyncio
from random import Random
from typing import Final

from metadata.errors import (
    MetadataError,
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import LEDGER_ID_MAX, LedgerId
from metadata.packed import FieldError, int_of, pack, unpack_versioned
from metadata.paths import LEDGER_IDS
from metadata.pauses import Pauses
from metadata.store import MetadataStore, Stored

BLOCK_IDS: Final = 1_000
FIRST_ID: Final = 1
ATTEMPTS_MAX: Final = 20

_FORMAT_VERSION: Final = 1


class LedgerIdAllocator:
    """Hands out the ids of a block, and takes another block when it is used up."""

    def __init__(self, store: MetadataStore, rng: Random, *, block_ids: int = BLOCK_IDS) -> None:
        self._store = store
        self._rng = rng
        self._block_ids = block_ids
        self._next = 0
        self._end = 0
        self._taking = asyncio.Lock()

    async def allocate(self) -> LedgerId:
        """Return an id that was never returned before, here or elsewhere.

        Raises StoreUnavailableError and the like when a block is needed and cannot be taken.
        """
        async with self._taking:
            if self._next >= self._end:
                self._next = await self._take_block()
                self._end = self._next + self._block_ids
            ledger_id = LedgerId(self._next)
            self._next += 1
            return ledger_id

    async def _take_block(self) -> int:
        pauses = Pauses(self._rng)
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._try_block()
            except (NodeExistsError, VersionConflictError, OutcomeUnknownError):
                await asyncio.sleep(pauses.next_s())
        raise MetadataError(f"no block of ledger ids could be taken in {ATTEMPTS_MAX} attempts")

    async def _try_block(self) -> int:
        try:
            stored = await self._store.get(LEDGER_IDS, fresh=True)
        except NodeNotFoundError:
            await self._store.create(LEDGER_IDS, _packed(FIRST_ID + self._block_ids))
            return FIRST_ID
        first = _first_free(stored)
        end = first + self._block_ids
        if end - 1 > LEDGER_ID_MAX:
            raise MetadataError("every ledger id has been given out")
        await self._store.compare_and_set(LEDGER_IDS, _packed(end), stored.version)
        return first


def _packed(first_free: int) -> bytes:
    return pack(LEDGER_IDS, [_FORMAT_VERSION, first_free])


def _first_free(stored: Stored) -> int:
    fields = unpack_versioned(LEDGER_IDS, stored.value, _FORMAT_VERSION, 2)
    try:
        return int_of(fields[1], 0, LEDGER_ID_MAX)
    except FieldError as error:
        raise MetadataFormatError(LEDGER_IDS, str(error)) from error
