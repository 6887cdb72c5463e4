"""Allocation of numbers that are unique per node in the cluster.

Leaves the meaning of the numbers to its owners: `ledger_ids.py`, producer ids and
`replica_numbers.py`.

Invariants: a block of numbers is allocated by compare-and-set, so it has one owner; a block whose
allocation has an unknown outcome is not used: numbers are unique, not dense.

Source: metadata design, "Ids"; protocol rule 1.2; Kafka's KIP-98 of producers' ids.
"""

import asyncio
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    MetadataError,
    MetadataFormatError,
    NodeExistsError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.records import codec_of_one, whole
from metadata.store.interface import MetadataStore, find

BLOCK_NUMBERS: Final = 1_000
NUMBER_MAX: Final = 2**63 - 2
ATTEMPTS_MAX: Final = 100

NUMBERS_CODEC: Final = codec_of_one("first_free", whole(0, NUMBER_MAX + 1))
"""Codec of the first number that is in no block yet."""


class NumberBlocks:
    """Allocates the numbers of a block, and another block when it is used up."""

    def __init__(
        self,
        store: MetadataStore,
        rng: Random,
        path: str,
        block: int = BLOCK_NUMBERS,
        *,
        first: int = 0,
        last: int = NUMBER_MAX,
    ) -> None:
        self._store = store
        self._rng = rng
        self._path = path
        self._block = block
        self._first = first
        self._last = last
        self._next = 0
        self._end = 0
        self._taking = asyncio.Lock()

    async def next(self) -> int:
        """Return a number that was never returned before, here or elsewhere.

        Raises MetadataError, for example StoreUnavailableError, when a new block is needed and
        cannot be allocated.
        """
        async with self._taking:
            if self._next >= self._end:
                self._next = await self._take_block()
                self._end = self._next + self._block
            number = self._next
            self._next += 1
            return number

    def leave_block(self) -> None:
        """Use no more numbers of this block; the next one is of a new block."""
        self._next = self._end

    async def _take_block(self) -> int:
        backoff = Backoff(self._rng)
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._try_block()
            except (NodeExistsError, VersionConflictError, OutcomeUnknownError):
                await asyncio.sleep(backoff.next_s())
        raise MetadataError(
            f"no block of {self._path} could be allocated in {ATTEMPTS_MAX} attempts: try again"
        )

    async def _try_block(self) -> int:
        stored = await find(self._store, self._path)
        if stored is None:
            await self._store.create(self._path, pack_block(self._path, self._first + self._block))
            return self._first
        first = unpack_block(self._path, stored.value, self._first)
        end = first + self._block
        if end - 1 > self._last:
            raise MetadataError(f"every number of {self._path} has been allocated")
        await self._store.compare_and_set(self._path, pack_block(self._path, end), stored.version)
        return first


def pack_block(path: str, first_free: int) -> bytes:
    """Return a node's value; `first_free` is the first number that is in no block yet."""
    return NUMBERS_CODEC.pack(path, first_free)


def unpack_block(path: str, value: bytes, first: int) -> int:
    """Return the first number that is in no block yet. Raises MetadataFormatError for another
    format, and for a number below `first`.
    """
    number = NUMBERS_CODEC.unpack(path, value)
    if number < first:
        raise MetadataFormatError(path, f"{number} is below {first}")
    return number
