"""One connection from one client to one bookie, with many requests at a time.

Leaves opening and renewing connections to `ledger_client.bookies.pool_link`, and the bytes to
`bookie.wire`.

Invariants: every add and every call ends exactly once: by its answer, its deadline, or the end of
the connection; the frames of one loop iteration are sent together, except the first frame to a
bookie with no unanswered request; an answer of the wrong type ends the connection; a silent
connection is tested with a ping and then closed, so that a half-open connection is detected.

Source: protocol rules 2.3, 4.2, 4.6; storage design, "The batch", "Limits and refusals".
"""

import asyncio
import math
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from bookie.wire.batch import Buffer
from bookie.wire.codec import Entries, decode_acks, decode_entries, decode_reply, encode_message
from bookie.wire.errors import WireError
from bookie.wire.frames import (
    ADD_RECOVERY,
    FRAME_BYTES_MAX,
    REQUEST_ID_MODULUS,
    BodyPool,
    Frame,
    FrameAssembler,
    FrameKind,
    frame_header,
)
from bookie.wire.messages import (
    AttachLedger,
    DetachLedger,
    Hello,
    HelloReply,
    Ping,
    Pong,
    Refused,
    Reply,
    Request,
    Status,
)
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure, PendingAdd
from metadata.ids import BookieId, LedgerId

SWEEP_PERIOD_S: Final = 0.25
HELD_UP_PATIENCE: Final = 2
"""Number of timeouts that an add is given when the loop itself was late to check."""
RECOVERY_ADD_S_MAX: Final = 60.0
"""Maximum time for an add of a recovery or a copy, while the bookie answers others of them."""
PING_AFTER_S: Final = 2.5
"""Silence, with unanswered requests, after which a ping is sent."""
PING_IDLE_S: Final = 20.0
"""Silence, without unanswered requests, after which a ping is sent."""
PING_TIMEOUT_S: Final = 2.5
CALLS_MAX: Final = 10_000
ANSWER_BYTES_TRUSTED_MAX: Final = 4 * 1024 * 1024 + 64 * 1024
"""Maximum size of the buffer provided at once for the next answer of a bookie that sent a large
one: the size that a read requests with the default limits.
"""
PIECE_BYTES: Final = 256 * 1024
JOINED_BYTES_MAX: Final = 32 * 1024
"""Maximum size of parts that are joined with their neighbours: below it, a copy is cheaper than a
call.
"""
TRANSPORT_BYTES_HIGH: Final = 256 * 1024
TRANSPORT_BYTES_LOW: Final = 64 * 1024
_ADD: Final = FrameKind.ADD  # a lookup in the enumeration costs as much as the header
Answer = Reply | Entries


RefusedCallback = Callable[[BookieId, LedgerId, Refused], None]


LostCallback = Callable[["BookieConnection", CallFailure, str], None]


@dataclass(slots=True)
class _Call:
    expects: type[object]
    reply: "asyncio.Future[Answer] | None"  # None: a ping for which nothing waits


