"""Sockets of a broker: its listeners, each client's connection, and what connections share.

Leaves the meaning of requests to `dispatch`, which of them wait for earlier ones to
`request_order`, and to `quire.server` what all servers do alike: pauses, deadlines, limits of
addresses, and closing.

Source: Kafka's protocol guide, section "Network" (order of requests and answers); KIP-219 for
throttling.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from bookie.wire.frames import BodyPool
from broker_layer.kafka.errors import KafkaFrameError, UnsupportedVersionError
from broker_layer.kafka.frames import Buffer, RequestHeader, read_request_header
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.access import FRAME_BYTES_MAX as LOGIN_FRAME_BYTES_MAX
from broker_layer.server.access import ListenerAccess, Login
from broker_layer.server.exchange import Exchange
from broker_layer.server.frame_assembler import (
    BODY_BYTES_AT_FIRST,
    RECEIVE_BUFFER_BYTES,
    KafkaFrameAssembler,
)
from broker_layer.server.listeners import ListenerAddress
from broker_layer.server.request_order import place_of
from broker_layer.server.server_limits import BrokerCounters, BrokerLimits
from quire.identity.principal import ANONYMOUS, Principal
from quire.server.connection import Pause, ServerConnection, write_all
from quire.server.connection_context import ConnectionContext
from quire.server.listening import ListeningServer
from quire.server.overriding import override
from quire.server.server_log import ServerLog

JOINED_BYTES_MAX: Final = 16 * 1024
"""Maximum size of answers that are joined into one buffer."""
SLOW_START_S: Final = 2.0
"""Time that a large frame gets, in seconds, while others wait for room; after it the frame must
arrive at the minimum rate."""


class MemoryBudget:
    """Budget of the memory that all connections of one broker use for requests.

    Invariants: a holder releases exactly the bytes that it took; waiting holders continue in the
    order in which they came, and only while there is room. The used bytes exceed the limit by at
    most one frame or one receive buffer per connection.
    """

    __slots__ = ("_bytes_max", "_waiting", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[int, Callable[[], None]] = {}
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no connection should read more."""
        return self.used_bytes >= self._bytes_max

    @property
    def waiting_count(self) -> int:
        """The number of holders that wait for room."""
        return len(self._waiting)

    def take(self, count: int) -> None:
        """Add `count` to the used bytes."""
        self.used_bytes += count

    def give_back(self, count: int) -> None:
        """Release `count` bytes; call waiting holders while there is room."""
        assert self.used_bytes >= count, "more bytes are released than were taken"
        self.used_bytes -= count
        while self._waiting and not self.is_full:
            self._waiting.pop(next(iter(self._waiting)))()

    def wait(self, holder: int, resume: Callable[[], None]) -> None:
        """Call `resume` once there is room; a holder that waits already is ignored."""
        self._waiting.setdefault(holder, resume)

    def cancel_wait(self, holder: int) -> None:
        """Remove a holder from the waiting ones."""
        self._waiting.pop(holder, None)


