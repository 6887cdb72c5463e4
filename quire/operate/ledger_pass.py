"""One pass over the metadata of all ledgers, for a plan or a check that needs every one.

Invariant: at most READS_AT_ONCE ledgers are read at once; a pass that ends early says so.
"""

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Final

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata

READS_AT_ONCE: Final = 64

Read = tuple[LedgerId, LedgerMetadata | MetadataFormatError]
"""A ledger's metadata, or the error of a record that cannot be read."""
EachLedger = AsyncIterable[Read]


class LedgerPass:
    """One pass, which ends early at its time limit; iterate over it once."""

    def __init__(
        self,
        cluster: Cluster,
        limit_s: float = math.inf,
        on_read: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`on_read` is called with the number of ledgers of each group that was read."""
        self._cluster = cluster
        self._limit_s = limit_s
        self._on_read = on_read
        self.ledgers_read = 0
        self.is_complete = False
        """Whether every ledger was read."""

    async def __aiter__(self) -> AsyncIterator[Read]:
        """Yield each ledger, or the error of a record that cannot be read. Raises MetadataError."""
        ends_s = asyncio.get_running_loop().time() + self._limit_s
        group: list[LedgerId] = []
        async for ledger_id in self._cluster.ledgers.list_ledger_ids():
            group.append(ledger_id)
            if len(group) < READS_AT_ONCE:
                continue
            for read in await self._read(group):
                yield read
            group.clear()
            if asyncio.get_running_loop().time() >= ends_s:
                return
        for read in await self._read(group):
            yield read
        self.is_complete = True

    async def _read(self, group: list[LedgerId]) -> list[Read]:
        reads = await asyncio.gather(*map(self._read_one, group))
        self.ledgers_read += len(group)
        self._on_read(len(group))
        return [read for read in reads if read is not None]

    async def _read_one(self, ledger_id: LedgerId) -> Read | None:
        try:
            ledger, _ = await self._cluster.ledgers.get(ledger_id)
        except NodeNotFoundError:
            return None  # deleted meanwhile
        except MetadataFormatError as error:
            return ledger_id, error
        return ledger_id, ledger
