"""Reads of a ledger: its LAC, its entries, and the ranges of stored entries.

Leaves finding and reading entries to `bookie.storage.reading`, and permission to
`bookie.storage.admission`.

Invariants: a negative is sent only after the adds accepted before it are decided; a ledger's state
stays in memory while it is read.
Source: protocol rules 2.4, 4.3, 8.3.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bookie.index import replica_state
from bookie.index.index import Index
from bookie.index.replica_state import ReplicaState
from bookie.log.log import Log
from bookie.storage.admission import Admission
from bookie.storage.answers import EntryRangesResult, LedgerSnapshot, ReadResult
from bookie.storage.cold_ledgers import ColdLedgers
from bookie.storage.ledgers import Ledgers
from bookie.storage.reading import StorageReader, list_ranges
from bookie.wire.messages import Status
from metadata.ids import NO_ENTRY, EntryId, LedgerId


@dataclass(eq=False, repr=False)
class LedgerReads:
    """Reads of all ledgers."""

    _ledgers: Ledgers
    _cold: ColdLedgers
    _admission: Admission
    _reader: StorageReader
    _index: Index
    _log: Log

    async def read_lac(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        """Return a ledger's LAC and progress. Statuses: as `read`, without NO_SUCH_ENTRY."""
        return await self._cold.run(ledger_id, partial(self._lac_snapshot, ledger_id, master_key))

    def _lac_snapshot(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        refusal = self._admission.refuse(ledger_id, master_key)
        if refusal is None and ledger_id not in self._ledgers.states:
            refusal = replica_state.negative(None, is_limbo=self._reader.is_limbo)
        return self.snapshot(ledger_id, refusal or Status.OK)

    async def read(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        master_key: bytes | None,
        *,
        after_fence: bool,
    ) -> ReadResult:
        """Return entries first..last without gaps, about `bytes_max` at most (at least one batch).

        `after_fence`: the caller fenced the ledger just before (rule 7.3). Statuses: OK,
        NO_SUCH_ENTRY, NO_SUCH_LEDGER, UNKNOWN (damaged or limbo), UNAUTHORIZED, DELETED,
        BAD_REQUEST.
        """
        refuse = partial(
            self._admission.refuse_read, ledger_id, first_entry_id, last_entry_id, master_key
        )
        state = await self._cold.run(ledger_id, partial(self._hold, ledger_id, refuse))
        if isinstance(state, Status):
            return ReadResult(
                state,
                replica_state.advertised_lac(self._ledgers.states.get(ledger_id)),
                first_entry_id,
                (),
            )
        try:
            return await self._read(
                state, first_entry_id, last_entry_id, bytes_max, after_fence=after_fence
            )
        finally:
            state.use_count -= 1

    async def _read(
        self,
        state: ReplicaState,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        *,
        after_fence: bool,
    ) -> ReadResult:
        if after_fence and state.queued_count:
            await self._log.barrier()
        result = await self._reader.read(state, first_entry_id, last_entry_id, bytes_max)
        if result.status is Status.NO_SUCH_ENTRY and state.queued_count:
            # The missing entry may be queued: accepted adds are decided before a negative.
            await self._log.barrier()
            result = await self._reader.read(state, first_entry_id, last_entry_id, bytes_max)
        if result.status is Status.NO_SUCH_ENTRY and self._log.failure is not None:
            return replace(result, status=Status.UNKNOWN)
        if state.is_deleted:
            return ReadResult(Status.DELETED, NO_ENTRY, first_entry_id, ())
        return result

    def try_read(
        self,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        last_entry_id: EntryId,
        bytes_max: int,
        master_key: bytes | None,
    ) -> ReadResult | None:
        """Return the result of `read` if memory has it, else None. Not for recovery."""
        state = self._ledgers.states.get(ledger_id)
        if state is None or self._log.failure is not None:
            return None
        if (
            self._admission.refuse_read(ledger_id, first_entry_id, last_entry_id, master_key)
            is not None
        ):
            return None
        state.was_used = True
        return self._reader.read_nowait(state, first_entry_id, last_entry_id, bytes_max)

    async def entry_ranges(
        self, ledger_id: LedgerId, first_entry_id: EntryId, limit: int
    ) -> EntryRangesResult:
        """List the stored ranges from `first_entry_id` on, at most `limit`."""
        refuse = partial(self._admission.refuse, ledger_id, None)
        state = await self._cold.run(ledger_id, partial(self._hold, ledger_id, refuse))
        if isinstance(state, Status):
            return EntryRangesResult(state, (), complete=True)
        try:
            if state.queued_count:
                await self._log.barrier()
            return await list_ranges(self._index, state, first_entry_id, limit)
        finally:
            state.use_count -= 1

    def snapshot(self, ledger_id: LedgerId, status: Status) -> LedgerSnapshot:
        """Return a snapshot of a ledger that is not cold, with a given status."""
        state = self._ledgers.states.get(ledger_id)
        if state is None or status in (Status.UNAUTHORIZED, Status.DELETED):
            return LedgerSnapshot(status, NO_ENTRY, NO_ENTRY, fenced=False)
        return LedgerSnapshot(status, EntryId(state.lac), EntryId(state.highest), state.fenced)

    def _hold(
        self, ledger_id: LedgerId, refuse: Callable[[], Status | None]
    ) -> ReplicaState | Status:
        """Return the state of a known ledger, with its use counted, or the reason for refusal."""
        refusal = refuse()
        state = self._ledgers.states.get(ledger_id)
        if refusal is not None or state is None:
            return refusal or replica_state.negative(None, is_limbo=self._reader.is_limbo)
        state.use_count += 1
        state.was_used = True
        return state
