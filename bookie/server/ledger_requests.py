"""Carries out requests about one ledger: reads, fences, LACs and lists of ranges.

Leaves adds to `bookie.server.connection` and waiting for a LAC to `bookie.server.long_polls`.

Invariant: a status of the storage reaches the client as it is; a failure here is never a negative.

Source: protocol rules 7.2, 7.3, 8.3, 8.4.
"""

from collections.abc import Callable
from typing import assert_never

from bookie.server.server_access import Operation
from bookie.server.server_answers import entries_frame, refusal_frame, reply_frame
from bookie.server.server_counters import ServerCounters
from bookie.server.server_limits import ServerLimits
from bookie.storage.answers import LedgerSnapshot, ReadResult
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.batch import Buffer
from bookie.wire.messages import (
    EntryRanges,
    LacReply,
    ListEntries,
    ReadEntries,
    ReadLac,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, EntryId

LedgerRequest = ReadLac | WriteLac | ReadEntries | ListEntries


def operation_of(request: LedgerRequest | WaitLac) -> Operation:
    """Name what a request does, for `authorize`."""
    match request:
        case ReadLac(fence=True) | ReadEntries(fence=True):
            return Operation.FENCE
        case WriteLac():
            return Operation.WRITE_LAC
        case ReadLac() | ReadEntries() | WaitLac() | ListEntries():
            return Operation.READ
        case _:
            assert_never(request)


class LedgerRequests:
    """Answers with whole frames; holds no state of its own."""

    def __init__(
        self,
        storage: BookieStorage,
        limits: ServerLimits,
        counters: ServerCounters,
        now: Callable[[], float],
    ) -> None:
        self._storage = storage
        self._limits = limits
        self._counters = counters
        self._now = now

    def bytes_of(self, request: LedgerRequest) -> int:
        """Return about how much memory the answer can take."""
        match request:
            case ReadEntries():
                return min(request.bytes_max, self._limits.read_bytes_max)
            case ListEntries():
                return 32 * self._limits.ranges_per_answer_max
            case ReadLac() | WriteLac():
                return 0
            case _:
                assert_never(request)

    def try_read(
        self, request_id: int, request: ReadEntries, master_key: bytes, asked_s: float
    ) -> list[Buffer] | None:
        """Answer a read from memory, in this loop step; None when more is needed."""
        if request.fence or request.first_entry_id > request.last_entry_id:
            return None
        result = self._storage.try_read(
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
        return entries_frame(request_id, result)

    async def answer(
        self,
        request_id: int,
        request: LedgerRequest,
        master_key: bytes | None,
        asked_s: float,
    ) -> list[Buffer]:
        """Carry out a request that came at `asked_s`; return its answer's frame."""
        match request:
            case ReadLac():
                call = self._storage.fence if request.fence else self._storage.read_lac
                return [_lac_frame(request_id, await call(request.ledger_id, master_key))]
            case WriteLac():
                snapshot = await self._storage.write_lac(request.ledger_id, request.lac, master_key)
                return [_lac_frame(request_id, snapshot)]
            case ReadEntries():
                frame = await self._read(request_id, request, master_key)
                self._counters.read_latency.record(self._now() - asked_s)
                return frame
            case ListEntries():
                found = await self._storage.entry_ranges(
                    request.ledger_id, request.first_entry_id, self._limits.ranges_per_answer_max
                )
                ranges = EntryRanges(found.status, found.ranges, found.complete)
                return [reply_frame(request_id, ranges)]
            case _:
                assert_never(request)

    async def answer_poll(
        self, request_id: int, request: WaitLac, master_key: bytes | None
    ) -> list[Buffer]:
        """Answer a long poll with what is there now: the entries behind `lac`, or only the LAC."""
        snapshot = await self._storage.read_lac(request.ledger_id, master_key)
        bytes_max = min(request.bytes_max, self._limits.read_bytes_max)
        if snapshot.status is not Status.OK or snapshot.lac <= request.lac or not bytes_max:
            following = EntryId(min(request.lac, ENTRY_ID_MAX) + 1)
            return entries_frame(
                request_id, ReadResult(snapshot.status, snapshot.lac, following, ())
            )
        self._counters.reads_from_disk += 1
        result = await self._storage.read(
            request.ledger_id,
            EntryId(request.lac + 1),
            snapshot.lac,
            bytes_max,
            master_key,
            after_fence=False,
        )
        return entries_frame(request_id, result)

    def try_answer_poll(
        self, request_id: int, request: WaitLac, master_key: bytes
    ) -> list[Buffer] | None:
        """Answer a long poll whose LAC has come from memory; None when more is needed."""
        lac = self._storage.lac_of(request.ledger_id)
        bytes_max = min(request.bytes_max, self._limits.read_bytes_max)
        if lac <= request.lac or not bytes_max:
            return None
        result = self._storage.try_read(
            request.ledger_id, EntryId(request.lac + 1), lac, bytes_max, master_key
        )
        if result is None:
            return None
        self._counters.reads_from_memory += 1
        return entries_frame(request_id, result)

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
        result = await self._storage.read(
            request.ledger_id,
            request.first_entry_id,
            request.last_entry_id,
            self.bytes_of(request),
            master_key,
            after_fence=request.fence,
        )
        return entries_frame(request_id, result)


def _lac_frame(request_id: int, snapshot: LedgerSnapshot) -> bytes:
    lac = max(snapshot.lac, NO_ENTRY)
    return reply_frame(
        request_id, LacReply(snapshot.status, lac, snapshot.highest_entry_id, snapshot.fenced)
    )
