"""Data port of a bookie, and the connection of one client to it: decodes frames, passes adds to the
storage, and sends answers.

Leaves hellos and logins to `bookie.server.greeting`, attached ledgers to
`bookie.server.attachments`, other requests for them to `bookie.server.ledger_requests`, the CRC of
a batch and the decision to accept it to `bookie.storage.bookie_storage`, pauses and the end of a
connection to `quire.server.connection`, deadlines and closing to `quire.server.listening`.

Invariants: no request is executed before the client's hello is accepted, and its login is complete
if one is due; a complete request is answered once, unless the connection is lost; reading pauses
while the storage has no room, while too many requests wait, while the client does not read its
answers, and while it is over a quota.

Source: protocol rules 2.3, 4.3, 12.4, 12.6; storage design, "The batch" and "Limits and refusals".
"""

from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Final, assert_never, cast

from bookie.server.access import (
    APPEND_BIT,
    RECOVERY_ADD_BIT,
    REPAIR,
    LedgerOperation,
    Principal,
    authorize,
)
from bookie.server.attachments import NO_ROOM, Attachment, Attachments
from bookie.server.client_quotas import ClientQuota
from bookie.server.greeting import Door, Greeting, Guest
from bookie.server.ledger_requests import AttachedRequest, AttachedRequests, operation_of
from bookie.server.request_runner import (
    BATCH_BYTES_MAX,
    RequestRunner,
    acks_frame,
    refusal_frame,
    reply_frame,
)
from bookie.server.server_context import ServerContext
from bookie.wire.batch import BatchView, Buffer
from bookie.wire.codec import decode_request
from bookie.wire.errors import BatchError, FrameError, MessageError
from bookie.wire.frames import ADD_RECOVERY, Frame, FrameAssembler, FrameKind
from bookie.wire.messages import (
    AttachLedger,
    BeginLogin,
    ContinueLogin,
    DetachLedger,
    FenceWithoutKey,
    Hello,
    ListEntries,
    Ping,
    ReadAccess,
    ReadEntries,
    ReadLac,
    ReadRights,
    ReportLac,
    Request,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import LedgerId
from quire.identity.principal import ANONYMOUS
from quire.server.connection import Pause, ServerConnection, write_all
from quire.server.listening import ListeningServer
from quire.server.overriding import override
from quire.server.tls_listening import TlsListening

_ADD: Final = FrameKind.ADD
"""Looked up once, because a look-up in an enumeration is slow."""
_Asked = tuple[float, bool]
"""Arrival time of adds, and whether they are of a recovery or a repair."""


class BookieServer(ListeningServer):
    """Data port of one bookie. Call `start`, then `close`, once each."""

    _context: ServerContext

    async def start(self, host: str, port: int, tls: TlsListening | None = None) -> tuple[str, int]:
        """Listen; return the host and port. Raises CannotListenError."""
        address = await self._open(
            "the bookie", host, port, lambda: ClientConnection(self._context), tls
        )
        await self.serve()
        return address

    @override
    async def close(self) -> None:
        """Accept no more requests, finish running ones within `drain_timeout_s`, and close all
        connections.
        """
        await super().close()
        self._context.stop_waiting()


class ClientConnection(ServerConnection):
    """Connection of one client, from accept to loss."""

    _context: ServerContext

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self._assembler = FrameAssembler(bodies=context.bodies)
        self._principal = ""
        self._role: Principal | None = None  # what the hello's credentials prove
        self._may_use_ledgers = False
        self._attachments = Attachments(context.authorizer, context.storage.queued)
        self._acks: list[tuple[int, Status]] = []
        self._acks_asked: dict[_Asked, int] = {}  # their number
        self._adds_pending = 0
        self._received_at_s = 0.0
        limits, counters = context.limits, context.counters
        self._runner = RequestRunner(limits, context.log, counters, self._send_answer, self._room)
        self._quota = ClientQuota(context.quotas, self.throttle)
        self._served = AttachedRequests(
            context,
            self._attachments,
            self._runner,
            self._send_answer,
            self._must_wait,
            self._peer,
            self._quota,
        )
        door = Door(
            self._send_answer,
            self._welcome,
            self._assembler.allow,
            self.drop,
            self.close,
            self._certified,
            self._peer,
            lambda: self.address,
        )
        self._greeting = Greeting(context, self._runner, door)

    # -- called by the transport

    @override
    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        super().connection_lost(error)
        self._greeting.forget()
        self._runner.cancel()
        self._served.polls.cancel()
        self._attachments.cancel()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._assembler.get_buffer()

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        context = self._context
        context.counters.bytes_received += nbytes
        was_mid_frame = self._assembler.is_mid_frame
        try:
            frames = self._assembler.buffer_updated(nbytes)
        except FrameError as error:
            self._drop_bad_frame(str(error))
            return
        if self._assembler.is_mid_frame and (frames or not was_mid_frame):
            self._waiting_since_s = context.now()
        context.counters.requests += len(frames)
        self._received_at_s = context.now()
        if frames:
            self.serve_in_turns(self._serve_all(frames))

    # -- called by the server

    @override
    def set_pause(self, reason: Pause, *, on: bool) -> None:
        """See `ServerConnection`; some reasons also hold requests that were read."""
        super().set_pause(reason, on=on)
        if reason is Pause.ANSWERS_UNREAD:
            self._runner.hold(held=on)
        elif reason is Pause.THROTTLED:
            self._quota.is_paused = on
            self._runner.throttle(on=on)

    @property
    @override
    def holder(self) -> str:
        """See `ServerConnection`."""
        return self._principal or self.network

    @property
    @override
    def is_idle(self) -> bool:
        """Whether no request of the client is running, except long polls."""
        is_waiting = self._adds_pending or self._acks or self._attachments.has_waiting
        return not (is_waiting or self.has_frames_left) and self._runner.is_idle

    @override
    def note_closing(self) -> None:
        """Refuse what waits, because the bookie is closing."""
        self._served.refuse_waiting()

    async def refresh_rights(self, principals: Container[str]) -> None:
        """Compute the client's rights again if it is one of these principals."""
        if self._role is not None and self._attachments.principal in principals:
            polls = self._served.polls
            await self._attachments.refresh(polls.attachments)
            polls.refuse_unreadable()

    @override
    def _overdue_request(self, waited_s: float) -> str | None:
        if self._role is None:
            return self._greeting.overdue(waited_s)
        if self._assembler.is_mid_frame and not self._pause:
            is_late = waited_s > self._context.limits.frame_deadline_s
            return "a frame stays unfinished" if is_late else None
        return None

    def flush_acks(self) -> None:
        """Send the collected answers to adds as one frame."""
        acks, self._acks = self._acks, []
        asked, self._acks_asked = self._acks_asked, {}
        now_s, counters = self._context.now(), self._context.counters
        for (asked_s, is_recovery), count in asked.items():
            counters.add_latency.record(now_s - asked_s, count)
            if not is_recovery:
                self._context.append_latency.record(now_s - asked_s, count, now_s)
        if acks:
            counters.ack_frames += 1
            self._send_answer([acks_frame(acks)])

    # -- one frame

    def _serve_all(self, frames: list[Frame]) -> Iterator[None]:
        for frame in frames:
            if self._transport is None or self._transport.is_closing():
                return
            self._serve(frame)
            yield
        if self._adds_pending:
            self._read_on_if_room()
        if self._context.quotas.appends.is_limited:
            self._quota.note_frames(frames)
        if self._runner.is_full:
            self.set_pause(Pause.REQUESTS_WAIT, on=True)

    def _serve(self, frame: Frame) -> None:
        try:
            if frame.kind is _ADD and self._may_use_ledgers:
                self._add(frame)
            elif frame.kind is FrameKind.REQUEST:
                self._serve_request(frame.request_id, frame.body)
            elif self._role is None:
                self._drop_bad_frame(f"a frame of kind {frame.kind.name} before the hello or login")
            else:
                self._drop_bad_frame(f"a frame of kind {frame.kind.name} is not for a bookie")
        except Exception as error:  # noqa: BLE001 - affects only this connection
            self._context.counters.requests_failed += 1
            self._context.log.failure("request failed", error, kind=frame.kind.name)
            self.abort()

    def _serve_request(self, request_id: int, body: memoryview) -> None:
        try:
            request = decode_request(body)
        except MessageError as error:
            if self._role is None:
                self._drop_bad_frame(str(error))
                return
            self._context.counters.bad_requests += 1
            self._context.log.warning("bad request", **self._origin(), reason=str(error))
            self._refuse(request_id, Status.BAD_REQUEST, str(error))
            return
        if self._role is None or isinstance(request, Hello | BeginLogin | ContinueLogin):
            why = self._greeting.take(request_id, request)
            if why is not None:
                self._drop_bad_frame(why)
        else:
            self._serve_message(request_id, request)

    def _welcome(self, guest: Guest) -> None:
        self._role = guest.role
        self._attachments.greet(guest.principal, is_repair=guest.role == REPAIR)
        self._may_use_ledgers = guest.names_bookie
        who = guest.proved or self._context.proved_by_certificate(self._transport)
        if who != ANONYMOUS:
            self._principal = who.text
        self._quota.greet(who, is_repair=guest.role == REPAIR)

    def _certified(self) -> str:
        return self._context.certified_principal(self._transport)

    def _serve_message(self, request_id: int, request: Request) -> None:
        match request:
            case Ping():
                self._send_answer([reply_frame(request_id, self._context.pong())])
            case AttachLedger(ledger_id=ledger_id, master_key=key):
                self._attach(request_id, ledger_id, key)
            case DetachLedger(ledger_id=ledger_id):
                self._attachments.detach(ledger_id)
            case ReadAccess() | FenceWithoutKey() | ReadRights():
                self._serve_ledger(request_id, request)
            case ReadLac() | WriteLac() | ReadEntries() | ListEntries() | WaitLac():
                self._serve_ledger(request_id, request)
            case ReportLac():
                self._note_lac(request)
            case Hello() | BeginLogin() | ContinueLogin():
                raise AssertionError("greetings are answered before")
            case _:
                assert_never(request)

    def _attach(self, request_id: int, ledger_id: LedgerId, master_key: bytes) -> None:
        limit, attachments = self._context.limits.attached_ledgers_max, self._attachments
        if len(attachments) >= limit and attachments.find(ledger_id) is None:
            self._context.counters.bad_requests += 1
            self._refuse(request_id, Status.BAD_REQUEST, f"{limit} ledgers are attached already")
        elif self._may_use_ledgers:
            attachments.attach(ledger_id, master_key)

    def _note_lac(self, request: ReportLac) -> None:
        attachment = self._attachments.find(request.ledger_id)
        if attachment is not None and self._may_use_ledgers:
            report = partial(self._report_lac, request, attachment)
            self._attachments.once_decided(attachment, 0, report)

    def _report_lac(self, request: ReportLac, attachment: Attachment) -> None:
        if attachment.rights & APPEND_BIT and not self._context.is_closing:
            key = attachment.master_key
            self._context.storage.report_lac(request.ledger_id, request.lac, key, _ignore)
            self._read_on_if_room()

    def _serve_ledger(self, request_id: int, request: AttachedRequest) -> None:
        attachment, asked_s = self._attachments.find(request.ledger_id), self._received_at_s
        if self._context.is_closing:
            self._refuse(request_id, Status.CLOSING, "the bookie is closing")
        elif not self._may(operation_of(request)):
            as_whom = self._role if self._may_use_ledgers else "a client that named no bookie"
            why = f"{as_whom} may not do this: {operation_of(request)}"
            self._refuse(request_id, Status.UNAUTHORIZED, why)
        elif isinstance(request, ReadAccess | FenceWithoutKey):
            self._served.submit(request_id, request, None, asked_s)
        elif attachment is not None:
            call = partial(self._served.serve, request_id, request, attachment, asked_s)
            if not self._attachments.once_decided(attachment, 0, call):
                self._refuse(request_id, Status.UNKNOWN, NO_ROOM)
        elif isinstance(request, ListEntries) and self._attachments.is_exempt:
            self._served.submit(request_id, request, None, asked_s)
        else:
            self._refuse(request_id, Status.UNAUTHORIZED, "the ledger is not attached")

    def _may(self, operation: LedgerOperation) -> bool:
        assert self._role is not None
        return self._may_use_ledgers and authorize(self._role, operation)

    # -- adds

    def _add(self, frame: Frame) -> None:
        context = self._context
        self._adds_pending += 1
        recovery = bool(frame.flags & ADD_RECOVERY)
        done = partial(self._acknowledge, frame.request_id, (self._received_at_s, recovery))
        if context.is_closing:
            done(Status.CLOSING)
            return
        try:
            batch = checked_batch(frame.body, context.limits.entry_bytes_max)
        except BatchError as error:
            context.counters.bad_requests += 1
            context.log.warning("bad batch", **self._origin(), reason=str(error))
            done(Status.BAD_REQUEST)
            return
        attachment = self._attachments.find(batch.header.ledger_id)
        if attachment is None:
            done(Status.UNAUTHORIZED)
        elif attachment.rights & (RECOVERY_ADD_BIT if recovery else APPEND_BIT):
            context.add(batch, recovery=recovery, master_key=attachment.master_key, done=done)
        else:
            add = partial(
                self._add_or_refuse, frame.request_id, batch, attachment, done, recovery=recovery
            )
            if not self._attachments.once_decided(attachment, len(batch.data), add):
                done(Status.UNKNOWN)

    def _add_or_refuse(
        self,
        request_id: int,
        batch: BatchView,
        attachment: Attachment,
        done: Callable[[Status], None],
        *,
        recovery: bool,
    ) -> None:
        """Add or refuse a batch, once the rights are known or cannot be read."""
        context = self._context
        if context.is_closing:
            done(Status.CLOSING)
        elif attachment.rights & (RECOVERY_ADD_BIT if recovery else APPEND_BIT):
            context.add(batch, recovery=recovery, master_key=attachment.master_key, done=done)
            self._read_on_if_room()
        else:
            self._adds_pending -= 1
            self._served.refuse_add(request_id, attachment, recovery=recovery)

    def _read_on_if_room(self) -> None:
        if not self._context.storage.has_room:
            self._context.pause_until_room(self)

    def _acknowledge(self, request_id: int, asked: _Asked, status: Status) -> None:
        context = self._context
        self._adds_pending -= 1
        context.counters.adds_by_status[status] += 1
        if not self._acks:
            context.note_acks(self.flush_acks)
        self._acks.append((request_id, status))
        self._acks_asked[asked] = self._acks_asked.get(asked, 0) + 1

    # -- answers

    def _must_wait(self) -> bool:
        """Return whether reads wait: the client does not read, or has no room for an answer."""
        is_unread = bool(self._pause & Pause.ANSWERS_UNREAD)
        return is_unread or not self._room.has_room(self._context.limits.read_bytes_max)

    def _send_answer(self, buffers: list[Buffer], reserved: int = 0) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            self._room.release(reserved)
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif buffers:
            write_all(transport, buffers, self._context.limits.write_buffer_bytes_max)
        self.note_written(reserved)
        if self._pause is not Pause.NONE and not self._runner.is_full:
            self.set_pause(Pause.REQUESTS_WAIT, on=False)

    def _peer(self) -> str:
        return str(self._origin()["peer"])

    def _refuse(self, request_id: int, status: Status, reason: str) -> None:
        self._send_answer([refusal_frame(request_id, status, reason)])


async def follow_grants(context: ServerContext) -> None:
    """Give the connections of clients their new rights after each change of grants (rule 12.5),
    until cancelled.
    """
    assert context.authorizer is not None, "grants matter only with an authorizer"
    while True:
        changed = await context.authorizer.wait_for_changes()
        for connection in list(context.connections):
            await cast("ClientConnection", connection).refresh_rights(changed)


def _ignore(_status: Status) -> None:
    """Do nothing: the caller needs no answer."""


def checked_batch(body: memoryview, entry_bytes_max: int) -> BatchView:
    """Return a view of the batch in a frame's body. Raises BatchError when it is malformed, or when
    it or one of its entries is too large.
    """
    batch = BatchView(body)
    if len(batch.data) != len(body):
        raise BatchError(f"{len(body) - len(batch.data)} bytes after the batch")
    if len(body) > BATCH_BYTES_MAX:
        raise BatchError(f"a batch of {len(body)} bytes is over the limit of {BATCH_BYTES_MAX}")
    # If all payloads together are below the limit, each of them is.
    if batch.header.payload_bytes > entry_bytes_max and max(batch.lengths) > entry_bytes_max:
        raise BatchError(
            f"an entry of {max(batch.lengths)} bytes is over the limit of {entry_bytes_max}"
        )
    return batch
