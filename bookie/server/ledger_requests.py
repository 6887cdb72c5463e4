"""Execution of requests for one ledger: reads, fences, LACs, lists of ranges and its key.

Leaves adds to `bookie.server.connection` and waiting for a LAC to `bookie.server.long_polls`.

Invariant: a status of the storage reaches the client unchanged; a failure here is never a negative.

Source: protocol rules 7.2, 7.3, 8.3, 8.4, 9.14; metadata design, "Versions and security".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from bookie.server.client_quotas import ClientQuota
from bookie.server.server_access import LedgerOperation
from bookie.server.server_answers import entries_frame, refusal_frame, reply_frame
from bookie.server.server_counters import ServerCounters
from bookie.server.server_limits import ServerLimits
from bookie.storage.answers import LedgerSnapshot, ReadResult
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.batch import Buffer
from bookie.wire.messages import (
    AccessReply,
    EntryRanges,
    FenceWithoutKey,
    LacReply,
    ListEntries,
    ReadAccess,
    ReadEntries,
    ReadLac,
    ReadRights,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, EntryId, LedgerId

LedgerRequest = ReadLac | WriteLac | ReadEntries | ListEntries | ReadAccess | FenceWithoutKey
AttachedRequest = LedgerRequest | WaitLac | ReadRights


def operation_of(request: AttachedRequest) -> LedgerOperation:
    """Return the operation of a request. Reading the own rights needs none; it counts as a read."""
    match request:
        case ReadLac(fence=True) | ReadEntries(fence=True):
            return LedgerOperation.FENCE
        case WriteLac():
            return LedgerOperation.WRITE_LAC
        case ReadLac() | ReadEntries() | WaitLac() | ListEntries() | ReadRights():
            return LedgerOperation.READ
        case ReadAccess():
            return LedgerOperation.READ_ACCESS
        case FenceWithoutKey():
            return LedgerOperation.FENCE_WITHOUT_KEY
        case _:
            assert_never(request)


@dataclass(eq=False, repr=False)
class LedgerRequests:
    """Execution of requests; the answers are complete frames. Stateless, but for the quota."""

    _storage: BookieStorage
    _limits: ServerLimits
    _counters: ServerCounters
    _now: Callable[[], float]
    _quota: ClientQuota

    def bytes_of(self, request: LedgerRequest) -> int:
        """Return approximately how many bytes of memory the answer can take."""
        match request:
            case ReadEntries():
                return min(
                    request.bytes_max, self._quota.answer_bytes_max(self._limits.read_bytes_max)
                )
            case ListEntries():
                return 32 * self._limits.ranges_per_answer_max
            case ReadLac() | WriteLac() | ReadAccess() | FenceWithoutKey():
                return 0
            case _:
                assert_never(request)

    def try_read(
        self, request_id: int, request: ReadEntries, master_key: bytes, asked_s: float
    ) -> list[Buffer] | None:
        """Return the answer to a read from memory; None when the disk is needed."""
        if request.fence or request.first_entry_id > request.last_entry_id:
            return None
        result = self._storage.reads.try_read(
            request.ledger_id,
            request.first_entry_id,
            request.last_entry_id,
            self.bytes_of(request),
            master_key,
        )
        if result is None:
            return None
        self._counters.reads_from_memory += 1
        self._counters.read_latency.record(self._now() - asked_s)
        return self._metered(request_id, result)

    async def answer(
        self,
        request_id: int,
        request: LedgerRequest,
        master_key: bytes | None,
        asked_s: float,
    ) -> list[Buffer]:
        """Execute a request that arrived at `asked_s`; return the frame of its answer."""
        match request:
            case ReadLac():
                call = self._storage.fence if request.fence else self._storage.reads.read_lac
                return [_lac_frame(request_id, await call(request.ledger_id, master_key))]
            case WriteLac():
                snapshot = await self._storage.write_lac(request.ledger_id, request.lac, master_key)
                return [_lac_frame(request_id, snapshot)]
            case ReadEntries():
                frame = await self._read(request_id, request, master_key)
                self._counters.read_latency.record(self._now() - asked_s)
                return frame
            case ListEntries():
                found = await self._storage.reads.entry_ranges(
                    request.ledger_id, request.first_entry_id, self._limits.ranges_per_answer_max
                )
                ranges = EntryRanges(found.status, found.ranges, found.complete)
                return [reply_frame(request_id, ranges)]
            case ReadAccess():
                access = await self._storage.reads.access_of(request.ledger_id)
                reply = AccessReply(access.status, access.master_key or b"")
                return [reply_frame(request_id, reply)]
            case FenceWithoutKey():
                snapshot = await self._fence_without_key(request.ledger_id)
                return [_lac_frame(request_id, snapshot)]
            case _:
                assert_never(request)

    async def answer_poll(
        self, request_id: int, request: WaitLac, master_key: bytes | None
    ) -> list[Buffer]:
        """Answer a long poll now: with the entries after `lac`, or only with the LAC."""
        snapshot = await self._storage.reads.read_lac(request.ledger_id, master_key)
        bytes_max = self._poll_bytes_max(request)
        if snapshot.status is not Status.OK or snapshot.lac <= request.lac or not bytes_max:
            following = EntryId(min(request.lac, ENTRY_ID_MAX) + 1)
            return entries_frame(
                request_id, ReadResult(snapshot.status, snapshot.lac, following, ())
            )
        self._counters.reads_from_disk += 1
        result = await self._storage.reads.read(
            request.ledger_id,
            EntryId(request.lac + 1),
            snapshot.lac,
            bytes_max,
            master_key,
            after_fence=False,
        )
        return self._metered(request_id, result)

    def try_answer_poll(
        self, request_id: int, request: WaitLac, master_key: bytes
    ) -> list[Buffer] | None:
        """Return the answer to a long poll from memory; None if its LAC is not reached or the disk
        is needed.
        """
        lac = self._storage.lac_of(request.ledger_id)
        bytes_max = self._poll_bytes_max(request)
        if lac <= request.lac or not bytes_max:
            return None
        result = self._storage.reads.try_read(
            request.ledger_id, EntryId(request.lac + 1), lac, bytes_max, master_key
        )
        if result is None:
            return None
        self._counters.reads_from_memory += 1
        return self._metered(request_id, result)

    async def _fence_without_key(self, ledger_id: LedgerId) -> LedgerSnapshot:
        """Fence a ledger without a key, then look for its first entry: only that is a negative."""
        snapshot = await self._storage.fence(ledger_id, None)
        if snapshot.status is not Status.OK:
            return snapshot
        first = EntryId(0)
        found = await self._storage.reads.read(ledger_id, first, first, 0, None, after_fence=True)
        return replace(snapshot, status=found.status)

    async def _read(
        self, request_id: int, request: ReadEntries, master_key: bytes | None
    ) -> list[Buffer]:
        if request.first_entry_id > request.last_entry_id:
            return [
                refusal_frame(
                    request_id,
                    Status.BAD_REQUEST,
                    f"a read of entries {request.first_entry_id}..{request.last_entry_id}",
                )
            ]
        if request.fence:
            snapshot = await self._storage.fence(request.ledger_id, master_key)
            if snapshot.status is not Status.OK:
                nothing = ReadResult(snapshot.status, snapshot.lac, request.first_entry_id, ())
                return entries_frame(request_id, nothing)
        self._counters.reads_from_disk += 1
        result = await self._storage.reads.read(
            request.ledger_id,
            request.first_entry_id,
            request.last_entry_id,
            self.bytes_of(request),
            master_key,
            after_fence=request.fence,
        )
        return self._metered(request_id, result)

    def _poll_bytes_max(self, request: WaitLac) -> int:
        """Return how many bytes of entries a long poll may return. A client with a quota gets the
        LAC alone, and then reads: many polls may be answered at once, reads wait for each other.
        """
        if self._quota.limits_reads:
            return 0
        return min(request.bytes_max, self._limits.read_bytes_max)

    def _metered(self, request_id: int, result: ReadResult) -> list[Buffer]:
        """Return an answer, recorded in the client's quota if it has entries."""
        frame = entries_frame(request_id, result)
        if result.batches and self._quota.limits_reads:
            self._quota.note_read(sum(map(len, frame)))
        return frame


def _lac_frame(request_id: int, snapshot: LedgerSnapshot) -> bytes:
    lac = max(snapshot.lac, NO_ENTRY)
    return reply_frame(
        request_id, LacReply(snapshot.status, lac, snapshot.highest_entry_id, snapshot.fenced)
    )