class ServerContext(ConnectionContext):
    """The buffers and budgets that connections share; belongs to one event loop."""

    limits: BrokerLimits
    counters: BrokerCounters

    def __init__(
        self,
        limits: BrokerLimits,
        counters: BrokerCounters,
        log: ServerLog,
        now: Callable[[], float],
        serve: Callable[[Exchange], None],
    ) -> None:
        """`serve` receives every request, and never waits."""
        super().__init__(limits, counters, log, now)
        self.serve = serve
        self.budget = MemoryBudget(limits.request_bytes_max)
        self.announced = MemoryBudget(limits.request_bytes_max // 2)
        """Budget of unfinished frames; small ones are not counted."""
        self.bodies = BodyPool(limits.bodies_bytes_max)
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.note_closed: Callable[[int], None] = lambda _: None
        """Called with the id of each connection that is closed."""
        self._connection_id = 0

    def next_connection_id(self) -> int:
        """Return a number that no other connection has."""
        self._connection_id += 1
        return self._connection_id


class BrokerConnection(ServerConnection):
    """One client's connection, from accept to close.

    Invariants: answers are sent strictly in the order of the requests; a request that could see the
    work of an earlier one, or disturb it, begins when all earlier ones are answered; a complete
    frame is answered once, or the connection is closed; nothing is read while too many requests or
    bytes wait, while the broker has no memory for more, while a partition has no room, or while the
    peer does not read its answers. The announced sizes of unfinished frames are counted separately
    from requests. So a client that announces a large frame and sends little delays only other large
    frames, and only briefly.
    """

    _context: ServerContext

    def __init__(self, context: ServerContext, access: ListenerAccess) -> None:
        super().__init__(context)
        self._access = access
        self.listener = access.name
        self.connection_id = context.next_connection_id()
        self.client_host = ""
        self.principal: Principal = ANONYMOUS
        self.is_private = False
        frame_bytes_max = context.limits.frame_bytes_max
        if access.logins is not None:
            frame_bytes_max = min(frame_bytes_max, LOGIN_FRAME_BYTES_MAX)
        self._assembler = KafkaFrameAssembler(
            context.receive_buffer, frame_bytes_max, context.bodies
        )
        self._login: Login | None = None
        self._exchanges: deque[Exchange] = deque()
        self._kinds = 0
        """Set of the kinds of the unanswered requests, as bits of `Place`; it may have others."""
        self._bytes = 0
        """Bytes of unanswered requests; all of them are counted in the budget."""
        self._announced_bytes = 0
        """Bytes of the unfinished frame that are counted in the budget of announced frames."""
        self._holds = 0
        self._will_flush = False

    # -- called by the transport

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        name = transport.get_extra_info("peername")
        self.client_host = str(name[0]) if name else "unknown"
        self.principal = self._access.principal_of(transport)
        self.is_private = self._access.is_private(self.client_host)
        super().connection_made(transport)
        if self._access.logins is not None:
            self._login = self._access.logins.begin(self)
            if self._login is None:
                self.drop("connection refused", "too many clients are about to log in")

    @override
    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        super().connection_lost(error)
        if self._login is not None:
            self._login.forget()
        self._context.budget.cancel_wait(self.connection_id)
        self._context.announced.cancel_wait(self.connection_id)
        exchanges, self._exchanges = self._exchanges, deque()
        for exchange in exchanges:
            exchange.lose()
        held, self._bytes = self._bytes, 0
        self._context.budget.give_back(held)
        self._release_announced()
        self._context.note_closed(self.connection_id)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._assembler.get_buffer()

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        context = self._context
        context.counters.bytes_received += nbytes
        was_mid_frame, now_s = self._assembler.is_mid_frame, context.now()
        try:
            frames = self._assembler.buffer_updated(nbytes)
        except KafkaFrameError as error:
            self._drop_bad_frame(str(error))
            return
        if frames or not was_mid_frame:
            self._waiting_since_s = now_s
        if frames:
            self._release_announced()
            self.serve_in_turns(self._begin_all(frames, now_s))
        else:
            self._bound_memory()

    @override
    def resume_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        super().resume_writing()
        self._flush_soon()

    # -- called by handlers

    def answered(self, exchange: Exchange) -> None:
        """See `Requester`."""
        if self._exchanges and self._exchanges[0] is exchange:
            self._flush_soon()

    def when_first(self, exchange: Exchange, start: Callable[[], None]) -> None:
        """See `Requester`."""
        is_first = bool(self._exchanges) and self._exchanges[0] is exchange
        if is_first and not self._pause & Pause.ANSWERS_UNREAD:
            start()
        else:
            exchange.deferred = start

    def hold_reading(self, *, held: bool) -> None:
        """See `Requester`."""
        self._holds += 1 if held else -1
        assert self._holds >= 0, "each hold is released once"
        self.set_pause(Pause.HANDLER_FULL, on=self._holds > 0)

    def reserve_now(self, exchange: Exchange, count: int) -> bool:
        """See `Requester`."""
        more = self._room.usable(count) - exchange.reserved
        if more > 0 and not self._room.reserve_now(more):
            return False
        self._room.release(max(0, -more))
        exchange.reserved += more
        return True

    async def reserve(self, exchange: Exchange, count: int) -> None:
        """See `Requester`."""
        if not self.reserve_now(exchange, count):
            more = self._room.usable(count) - exchange.reserved
            await self._room.reserve(more)
            exchange.reserved += more

    @property
    @override
    def holder(self) -> str:
        """See `ServerConnection`."""
        return self.network if self.principal == ANONYMOUS else self.principal.text

    @override
    def throttle(self, delay_s: float) -> None:
        """See `Requester`."""
        if delay_s > 0 and self._transport is not None:
            self._context.counters.throttled += 1
        super().throttle(delay_s)

    @property
    def unanswered_count(self) -> int:
        """See `Requester`."""
        return len(self._exchanges)

    def logged_in(self) -> None:
        """See `Requester`."""
        self._assembler.frame_bytes_max = self._context.limits.frame_bytes_max

    # -- called by the server

    @property
    @override
    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return not (self._exchanges or self.has_frames_left)

    @override
    def note_closing(self) -> None:
        """Read no more requests, because the broker is closing."""
        self.set_pause(Pause.CLOSING, on=True)

    @override
    def check_deadlines(self, now_s: float) -> None:
        """Disconnect a client that missed a deadline, or was idle for longer than the limit."""
        super().check_deadlines(now_s)
        late = None if self._login is None else self._login.overdue(now_s)
        if late is not None:
            self.drop("login", late)
            return
        if self._exchanges or self._pause or self._assembler.is_mid_frame:
            return
        if now_s - self._waiting_since_s > self._context.limits.idle_s_max:
            self._context.counters.connections_idle_closed += 1
            self.close()

    @override
    def _overdue_request(self, waited_s: float) -> str | None:
        if self._pause or not self._assembler.is_mid_frame:
            return None
        limits = self._context.limits
        allowed_s = (
            limits.frame_deadline_s + self._assembler.announced_bytes / limits.frame_bytes_per_s_min
        )
        if self._announced_bytes and self._context.announced.waiting_count:
            arrived = self._assembler.arrived_bytes
            allowed_s = SLOW_START_S + arrived / limits.frame_bytes_per_s_min
        return "a frame stays unfinished" if waited_s > allowed_s else None

    @override
    def _origin(self) -> dict[str, object]:
        return {"peer": self.client_host, "listener": self.listener}

    # -- one frame

    def _begin_all(self, frames: list[memoryview], now_s: float) -> Iterator[None]:
        try:
            for frame in frames:
                self._begin(frame, now_s)
                yield
        except KafkaFrameError as error:
            self._drop_bad_frame(str(error))
            return
        self._bound_memory()

    def _begin(self, frame: memoryview, now_s: float) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        context = self._context
        exchange = self._read_header(frame, now_s)
        bit, waits_for = place_of(exchange.api_key, exchange.api_version)
        must_wait = bool(self._kinds & waits_for) and self._must_wait(waits_for)
        self._kinds |= bit
        size = len(frame)
        self._exchanges.append(exchange)
        self._bytes += size
        context.budget.take(size)
        self._attempt(self._serve_when_first if must_wait else self._serve, exchange)

    def _must_wait(self, kinds: int) -> bool:
        """Return whether a request of one of these kinds is unanswered."""
        present = 0
        for exchange in self._exchanges:
            if exchange.answer_buffers is None:
                present |= place_of(exchange.api_key, exchange.api_version).bit
                if present & kinds:
                    return True
        self._kinds = present
        return False

    def _attempt(self, serve: Callable[[Exchange], None], exchange: Exchange) -> None:
        context = self._context
        try:
            serve(exchange)
        except KafkaFrameError as error:
            self._drop_bad_frame(str(error))
        except Exception as error:  # noqa: BLE001 - a failed request ends only its connection
            context.counters.requests_failed += 1
            context.log.failure("request failed", error, api_key=exchange.api_key)
            self.abort()

    def _serve(self, exchange: Exchange) -> None:
        if not self._is_of_login(exchange):
            self._context.serve(exchange)

    def _serve_when_first(self, exchange: Exchange) -> None:
        if not self._is_of_login(exchange):
            start = partial(self._attempt, self._context.serve, exchange)
            self.when_first(exchange, start)

    def _is_of_login(self, exchange: Exchange) -> bool:
        """Return whether the login served or refused a request."""
        if self._access.logins is None:
            return False
        return self._login is None or self._login.takes(exchange)

    def _read_header(self, frame: memoryview, now_s: float) -> Exchange:
        try:
            header = read_request_header(frame)
        except UnsupportedVersionError as error:
            if error.api_key != ApiKey.API_VERSIONS:
                raise
            # ApiVersions is answered in any version: the answer lists the served versions.
            number = error.correlation_id
            header = RequestHeader(
                ApiKey.API_VERSIONS, error.version, number, None, body_start=len(frame)
            )
        return Exchange(self, header, frame[header.body_start :], len(frame), now_s)

    def _bound_memory(self) -> None:
        """Stop reading at a limit; count a large frame before more of it is received."""
        context = self._context
        if self._is_full:
            self.set_pause(Pause.REQUESTS_WAIT, on=True)
        if self._transport is None:
            return
        if context.budget.is_full:
            self.set_pause(Pause.MEMORY_FULL, on=True)
            context.budget.wait(self.connection_id, self._resume)
        is_large = self._assembler.announced_bytes > BODY_BYTES_AT_FIRST
        if not is_large or self._announced_bytes:
            return
        if context.announced.is_full:
            self.set_pause(Pause.FRAME_WAITS, on=True)
            context.announced.wait(self.connection_id, self._resume_frame)
        else:
            self._count_announced()

    def _resume(self) -> None:
        self.set_pause(Pause.MEMORY_FULL, on=False)

    def _resume_frame(self) -> None:
        self._count_announced()
        if self._context.budget.is_full:
            self.set_pause(Pause.MEMORY_FULL, on=True)
            self._context.budget.wait(self.connection_id, self._resume)
        self.set_pause(Pause.FRAME_WAITS, on=False)

    def _count_announced(self) -> None:
        self._announced_bytes = self._assembler.announced_bytes
        self._context.announced.take(self._announced_bytes)

    def _release_announced(self) -> None:
        held, self._announced_bytes = self._announced_bytes, 0
        if held:
            self._context.announced.give_back(held)

    @property
    def _is_full(self) -> bool:
        limits = self._context.limits
        return (
            len(self._exchanges) >= limits.requests_in_flight_max
            or self._bytes >= limits.connection_bytes_max
        )

    # -- sending answers

    def _flush_soon(self) -> None:
        if not self._will_flush:
            self._will_flush = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send all answers that are next in order, in one write."""
        self._will_flush = False
        exchanges, buffers, freed, reserved = self._exchanges, list[Buffer](), 0, 0
        while exchanges and (answer := exchanges[0].answer_buffers) is not None:
            first = exchanges.popleft()
            freed += first.size
            reserved += first.reserved
            buffers += answer
        if not exchanges:
            self._kinds = 0
        if self._transport is None or self._transport.is_closing():
            self._free(freed)
            return
        if buffers:
            self._write(self._transport, buffers)
        self.note_written(reserved)
        self._free(freed)
        if exchanges and not self._pause & Pause.ANSWERS_UNREAD:
            start, exchanges[0].deferred = exchanges[0].deferred, None
            if start is not None:
                start()
        if self._pause & Pause.REQUESTS_WAIT and not self._is_full:
            self.set_pause(Pause.REQUESTS_WAIT, on=False)

    def _free(self, count: int) -> None:
        self._bytes -= count
        if count:
            self._context.budget.give_back(count)

    def _write(self, transport: asyncio.Transport, buffers: list[Buffer]) -> None:
        total = sum(map(len, buffers))
        self._context.counters.bytes_sent += total
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif total <= JOINED_BYTES_MAX:
            transport.write(b"".join(buffers))
        else:
            write_all(transport, buffers, self._context.limits.write_buffer_bytes_max)


class BrokerServer(ListeningServer):
    """The listeners of one broker. Call `start`, then `close`, once each."""

    _context: ServerContext

    async def start(self, listeners: tuple[ListenerAddress, ...]) -> tuple[ListenerAddress, ...]:
        """Bind the addresses and serve; return the bound ones. Raises CannotListenError."""
        taken = await self.bind(listeners, {})
        await self.serve()
        return taken

    async def bind(
        self, listeners: tuple[ListenerAddress, ...], access: Mapping[str, ListenerAccess]
    ) -> tuple[ListenerAddress, ...]:
        """Bind all addresses and return them; clients cannot connect yet. A listener that is not in
        `access` takes all clients, without TLS.

        Raises CannotListenError.
        """
        taken = []
        for listener in listeners:
            how = access.get(listener.name) or ListenerAccess(listener.name)
            make = partial(BrokerConnection, self._context, how)
            _, port = await self._open(listener.name, listener.host, listener.port, make, how.tls)
            taken.append(replace(listener, port=port))
        return tuple(taken)
