"""Lists of the ledgers of a cluster, as currently stored.

Leaves single ledgers to `ledger_client.ledger_calls`.

Invariants: a list is read in steps, so it holds few ledgers in memory; a ledger whose record this
release cannot read ends no list: it is left out, and an event names it. A named ledger is reported
missing only after a fresh read: a server that lags may not have it yet.

Source: api design, "Client"; protocol rule 1.1.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from ledger_client.client_services import ClientServices
from ledger_client.info import LedgerInfo
from ledger_client.metadata_failures import metadata_call
from ledger_client.observability import LedgerUnreadable
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId

INFO_READS_AT_ONCE: Final = 256


class LedgerLists:
    """Lists of one client; stateless."""

    def __init__(self, services: ClientServices) -> None:
        self._services = services

    async def all(self, start: LedgerId, timeout_s: float) -> AsyncIterator[list[LedgerInfo]]:
        """Stream every ledger from `start` on, in order of ids, in lists, without those whose
        records cannot be read; `timeout_s` limits each step. Raises MetadataUnavailableError.
        """
        address = self._services.store.address
        ids = self._services.ledgers.list_ledger_ids(start)
        is_last = False
        while not is_last:
            chunk: list[LedgerId] = []
            async with metadata_call("listing ledgers", address, timeout_s):
                while len(chunk) < INFO_READS_AT_ONCE and not is_last:
                    ledger_id = await anext(ids, None)
                    if ledger_id is None:
                        is_last = True
                    else:
                        chunk.append(ledger_id)
                infos = await asyncio.gather(*[self._readable(each) for each in chunk])
            yield [info for info in infos if info is not None]

    async def named(
        self, ledger_ids: Sequence[LedgerId], timeout_s: float
    ) -> AsyncIterator[list[LedgerInfo | None]]:
        """Stream these ledgers in the given order, in lists, with None for one that does not exist;
        `timeout_s` limits each step. Raises MetadataConflictError for a record that cannot be read,
        MetadataUnavailableError.
        """
        address = self._services.store.address
        for start in range(0, len(ledger_ids), INFO_READS_AT_ONCE):
            chunk = ledger_ids[start : start + INFO_READS_AT_ONCE]
            async with metadata_call("reading ledgers", address, timeout_s):
                infos = await asyncio.gather(*[self._found(each) for each in chunk])
            yield infos

    async def _found(self, ledger_id: LedgerId) -> LedgerInfo | None:
        """Return a ledger; None only if a fresh read does not find it either."""
        return await self._info(ledger_id) or await self._info(ledger_id, fresh=True)

    async def _readable(self, ledger_id: LedgerId) -> LedgerInfo | None:
        try:
            return await self._info(ledger_id)
        except MetadataFormatError as error:
            self._services.observer.emit(LedgerUnreadable(ledger_id, error.why))
            return None

    async def _info(self, ledger_id: LedgerId, *, fresh: bool = False) -> LedgerInfo | None:
        try:
            metadata, _ = await self._services.ledgers.get(ledger_id, fresh=fresh)
        except NodeNotFoundError:  # deleted since it was listed
            return None
        return LedgerInfo.of(metadata)
