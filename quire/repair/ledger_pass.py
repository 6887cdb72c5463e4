"""Reading of the ledgers' metadata into the index of the auditor.

Leaves the index to `quire.repair.ledger_index`.

Invariants: at most CALLS_AT_ONCE reads are under way. A ledger whose record cannot be read is
counted, and keeps what the index knows of it. A ledger that is not listed any more is dropped.

Source: protocol rule 9.1.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import FIRST_LEDGER_ID, LedgerStore
from quire.repair.grouped_calls import CALLS_AT_ONCE, call_each
from quire.repair.ledger_index import LedgerIndex


class LedgerPass:
    """Reads ledgers into an index."""

    def __init__(self, ledgers: LedgerStore, index: LedgerIndex) -> None:
        self._ledgers = ledgers
        self._index = index
        self.unreadable_count = 0
        """Records that the latest complete pass could not read."""
        self.changed: set[LedgerId] = set()
        """Known ledgers that were read with other ensembles than before; the auditor clears it."""

    async def read_all(self) -> None:
        """Read every ledger. Raises MetadataError."""
        self.unreadable_count = 0
        await self._read_listed(is_known_read=True)
        self._index.drop_unused_shapes()

    async def catch_up(self) -> None:
        """Read the ledgers that are new, or were not CLOSED; list all ids, because a new ledger may
        have any id. Raises MetadataError.
        """
        await self.read(self._index.open_ledgers())
        await self._read_listed(is_known_read=False)

    async def read(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Read some ledgers again, with fresh reads. Raises MetadataError."""
        await call_each(list(ledger_ids), partial(self._read, fresh=True))

    def put(self, ledger: LedgerMetadata) -> None:
        """Put a ledger into the index that was read."""
        if self._index.put(ledger):
            self.changed.add(ledger.ledger_id)

    async def _read_listed(self, *, is_known_read: bool) -> None:
        start = FIRST_LEDGER_ID
        batch: list[LedgerId] = []
        async for ledger_id in self._ledgers.list_ledger_ids():
            batch.append(ledger_id)
            if len(batch) == CALLS_AT_ONCE:
                await self._read_range(start, batch[-1], batch, is_known_read=is_known_read)
                start, batch = LedgerId(batch[-1] + 1), []
        await self._read_range(start, None, batch, is_known_read=is_known_read)

    async def _read_range(
        self,
        start: LedgerId,
        last: LedgerId | None,
        listed: Sequence[LedgerId],
        *,
        is_known_read: bool,
    ) -> None:
        """Read the listed ledgers of a range of ids; drop the others."""
        known = frozenset(self._index.known_between(start, last))
        for ledger_id in known.difference(listed):
            self._index.drop(ledger_id)
        unread = listed if is_known_read else [each for each in listed if each not in known]
        await call_each(unread, self._read)

    async def _read(self, ledger_id: LedgerId, *, fresh: bool = False) -> None:
        try:
            ledger, _ = await self._ledgers.get(ledger_id, fresh=fresh)
        except NodeNotFoundError:
            self._index.drop(ledger_id)
        except MetadataFormatError:
            self.unreadable_count += 1
        else:
            self.put(ledger)
