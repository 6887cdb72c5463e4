"""Requests for ledgers of one connection, besides adds: executed, made to wait for a place, or
refused.

Leaves the attached ledgers to `bookie.server.attachments`, and adds to `bookie.server.connection`.

Invariants: a request for an attached ledger is executed only with the right that it needs; a status
of the storage reaches the client unchanged; a failure here is never a negative.

Source: protocol rules 4.3, 7.2, 7.3, 8.3, 8.4, 9.14, 12.4 and 12.5; metadata design, "Versions and
security".
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from bookie.server.access import RIGHT_BITS, LedgerOperation, refusal_text
from bookie.server.attachments import Attachment, Attachments
from bookie.server.client_quotas import ClientQuota
from bookie.server.request_runner import RequestRunner, entries_frame, refusal_frame, reply_frame
from bookie.server.server_context import ServerContext
from bookie.server.server_limits import ServerCounters, ServerLimits
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
    RightsReply,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, EntryId, LedgerId

LedgerRequest = ReadLac | WriteLac | ReadEntries | ListEntries | ReadAccess | FenceWithoutKey


AttachedRequest = LedgerRequest | WaitLac | ReadRights


_WORTH_WAITING = (Status.OK, Status.NO_SUCH_LEDGER, Status.UNKNOWN)


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
                held = await self._storage.reads.entry_ranges(
                    request.ledger_id, request.first_entry_id, self._limits.ranges_per_answer_max
                )
                ranges = EntryRanges(held.status, held.ranges, held.complete)
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
        read = await self._storage.reads.read(ledger_id, first, first, 0, None, after_fence=True)
        return replace(snapshot, status=read.status)

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


@dataclass(slots=True, eq=False)
class _Poll:
    request_id: int
    request: WaitLac
    attachment: Attachment
    """Of its ledger, with the key and the rights; it may be detached by now."""
    lac_seen: EntryId
    is_due: bool = False
    timer: asyncio.TimerHandle | None = None
    cancel_watch: Callable[[], None] | None = None


@dataclass(slots=True, eq=False, repr=False)
class LongPolls:
    """Long polls of one connection. Each waits until the ledger's LAC advances, the ledger is
    fenced or deleted, or its time ends. A waiting poll costs a timer and a watch, but no task.
    `ServerCounters.long_polls_now` counts those of all connections.

    Invariants: each poll is answered once, or dropped with its connection; a poll of a ledger that
    was fenced before the poll's arrival is answered only at a new LAC or at the end of its time, so
    that a client that repeats its poll does not spin. A poll is answered with entries only while
    its client may read the ledger, also if the ledger was detached, or attached again, meanwhile.
    """

    _storage: BookieStorage
    _requests: LedgerRequests
    _runner: RequestRunner
    _limits: ServerLimits
    _counters: ServerCounters
    _send: Callable[[list[Buffer]], None]
    _refusal: Callable[[Attachment], str]
    """Returns why the client of an attachment may not read."""
    _polls: dict[int, _Poll] = field(default_factory=dict, init=False)
    """All that have no answer yet, by identity: request ids are the client's and may repeat."""
    _parked: dict[int, _Poll] = field(default_factory=dict, init=False)
    """Those that wait for a LAC or the end of their time."""

    @property
    def is_full(self) -> bool:
        """Whether the limit of polls is reached, for this connection or for the server."""
        return (
            len(self._polls) >= self._limits.long_polls_per_connection_max
            or self._counters.long_polls_now >= self._limits.long_polls_max
        )

    @property
    def attachments(self) -> Collection[Attachment]:
        """Attachments of all polls that have no answer yet."""
        return {id(poll.attachment): poll.attachment for poll in self._polls.values()}.values()

    def wait(self, request_id: int, request: WaitLac, attachment: Attachment) -> None:
        """Answer when the LAC advances or the ledger is fenced or deleted, at the latest after
        `wait_ms`.
        """
        assert not self.is_full
        answer = self._requests.try_answer_poll(request_id, request, attachment.master_key)
        if answer is not None:
            self._send(answer)
            return
        poll = _Poll(request_id, request, attachment, self._storage.lac_of(request.ledger_id))
        self._polls[id(poll)] = poll
        self._counters.long_polls_now += 1
        self._runner.submit(request_id, 0, lambda: self._begin(poll))

    def refuse_all(self) -> None:
        """Answer every waiting poll CLOSING: the bookie is shutting down."""
        for poll in list(self._parked.values()):
            self._unpark(poll)
            self._drop(poll)
            self._send([refusal_frame(poll.request_id, Status.CLOSING, "the bookie is closing")])

    def refuse_unreadable(self) -> None:
        """Answer every waiting poll UNAUTHORIZED whose client may not read any more (rule 12.5)."""
        for poll in [parked for parked in self._parked.values() if not parked.attachment.may_read]:
            self._unpark(poll)
            self._drop(poll)
            self._send(self._refused(poll))

    def cancel(self) -> None:
        """Drop every poll, because the connection is lost."""
        for poll in list(self._parked.values()):
            self._unpark(poll)
        self._counters.long_polls_now -= len(self._polls)
        self._polls.clear()

    async def _begin(self, poll: _Poll) -> list[Buffer]:
        request = poll.request
        key = poll.attachment.master_key
        snapshot = await self._storage.reads.read_lac(request.ledger_id, key)
        if id(poll) not in self._polls:
            return []  # the connection is lost
        if not poll.attachment.may_read:
            self._drop(poll)
            return self._refused(poll)
        if snapshot.status not in _WORTH_WAITING:
            self._drop(poll)
            following = EntryId(min(request.lac, ENTRY_ID_MAX) + 1)
            refused = ReadResult(snapshot.status, snapshot.lac, following, ())
            return entries_frame(poll.request_id, refused)
        poll.lac_seen = max(snapshot.lac, self._storage.lac_of(request.ledger_id))
        if poll.lac_seen > request.lac:
            return await self._finish(poll)
        loop = asyncio.get_running_loop()
        poll.timer = loop.call_later(request.wait_ms / 1000, self._expire, poll)
        poll.cancel_watch = self._storage.watch_lac(
            request.ledger_id, lambda: self._note_change(poll)
        )
        self._parked[id(poll)] = poll
        return []

    def _note_change(self, poll: _Poll) -> None:
        # Called from within the storage's add, so it only decides; the answer is built in a later
        # iteration of the event loop.
        lac = self._storage.lac_of(poll.request.ledger_id)
        is_only_progress = poll.lac_seen < lac <= poll.request.lac
        poll.lac_seen = lac
        if not is_only_progress and not poll.is_due:
            poll.is_due = True
            asyncio.get_running_loop().call_soon(self._answer, poll)

    def _answer(self, poll: _Poll) -> None:
        if id(poll) not in self._parked:
            return
        self._counters.long_polls_woken += 1
        self._unpark(poll)
        key = poll.attachment.master_key
        answer = self._requests.try_answer_poll(poll.request_id, poll.request, key)
        if answer is not None:
            self._drop(poll)
            self._send(answer)
        else:
            self._submit_answer(poll)

    def _expire(self, poll: _Poll) -> None:
        self._counters.long_polls_expired += 1
        self._unpark(poll)
        self._submit_answer(poll)

    def _submit_answer(self, poll: _Poll) -> None:
        size = min(poll.request.bytes_max, self._limits.read_bytes_max)
        self._runner.submit(poll.request_id, size, lambda: self._finish(poll))

    async def _finish(self, poll: _Poll) -> list[Buffer]:
        self._drop(poll)
        if not poll.attachment.may_read:  # lost while the answer waited for its turn
            return self._refused(poll)
        key = poll.attachment.master_key
        return await self._requests.answer_poll(poll.request_id, poll.request, key)

    def _refused(self, poll: _Poll) -> list[Buffer]:
        reason = self._refusal(poll.attachment)
        return [refusal_frame(poll.request_id, Status.UNAUTHORIZED, reason)]

    def _unpark(self, poll: _Poll) -> None:
        del self._parked[id(poll)]
        if poll.timer is not None:
            poll.timer.cancel()
        if poll.cancel_watch is not None:
            poll.cancel_watch()

    def _drop(self, poll: _Poll) -> None:
        if self._polls.pop(id(poll), None) is not None:
            self._counters.long_polls_now -= 1


