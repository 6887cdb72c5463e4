"""Reads of a ledger: its LAC, its entries, the ranges of stored entries, and checks of them.

Leaves finding and reading entries to `bookie.storage.reading`, and permission to
`bookie.storage.admission`.

Invariants: a negative is sent only after the adds accepted before it are decided; a ledger's state
stays in memory while it is read.
Source: protocol rules 2.4, 4.3, 8.3, 9.12.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bookie.index import replica_state
from bookie.index.index import Index
from bookie.index.replica_state import ReplicaState
from bookie.log.log import Log
from bookie.storage.admission import Admission
from bookie.storage.answers import (
    AccessResult,
    CheckResult,
    EntryRangesResult,
    LedgerSnapshot,
    ReadResult,
)
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
    _checker: StorageReader
    _index: Index
    _log: Log

    async def read_lac(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        """Return a ledger's LAC and progress. Statuses: as `read`, without NO_SUCH_ENTRY."""
        return await self._cold.run(ledger_id, partial(self._lac_snapshot, ledger_id, master_key))

    def _lac_snapshot(self, ledger_id: LedgerId, master_key: bytes | None) -> LedgerSnapshot:
        refusal = self._admission.refuse(ledger_id, master_key)
        if refusal is None and ledger_id not in self._ledgers.states:
            refusal = replica_state.negative(None, is_limbo=self._index.is_limbo)
        return self.snapshot(ledger_id, refusal or Status.OK)

    async def access_of(self, ledger_id: LedgerId) -> AccessResult:
        """Return the master key of a ledger, for repair. Statuses: OK, NO_SUCH_LEDGER, UNKNOWN
        (limbo, or the disk failed), DELETED, CLOSING.
        """
        return await self._cold.run(ledger_id, partial(self._access_of, ledger_id))

    def _access_of(self, ledger_id: LedgerId) -> AccessResult:
        state = self._ledgers.states.get(ledger_id)
        refusal = self._admission.refuse(ledger_id, None)
        if refusal is not None or state is None:
            negative = replica_state.negative(None, is_limbo=self._index.is_limbo)
            return AccessResult(refusal or negative, None)
        return AccessResult(Status.OK, state.master_key)

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

    async def check(self, ledger_id: LedgerId, first_entry_id: EntryId) -> CheckResult:
        """Read the first stored run from an entry on, from the disk. A damaged record is noted as
        bad, and good entries are not bad any more. Entries beyond what this bookie holds, and
        ledgers that are gone, are passed over; a storage that closes passes over nothing.
        Raises DescriptorsExhaustedError.
        """
        refuse = partial(self._admission.refuse, ledger_id, None)
        state = await self._cold.run(ledger_id, partial(self._hold, ledger_id, refuse))
        if isinstance(state, Status):
            is_closing = state is Status.CLOSING
            return CheckResult(first_entry_id if is_closing else None, 0)
        try:
            return await self._check(state, first_entry_id)
        finally:
            state.use_count -= 1

    async def _check(self, state: ReplicaState, first_entry_id: EntryId) -> CheckResult:
        ledger_id, checker = state.ledger_id, self._checker
        if first_entry_id > state.highest:
            return CheckResult(None, 0)
        lookup = await self._index.look_up(
            ledger_id, first_entry_id, state.highest, state.indexed_highest, 1
        )
        if not lookup.runs:
            if lookup.is_unproven:
                self._reader.unproven[ledger_id] = first_entry_id
            return CheckResult(None, 0)
        last, first, _, size = lookup.runs[0]
        read_before = checker.bytes_read
        result = await checker.read_or_raise(state, first, last, size)
        read_bytes = checker.bytes_read - read_before
        if result.next_entry_id > first:
            checker.bad.clear(ledger_id, first, result.next_entry_id - 1)
            return CheckResult(result.next_entry_id, read_bytes)
        bad_last = checker.bad.last_of(ledger_id, first)
        passed = first if bad_last is None else bad_last
        return CheckResult(EntryId(passed + 1), size)

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
            return refusal or replica_state.negative(None, is_limbo=self._index.is_limbo)
        state.use_count += 1
        state.was_used = True
        return state
