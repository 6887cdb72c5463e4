"""Connection of one client: decodes frames, passes adds to the storage, and sends answers.

Leaves waiting requests to `bookie.server.request_runner`, long polls to `bookie.server.long_polls`,
pauses and the end of a connection to `serving.connection`, listening to `bookie.server.server`.

Invariants: no request is executed before the client's hello is accepted; a complete request is
answered once, unless the connection is lost; reading pauses while the storage has no room, while
too many requests wait, and while the client does not read its answers.

Source: protocol rules 2.3, 4.3; storage design, "Limits and refusals".
"""

from functools import partial
from typing import Final, assert_never

from bookie.server.incoming_batch import checked_batch
from bookie.server.ledger_requests import LedgerRequest, LedgerRequests, operation_of
from bookie.server.long_polls import LongPolls
from bookie.server.request_runner import RequestRunner
from bookie.server.server_access import LedgerOperation, Principal, authorize
from bookie.server.server_answers import acks_frame, refusal_frame, reply_frame
from bookie.server.server_context import ServerContext
from bookie.wire.batch import Buffer
from bookie.wire.codec import decode_request
from bookie.wire.errors import BatchError, FrameError, MessageError
from bookie.wire.frames import ADD_RECOVERY, Frame, FrameAssembler, FrameKind
from bookie.wire.messages import (
    AttachLedger,
    DetachLedger,
    FenceWithoutKey,
    Hello,
    ListEntries,
    Ping,
    ReadAccess,
    ReadEntries,
    ReadLac,
    ReportLac,
    Request,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import LedgerId
from serving.connection import ServerConnection
from serving.overriding import override
from serving.pause import Pause
from serving.transport_writing import write_all

# Looked up once, because a look-up in an enumeration is slow.
_ADD: Final = FrameKind.ADD
_MAY_ADD: Final = LedgerOperation.ADD
_MAY_RECOVER: Final = LedgerOperation.RECOVERY_ADD

_Asked = tuple[float, bool]
"""Arrival time of adds, and whether they are of a recovery or a repair."""


class ClientConnection(ServerConnection):
    """Connection of one client, from accept to loss."""

    _context: ServerContext

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self._assembler = FrameAssembler(bodies=context.bodies)
        self._principal: Principal | None = None
        self._is_greeting = False  # a hello waits for the check of its credentials
        self._may_use_ledgers = False
        self._master_keys: dict[LedgerId, bytes] = {}
        self._acks: list[tuple[int, Status]] = []
        self._acks_asked: dict[_Asked, int] = {}  # their number
        self._adds_pending = 0
        self._received_at_s = 0.0
        limits, counters = context.limits, context.counters
        self._runner = RequestRunner(limits, context.log, counters, self._send_answer)
        self._requests = LedgerRequests(context.storage, limits, counters, context.now)
        self._polls = LongPolls(
            context.storage, self._requests, self._runner, limits, counters, self._send_answer
        )

    # -- called by the transport

    @override
    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        super().connection_lost(error)
        self._runner.cancel()
        self._polls.cancel()

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
        for frame in frames:
            if self._transport is None or self._transport.is_closing():
                return
            self._serve(frame)
        if self._adds_pending:
            self._read_on_if_room()
        if self._runner.is_full:
            self.set_pause(Pause.REQUESTS_WAIT, on=True)

    @override
    def pause_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        super().pause_writing()
        self._runner.hold(held=True)

    @override
    def resume_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        super().resume_writing()
        self._runner.hold(held=False)

    # -- called by the server

    @property
    @override
    def is_idle(self) -> bool:
        """Whether no request of the client is running, except long polls."""
        return not self._adds_pending and not self._acks and self._runner.is_idle

    @override
    def note_closing(self) -> None:
        """Refuse the waiting long polls, because the bookie is closing."""
        self._polls.refuse_all()

    @override
    def _overdue_request(self, waited_s: float) -> str | None:
        limits = self._context.limits
        if self._principal is None:
            return "no hello" if waited_s > limits.hello_deadline_s else None
        if self._assembler.is_mid_frame and not self._pause:
            return "a frame stays unfinished" if waited_s > limits.frame_deadline_s else None
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

    def _serve(self, frame: Frame) -> None:
        try:
            if frame.kind is _ADD and self._may_use_ledgers:
                self._add(frame)
            elif frame.kind is FrameKind.REQUEST:
                self._serve_request(frame.request_id, frame.body)
            elif self._principal is None:
                self._drop_bad_frame(f"a frame of kind {frame.kind.name} before the hello")
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
            if self._principal is None:
                self._drop_bad_frame(str(error))
                return
            self._context.counters.bad_requests += 1
            self._context.log.warning("bad request", **self._origin(), reason=str(error))
            self._refuse(request_id, Status.BAD_REQUEST, str(error))
            return
        if isinstance(request, Hello):
            self._greet(request_id, request)
        elif self._principal is None:
            self._drop_bad_frame(f"{type(request).__name__} before the hello")
        else:
            self._serve_message(request_id, request)

    def _greet(self, request_id: int, hello: Hello) -> None:
        if self._principal is not None or self._is_greeting:
            self._drop_bad_frame("a second hello")
        elif self._context.access.authenticate(hello.credentials) is None:
            self._is_greeting = True
            self._runner.submit(request_id, 0, partial(self._learn_and_greet, request_id, hello))
        else:
            self._answer_hello(request_id, hello)

    async def _learn_and_greet(self, request_id: int, hello: Hello) -> list[Buffer]:
        await self._context.access.learn()
        self._answer_hello(request_id, hello)
        return []  # the answer is sent

    def _answer_hello(self, request_id: int, hello: Hello) -> None:
        reply, principal = self._context.answer_hello(hello)
        self._send_answer([reply_frame(request_id, reply)])
        if principal is None:
            self._context.counters.hellos_refused += 1
            self._context.log.audit.refused(
                "hello",
                who="unknown",
                peer=str(self._origin()["peer"]),
                client=hello.client_name,
                reason=reply.reason,
            )
            self.close()
            return
        self._principal = principal
        self._may_use_ledgers = bool(hello.bookie_id)
        self._assembler.allow(self._context.limits.frame_bytes_max)

    def _serve_message(self, request_id: int, request: Request) -> None:
        match request:
            case Ping():
                self._send_answer([reply_frame(request_id, self._context.pong())])
            case AttachLedger(ledger_id=ledger_id, master_key=key):
                self._attach(request_id, ledger_id, key)
            case DetachLedger(ledger_id=ledger_id):
                self._master_keys.pop(ledger_id, None)
            case ReadAccess() | FenceWithoutKey():
                self._serve_ledger(request_id, request)
            case ReadLac() | WriteLac() | ReadEntries() | ListEntries() | WaitLac():
                self._serve_ledger(request_id, request)
            case ReportLac():
                self._note_lac(request)
            case Hello():
                raise AssertionError("a hello is answered before")
            case _:
                assert_never(request)

    def _attach(self, request_id: int, ledger_id: LedgerId, master_key: bytes) -> None:
        limit = self._context.limits.attached_ledgers_max
        if ledger_id not in self._master_keys and len(self._master_keys) >= limit:
            self._context.counters.bad_requests += 1
            self._refuse(request_id, Status.BAD_REQUEST, f"{limit} ledgers are attached already")
            return
        self._master_keys[ledger_id] = master_key

    def _note_lac(self, request: ReportLac) -> None:
        key = self._master_keys.get(request.ledger_id)
        if key is None or self._context.is_closing:
            return
        if self._may(LedgerOperation.WRITE_LAC, request.ledger_id):
            self._context.storage.report_lac(request.ledger_id, request.lac, key, _ignore)
            self._read_on_if_room()

    def _serve_ledger(self, request_id: int, request: LedgerRequest | WaitLac) -> None:
        key = self._master_keys.get(request.ledger_id)
        if self._context.is_closing:
            self._refuse(request_id, Status.CLOSING, "the bookie is closing")
        elif not self._may(operation_of(request), request.ledger_id):
            as_whom = self._principal if self._may_use_ledgers else "a client that named no bookie"
            why = f"{as_whom} may not do this: {operation_of(request)}"
            self._refuse(request_id, Status.UNAUTHORIZED, why)
        elif isinstance(request, ListEntries | ReadAccess | FenceWithoutKey):
            self._submit(request_id, request, key)
        elif key is None:
            self._refuse(request_id, Status.UNAUTHORIZED, "the ledger is not attached")
        elif isinstance(request, WaitLac):
            if self._polls.is_full:
                self._refuse(request_id, Status.BAD_REQUEST, "too many long polls are waiting")
            else:
                self._polls.wait(request_id, request, key)
        else:
            self._read_or_submit(request_id, request, key)

    def _read_or_submit(self, request_id: int, request: LedgerRequest, key: bytes) -> None:
        # While answers are unread, reads from memory wait in the queue too.
        if isinstance(request, ReadEntries) and not self._pause & Pause.ANSWERS_UNREAD:
            answer = self._requests.try_read(request_id, request, key, self._received_at_s)
            if answer is not None:
                self._send_answer(answer)
                return
        self._submit(request_id, request, key)

    def _submit(self, request_id: int, request: LedgerRequest, key: bytes | None) -> None:
        size, answer = self._requests.bytes_of(request), self._requests.answer
        answering = partial(answer, request_id, request, key, self._received_at_s)
        self._runner.submit(request_id, size, answering)

    def _may(self, operation: LedgerOperation, ledger_id: LedgerId) -> bool:
        assert self._principal is not None
        return self._may_use_ledgers and authorize(self._principal, operation, ledger_id)

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
        ledger_id = batch.header.ledger_id
        key = self._master_keys.get(ledger_id)
        operation = _MAY_RECOVER if recovery else _MAY_ADD
        if key is None or not self._may(operation, ledger_id):
            done(Status.UNAUTHORIZED)
            return
        context.add(batch, recovery=recovery, master_key=key, done=done)

    def _read_on_if_room(self) -> None:
        if not self._context.storage.has_room:
            self._context.pause_until_room(self)

    def _acknowledge(self, request_id: int, asked: _Asked, status: Status) -> None:
        context = self._context
        self._adds_pending -= 1
        context.counters.adds_by_status[status] += 1
        if not self._acks:
            context.note_acks(self)
        self._acks.append((request_id, status))
        self._acks_asked[asked] = self._acks_asked.get(asked, 0) + 1

    # -- answers

    def _send_answer(self, buffers: list[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif buffers:
            write_all(transport, buffers, self._context.limits.write_buffer_bytes_max)
        if self._pause is not Pause.NONE and not self._runner.is_full:
            self.set_pause(Pause.REQUESTS_WAIT, on=False)

    def _refuse(self, request_id: int, status: Status, reason: str) -> None:
        self._send_answer([refusal_frame(request_id, status, reason)])


def _ignore(_status: Status) -> None:
    """Do nothing: the caller needs no answer."""