class AttachedRequests:
    """Requests of one connection."""

    def __init__(
        self,
        context: ServerContext,
        attachments: Attachments,
        runner: RequestRunner,
        send: Callable[[list[Buffer]], None],
        must_wait: Callable[[], bool],
        peer: Callable[[], str],
        quota: ClientQuota,
    ) -> None:
        """`must_wait` returns whether reads wait until the client takes answers."""
        storage, limits, counters = context.storage, context.limits, context.counters
        self._context = context
        self._attachments = attachments
        self._runner = runner
        self._send = send
        self._must_wait = must_wait
        self._peer = peer
        self._quota = quota
        self._requests = LedgerRequests(storage, limits, counters, context.now, quota)
        self.polls = LongPolls(
            storage, self._requests, runner, limits, counters, send, self._why_not_read
        )

    def serve(
        self,
        request_id: int,
        request: AttachedRequest,
        attachment: Attachment,
        asked_s: float,
    ) -> None:
        """Execute a request that arrived at `asked_s`, once the rights are known or cannot be
        read.
        """
        operation = operation_of(request)
        if self._context.is_closing:
            self._refuse(request_id, Status.CLOSING, "the bookie is closing")
        elif isinstance(request, ReadRights):
            self._answer_rights(request_id, attachment)
        elif not attachment.rights & RIGHT_BITS[operation]:
            self._refuse_by_roles(request_id, operation, attachment)
        elif isinstance(request, WaitLac):
            if self.polls.is_full:
                self._refuse(request_id, Status.BAD_REQUEST, "too many long polls are waiting")
            else:
                self.polls.wait(request_id, request, attachment)
        else:
            self._read_or_submit(request_id, request, attachment.master_key, asked_s)

    def submit(
        self, request_id: int, request: LedgerRequest, key: bytes | None, asked_s: float
    ) -> None:
        """Execute a request now or after those that wait."""
        size, answer = self._requests.bytes_of(request), self._requests.answer
        is_read = isinstance(request, ReadEntries) and not request.fence
        self._runner.submit(
            request_id,
            size,
            partial(answer, request_id, request, key, asked_s),
            is_metered=is_read and self._quota.limits_reads,
        )

    def refuse_add(self, request_id: int, attachment: Attachment, *, recovery: bool) -> None:
        """Refuse an add for which the client has no right: with the reason, which an ack lacks."""
        self._context.counters.adds_by_status[attachment.status] += 1
        operation = LedgerOperation.RECOVERY_ADD if recovery else LedgerOperation.ADD
        self._refuse_by_roles(request_id, operation, attachment)

    def refuse_waiting(self) -> None:
        """Refuse what waits, because the bookie is closing."""
        self.polls.refuse_all()
        self._attachments.end_waiting()

    def _why_not_read(self, attachment: Attachment) -> str:
        principal = self._attachments.principal
        return refusal_text(principal, LedgerOperation.READ, attachment.ledger_id)

    def _refuse_by_roles(
        self, request_id: int, operation: LedgerOperation, attachment: Attachment
    ) -> None:
        principal, ledger_id = self._attachments.principal, attachment.ledger_id
        reason = attachment.reason or refusal_text(principal, operation, ledger_id)
        if attachment.status is Status.UNAUTHORIZED:
            self._context.counters.refused_by_roles += 1
            who = principal or "unknown"
            audit = self._context.log.audit
            audit.refused(operation, who=who, peer=self._peer(), ledger=ledger_id)
        self._refuse(request_id, attachment.status, reason)

    def _answer_rights(self, request_id: int, attachment: Attachment) -> None:
        is_known = attachment.rights or attachment.status is Status.UNAUTHORIZED
        if is_known:
            self._send([reply_frame(request_id, RightsReply(attachment.rights))])
        else:
            self._refuse(request_id, attachment.status, attachment.reason)

    def _read_or_submit(
        self, request_id: int, request: LedgerRequest, key: bytes, asked_s: float
    ) -> None:
        # While answers are unread, or the client is over a quota, reads from memory wait too.
        may_read = not self._must_wait() and not self._quota.is_paused
        if isinstance(request, ReadEntries) and may_read:
            answer = self._requests.try_read(request_id, request, key, asked_s)
            if answer is not None:
                self._send(answer)
                return
        self.submit(request_id, request, key, asked_s)

    def _refuse(self, request_id: int, status: Status, reason: str) -> None:
        self._send([refusal_frame(request_id, status, reason)])
