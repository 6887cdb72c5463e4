"""Long polls of one connection. Each waits until the ledger's LAC advances, the ledger is fenced or
deleted, or its time ends.

Leaves the answers to `bookie.server.ledger_requests`. A waiting poll costs a timer and a watch, but
no task.

Invariants: each poll is answered once, or dropped with its connection; a poll of a ledger that was
fenced before the poll's arrival is answered only at a new LAC or at the end of its time, so that a
client that repeats its poll does not spin. A poll is answered with entries only while its client
may read the ledger, also if the ledger was detached, or attached again, meanwhile.

Source: protocol rules 8.4, 12.5.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from bookie.server.attachments import Attachment
from bookie.server.ledger_requests import LedgerRequests
from bookie.server.request_runner import RequestRunner
from bookie.server.server_answers import entries_frame, refusal_frame
from bookie.server.server_counters import ServerCounters
from bookie.server.server_limits import ServerLimits
from bookie.storage.answers import ReadResult
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.batch import Buffer
from bookie.wire.messages import Status, WaitLac
from metadata.ids import ENTRY_ID_MAX, EntryId

_WORTH_WAITING = (Status.OK, Status.NO_SUCH_LEDGER, Status.UNKNOWN)


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
    """Long polls of one connection; `ServerCounters.long_polls_now` counts those of all
    connections.
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
        return {id(each.attachment): each.attachment for each in self._polls.values()}.values()

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
        for poll in [each for each in self._parked.values() if not each.attachment.may_read]:
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
