"""Numbers of bookies, under which clients of topics see them as replicas.

Leaves allocating the numbers to `number_blocks.py`.

Invariants: a bookie keeps one number permanently, and no two bookies have the same; all numbers are
int32 and above every broker's id.

Source: topics design, "The mapping" (replicas, ISR).
"""

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
)
from metadata.ids import BookieId
from metadata.paths import REPLICA_IDS, REPLICAS, replica_path
from metadata.records import codec_of_one, whole
from metadata.store.interface import MetadataStore
from metadata.store.number_blocks import NumberBlocks
from metadata.topics.in_sync import REPLICA_ID_MAX

REPLICA_ID_FIRST: Final = 1_000_001
MISSING_REPLICA: Final = 1_000_000
"""Number that stands for a replica that is missing: no bookie and no broker has it."""

REPLICA_CODEC: Final = codec_of_one("number", whole(REPLICA_ID_FIRST, REPLICA_ID_MAX))


class ReplicaNumbers:
    """Numbers of bookies, read or allocated on demand and cached."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng
        self._blocks = NumberBlocks(
            store, rng, REPLICA_IDS, 1, first=REPLICA_ID_FIRST, last=REPLICA_ID_MAX
        )
        self._numbers: dict[BookieId, int] = {}

    def known_number(self, bookie_id: BookieId) -> int | None:
        """Return a bookie's number if it is cached."""
        return self._numbers.get(bookie_id)

    async def number_of(self, bookie_id: BookieId) -> int:
        """Return a bookie's number; allocate one if it has none.

        Raises MetadataError, for example StoreUnavailableError, when the number cannot be read or
        allocated.
        """
        known = self._numbers.get(bookie_id)
        if known is None:
            known = await self._find(bookie_id)
            self._numbers[bookie_id] = known
        return known

    async def numbers_of(self, bookie_ids: Iterable[BookieId]) -> tuple[int, ...]:
        """Return the numbers of several bookies, in their order."""
        return tuple(await asyncio.gather(*map(self.number_of, bookie_ids)))

    async def bookies(self) -> dict[int, BookieId]:
        """Return the bookies that have numbers, by their numbers; allocate none.

        Raises MetadataError.
        """
        names = await self._store.children(REPLICAS, fresh=True)
        ids = [BookieId(name) for name in names]
        return dict(zip(await self.numbers_of(ids), ids, strict=True))

    async def _find(self, bookie_id: BookieId) -> int:
        path = replica_path(bookie_id)
        backoff = Backoff(self._rng)
        while True:
            try:
                return REPLICA_CODEC.unpack(path, (await self._store.get(path, fresh=True)).value)
            except NodeNotFoundError:
                number = await self._blocks.next()
            try:
                await self._store.create(path, REPLICA_CODEC.pack(path, number))
                return number
            except (NodeExistsError, OutcomeUnknownError):
                await asyncio.sleep(backoff.next_s())  # the stored number decides
