"""Repair of a range of entries on a bookie that is a member already: read elsewhere, stored again.

Leaves finding the range to the bookie, and which ranges may be repaired to
`quire.repair.bad_entries`.

Invariants: an entry is stored only after another copy of it was read with valid digests; the bookie
replaces only what it cannot read itself; only this range is copied; the metadata does not change.

Source: protocol rule 9.12.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.in_sync.copy_ends import CopySource, CopyTarget
from ledger_client.in_sync.copy_limits import CopyLimits, CopyProgress, Throttle, wait_for_turn
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.range_reader import RangeReader
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_store import LedgerStore


class RangeCopier:
    """Copies ranges of one ledger to bookies that lost them."""

    def __init__(
        self,
        *,
        pool: BookiePool,
        ledgers: LedgerStore,
        keys: LedgerKeys,
        config: ClientConfig,
        rng: Random,
        limits: CopyLimits,
        throttle: Throttle,
        on_progress: Callable[[CopyProgress], None],
    ) -> None:
        self._pool = pool
        self._ledgers = ledgers
        self._keys = keys
        self._config = replace(config, read_bytes_max=limits.request_bytes_max)
        self._rng = rng
        self._throttle = throttle
        self._on_progress = on_progress

    async def copy(self, first: EntryId, last: EntryId, target: BookieId) -> int:
        """Store the entries first..last of one closed fragment on a member of it; return how many
        payload bytes were copied. The bookie must hold all of them.

        Raises EntryNotFoundError, DigestMismatchError or QuorumTimeoutError when an entry cannot be
        read at any member, and the first two also when the target does not return what it stored;
        NotEnoughBookiesError when it fails or refuses; EntryConflictError when it stores other
        bytes; UnauthorizedError, LedgerNotFoundError, MetadataError.
        """
        keys = self._keys
        stored = await self._ledgers.get(keys.ledger_id, fresh=True)
        self._pool.attach(keys.ledger_id, keys.master_key)
        try:
            ledger = FollowedLedger(*stored, self._ledgers, self._rng)
            ranges = RangeReader(ledger, keys, self._pool, self._config, self._rng)
            quorum = stored[0].quorum_of(stored[0].fragment_of(first))
            source = CopySource(ranges, quorum, keys, self._config)
            return await self._copy(source, first, last, target)
        finally:
            self._pool.detach(keys.ledger_id)

    async def _copy(
        self, source: CopySource, first: EntryId, last: EntryId, target: BookieId
    ) -> int:
        end = CopyTarget(target, self._keys, self._pool, self._config)
        next_entry_id, copied_bytes = first, 0
        while next_entry_id <= last:
            piece = await source.read(next_entry_id, last)
            await wait_for_turn(self._throttle, piece.batch_bytes, piece.source)
            await end.store(piece)
            next_entry_id = piece.next_entry_id
            copied_bytes += piece.payload_bytes
            progress = CopyProgress(
                self._keys.ledger_id,
                first,
                target,
                next_entry_id - first,
                last + 1 - first,
                copied_bytes,
            )
            self._on_progress(progress)
        return copied_bytes