class BookieConnection(asyncio.BufferedProtocol):
    """One connection, from its hello to its end. Created by `loop.create_connection`."""

    def __init__(
        self,
        bookie_id: BookieId,
        hello: Hello,
        *,
        add_timeout_s: float,
        on_lost: LostCallback,
        on_latency: Callable[[float, float, int], None],
        bodies: BodyPool | None = None,
        on_refused: RefusedCallback | None = None,
    ) -> None:
        """Create a connection. Answers are received into buffers of `bodies`, if given."""
        self.bookie_id = bookie_id
        self.unanswered = [0, 0]  # bytes of unanswered adds: of writers, and of recoveries
        self.attached: dict[LedgerId, None] = {}
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.is_open = False  # the hello was accepted and the connection has not ended
        self.is_welcome = False
        """Whether the bookie takes any request: the login is complete, if there is one."""
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[HelloReply] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.opened.add_done_callback(_mark_retrieved)
        self._loop = loop
        self._hello = hello
        self._add_timeout_s = add_timeout_s
        self._on_lost = on_lost
        self._on_latency = on_latency
        self._on_refused = on_refused
        self._transport: asyncio.Transport | None = None
        self._assembler = FrameAssembler(bodies=bodies, trusted_bytes_max=ANSWER_BYTES_TRUSTED_MAX)
        self._writes = ConnectionWrites(loop)
        self._adds: dict[int, tuple[PendingAdd, float]] = {}  # with the loop time of sending
        self._calls: dict[int, _Call] = {}
        self._last_request_id = 0
        self._last_received_at = 0.0
        self._recovery_answered_at = -math.inf
        self._pinged_at: float | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_due_at = 0.0
        self._loss: tuple[CallFailure, str] | None = None

    # Requests of the pool

    @property
    def waiting_bytes(self) -> int:
        """Bytes held for this bookie: writers' unanswered adds, or what the socket rejected."""
        if not self._writes.is_paused:
            return self.unanswered[0]  # the socket accepts everything
        return max(self.unanswered[0], self._writes.waiting_bytes - self.unanswered[1])

    @property
    def oldest_add_sent_at(self) -> float | None:
        """Loop time at which the oldest unanswered add was sent."""
        for _, sent_at in self._adds.values():
            return sent_at
        return None

    def send_add(self, add: PendingAdd) -> None:
        """Send one batch; the connection must be open."""
        assert self.is_open, "adds are sent on open connections"
        request_id, size = self._next_request_id(), len(add.batch)
        is_idle = not self._adds and not self._calls
        self._adds[request_id] = (add, self._loop.time())
        self.unanswered[add.recovery] += size
        flags = ADD_RECOVERY if add.recovery else 0
        self._writes.send(frame_header(_ADD, request_id, size, flags), add.batch, at_once=is_idle)

    async def call(self, request: Request, expects: type[object]) -> Answer:
        """Send a request and return its answer. Raises BookieCallError, also for a refusal. The
        caller must limit the time.
        """
        if self._loss is not None:
            raise self._error(*self._loss)
        if len(self._calls) >= CALLS_MAX:
            raise self._error(CallFailure.OVERFLOW, f"{CALLS_MAX} requests are unanswered")
        reply: asyncio.Future[Answer] = self._loop.create_future()
        request_id = self._send_request(request, _Call(expects, reply))
        try:
            return await reply
        finally:
            self._calls.pop(request_id, None)

    def attach(self, ledger_id: LedgerId, master_key: bytes) -> None:
        """Send a ledger's key before later requests for that ledger."""
        self.attached[ledger_id] = None
        self._send_request(AttachLedger(ledger_id, master_key), None)

    def send_one_way(self, request: Request) -> None:
        """Send a request that has no answer."""
        self._send_request(request, None)

    def detach(self, ledger_id: LedgerId) -> None:
        """Make the bookie drop a ledger's key."""
        if self.attached.pop(ledger_id, ledger_id) is None and self.is_open:
            self._send_request(DetachLedger(ledger_id), None)

    def close(self, failure: CallFailure, reason: str) -> None:
        """End the connection at once; everything under way fails with this reason."""
        if self._loss is not None:
            return
        self._loss, self.is_open = (failure, reason), False
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._writes.stop()
        if self._transport is not None:
            self._transport.abort()
        elif not self.ended.done():
            self.ended.set_result(None)
        self._on_lost(self, failure, reason)
        self._fail_all(failure, reason)

    # Calls from the transport

    # (`typing.override` needs Python 3.12.)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[explicit-override]
        """Send the hello."""
        # Transports of event loops other than asyncio's do not inherit from Transport.
        self._transport = cast("asyncio.Transport", transport)
        if self._loss is not None:
            self._transport.abort()
            return
        set_socket_options(self._transport)
        self._writes.attach(self._transport)
        self._last_received_at = self._loop.time()
        self._arm_sweep()
        self._send_request(self._hello, _Call(HelloReply, None))

    def connection_lost(self, exc: Exception | None) -> None:  # type: ignore[explicit-override]
        """Fail everything under way."""
        if not self.ended.done():
            self.ended.set_result(None)
        self.close(CallFailure.LOST, str(exc) if exc is not None else "the bookie closed it")

    def pause_writing(self) -> None:  # type: ignore[explicit-override]
        """Stop sending."""
        self._writes.pause()

    def resume_writing(self) -> None:  # type: ignore[explicit-override]
        """Continue sending."""
        self._writes.resume()

    def get_buffer(self, sizehint: int) -> memoryview:  # type: ignore[explicit-override]
        """Return the buffer for the next bytes."""
        return self._assembler.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:  # type: ignore[explicit-override]
        """Process the frames that are complete now."""
        self._last_received_at = self._loop.time()
        self._pinged_at = None
        try:
            for frame in self._assembler.buffer_updated(nbytes):
                if self._loss is not None:
                    return
                self._take(frame)
        except WireError as error:
            self.close(CallFailure.PROTOCOL, str(error))

    # Inside

    def _take(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.ACKS:
                self._take_acks(decode_acks(frame.body))
            case FrameKind.ENTRIES:
                self._take_answer(frame.request_id, decode_entries(frame.body))
            case FrameKind.REPLY:
                self._take_reply(frame.request_id, decode_reply(frame.body))
            case FrameKind.REQUEST | FrameKind.ADD:
                self.close(CallFailure.PROTOCOL, f"a bookie sent a frame of kind {frame.kind.name}")

    def _take_acks(self, acks: Sequence[tuple[int, Status]]) -> None:
        sent: dict[float, int] = {}  # number of adds by their time of sending
        for request_id, status in acks:
            if request_id in self._calls:
                self.close(CallFailure.PROTOCOL, "it sent an ack for a request that is not an add")
            if request_id not in self._adds:
                continue  # late: its deadline has passed
            add, sent_at = self._adds.pop(request_id)
            self.unanswered[add.recovery] -= len(add.batch)
            if add.recovery:
                self._recovery_answered_at = self._last_received_at
            sent[sent_at] = sent.get(sent_at, 0) + 1
            add.sink.on_add_answered(self.bookie_id, add.first_entry_id, status)
        for sent_at, count in sent.items():
            self._on_latency(sent_at, self._last_received_at, count)

    def _take_reply(self, request_id: int, reply: Reply) -> None:
        if isinstance(reply, Refused) and request_id in self._adds:
            if self._on_refused is not None:
                self._on_refused(self.bookie_id, self._adds[request_id][0].ledger_id, reply)
            self._take_acks([(request_id, reply.status)])
        elif isinstance(reply, HelloReply) or not self.opened.done():
            self._take_hello(reply)
        else:
            self._take_answer(request_id, reply)

    def _take_answer(self, request_id: int, answer: Answer) -> None:
        call = self._calls.pop(request_id, None)
        if call is None:
            if request_id in self._adds:
                self.close(CallFailure.PROTOCOL, f"{type(answer).__name__} sent for an add")
            return  # late: nothing waits for it any more
        if isinstance(answer, Refused):
            if call.reply is not None and not call.reply.done():
                call.reply.set_exception(
                    BookieCallError(self.bookie_id, answer.reason, status=answer.status)
                )
        elif not isinstance(answer, call.expects):
            self._calls[request_id] = call
            what = f"it sent {type(answer).__name__} instead of {call.expects.__name__}"
            self.close(CallFailure.PROTOCOL, what)
        elif call.reply is not None and not call.reply.done():
            call.reply.set_result(answer)

    def _take_hello(self, reply: Reply) -> None:
        if self.opened.done() or not isinstance(reply, HelloReply | Refused):
            self.close(CallFailure.PROTOCOL, f"{type(reply).__name__} sent, no hello was due")
        elif reply.status is not Status.OK or isinstance(reply, Refused):
            why = BookieCallError(self.bookie_id, reply.reason, status=reply.status)
            self.opened.set_exception(why)
            self.close(CallFailure.REFUSED, f"hello refused: {reply.status.name}: {reply.reason}")
        elif (wrong := violation_of(reply, self._hello, self.bookie_id)) is not None:
            self.close(CallFailure.PROTOCOL, wrong)
        else:
            self._calls.clear()  # the hello's entry
            self.frame_bytes_max = min(reply.frame_bytes_max, FRAME_BYTES_MAX)
            self._assembler.allow(FRAME_BYTES_MAX)
            self.is_open = True
            self.opened.set_result(reply)

    def _send_request(self, request: Request, call: _Call | None) -> int:
        request_id = self._next_request_id()
        # If nothing is unanswered, a frame is sent at once, without waiting for others.
        is_idle = not self._adds and not self._calls
        if call is not None:
            self._calls[request_id] = call
        body = encode_message(request)
        header = frame_header(FrameKind.REQUEST, request_id, len(body))
        self._writes.send(header, body, at_once=is_idle and call is not None)
        return request_id

    def _next_request_id(self) -> int:
        request_id = self._last_request_id
        while True:
            request_id = (request_id + 1) % REQUEST_ID_MODULUS
            if request_id not in self._adds and request_id not in self._calls:
                self._last_request_id = request_id
                return request_id

    def _sweep(self) -> None:
        now = self._loop.time()
        was_held_up = now - self._sweep_due_at > SWEEP_PERIOD_S
        self._arm_sweep()
        # If this process was held up, answers may have arrived that are not read yet.
        self._fail_late_adds(now, self._add_timeout_s * (HELD_UP_PATIENCE if was_held_up else 1))
        if self._loss is not None or was_held_up:
            return
        if self._pinged_at is not None:
            if now - self._pinged_at >= PING_TIMEOUT_S:
                silence = now - self._last_received_at
                self.close(CallFailure.LOST, f"nothing was received for {silence:.1f} s")
        elif now - self._last_received_at >= self._ping_after_s() and self.is_welcome:
            self._pinged_at = now
            self._send_request(Ping(), _Call(Pong, None))

    def _arm_sweep(self) -> None:
        self._sweep_due_at = self._loop.time() + SWEEP_PERIOD_S
        self._sweep_timer = self._loop.call_at(self._sweep_due_at, self._sweep)

    def _ping_after_s(self) -> float:
        return PING_AFTER_S if self._adds or self._calls else PING_IDLE_S

    def _fail_late_adds(self, now: float, timeout_s: float) -> None:
        # The adds are in the order of sending. A bookie compares a recovery's adds with what it has
        # stored, and a recovery sends many at once: they wait while it answers one after the other.
        answers = now - self._recovery_answered_at < timeout_s
        late: list[int] = []
        for request_id, (add, sent_at) in self._adds.items():
            if now - sent_at < timeout_s:
                break
            if not (add.recovery and answers and now - sent_at < RECOVERY_ADD_S_MAX):
                late.append(request_id)
        for request_id in late:
            add, sent_at = self._adds.pop(request_id)
            self.unanswered[add.recovery] -= len(add.batch)
            why = f"it did not answer an add for {now - sent_at:.1f} s"
            self._fail_add(add, CallFailure.TIMEOUT, why)

    def _fail_all(self, failure: CallFailure, reason: str) -> None:
        adds, self._adds = self._adds, {}
        calls, self._calls = self._calls, {}
        self.unanswered = [0, 0]
        if not self.opened.done():
            self.opened.set_exception(self._error(failure, reason))
        for call in calls.values():
            if call.reply is not None and not call.reply.done():
                call.reply.set_exception(self._error(failure, reason))
        for add, _ in adds.values():
            self._fail_add(add, failure, reason)

    def _fail_add(self, add: PendingAdd, failure: CallFailure, reason: str) -> None:
        # Called by the loop: it reports an error of one sink, and the others still run.
        self._loop.call_soon(
            add.sink.on_add_failed, self.bookie_id, add.first_entry_id, failure, reason
        )

    def _error(self, failure: CallFailure, reason: str) -> BookieCallError:
        return BookieCallError(self.bookie_id, reason, failure=failure)


def _mark_retrieved(opened: "asyncio.Future[HelloReply]") -> None:
    if not opened.cancelled():
        opened.exception()


@dataclass(eq=False, repr=False, slots=True)
class ConnectionWrites:
    """Bytes that wait to be sent over one connection.

    Bytes leave in the order of the calls. A transport receives little more than its socket accepts,
    because it would copy the rest. A frame's buffer is kept, never copied as one.
    """

    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport | None = field(default=None, init=False)
    _parts: deque[Buffer] = field(default_factory=deque, init=False)
    _size: int = field(default=0, init=False)
    _are_all_small: bool = field(default=True, init=False)
    _is_flush_due: bool = field(default=False, init=False)
    is_paused: bool = field(default=False, init=False)
    """Whether the socket accepts no bytes."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the socket has not accepted yet."""
        if self._transport is None:
            return self._size
        return self._size + self._transport.get_write_buffer_size()

    def attach(self, transport: asyncio.Transport) -> None:
        """Send through this transport from now on."""
        transport.set_write_buffer_limits(TRANSPORT_BYTES_HIGH, TRANSPORT_BYTES_LOW)
        self._transport = transport

    def send(self, header: bytes, body: Buffer, *, at_once: bool) -> None:
        """Send a frame, at once or with all others of this loop iteration. Its body must not be
        changed afterwards.
        """
        size = len(body)
        self._parts += (header, body)
        self._size += len(header) + size
        if size > JOINED_BYTES_MAX:
            self._are_all_small = False
        if at_once:
            self._flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_due)

    def pause(self) -> None:
        """Stop writing to the transport."""
        self.is_paused = True

    def resume(self) -> None:
        """Continue writing to the transport."""
        self.is_paused = False
        self._flush()

    def stop(self) -> None:
        """Drop everything; send nothing any more."""
        self._parts.clear()
        self._size = 0
        self._transport = None

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        while transport is not None and self._parts and not self.is_paused:
            piece = self._next_piece()
            self._size -= len(piece)
            transport.write(piece)
        self._are_all_small = self._are_all_small or not self._parts

    def _next_piece(self) -> Buffer:
        """Return small parts joined, or one piece of a large part."""
        parts = self._parts
        if self._are_all_small and self._size <= PIECE_BYTES:
            whole = b"".join(parts)
            parts.clear()
            return whole
        if len(parts[0]) > JOINED_BYTES_MAX:
            part = memoryview(parts.popleft())
            if len(part) > PIECE_BYTES:
                parts.appendleft(part[PIECE_BYTES:])
            return part[:PIECE_BYTES]
        joined: list[Buffer] = []
        size = 0
        while parts and len(parts[0]) <= JOINED_BYTES_MAX and size < PIECE_BYTES:
            size += len(parts[0])
            joined.append(parts.popleft())
        return b"".join(joined)


def set_socket_options(transport: asyncio.Transport) -> None:
    """Send small frames at once, and notice a peer that is gone."""
    sock: object = transport.get_extra_info("socket")
    if sock is None:
        return  # a simulated network
    set_option = getattr(sock, "setsockopt", None)
    assert set_option is not None
    set_option(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    family: object = getattr(sock, "family", None)
    if family in (socket.AF_INET, socket.AF_INET6):
        set_option(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def violation_of(reply: HelloReply, hello: Hello, bookie_id: BookieId) -> str | None:
    """Return what is wrong with the acceptance of a hello to a bookie; None if nothing is."""
    if reply.bookie_id != bookie_id:
        return f"the hello reached {reply.bookie_id}"
    if not hello.wire_version_min <= reply.wire_version <= hello.wire_version_max:
        return f"it chose wire version {reply.wire_version}"
    if reply.features & ~hello.features:
        return f"it chose features {reply.features:#x}, of {hello.features:#x}"
    return None
