"""Server's end of one client's connection to a gateway.

Invariants: nothing but a hello is served before the hello is answered. At most
`requests_running_max` requests of a connection run, of `running_bytes_max` bytes if they are
several; while others wait, nothing is read. A client with more than `unread_bytes_max` unsent bytes
is cut.

Source: docs/formats.md, "Connections to a gateway".
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from metadata.errors import (
    MetadataError,
    OutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from metadata.gateway.codec import Code, decode_request, packed_welcome, reply_frame
from metadata.gateway.errors import GatewayFormatError, GatewayRefusedError
from metadata.gateway.failures import failure_fields
from metadata.gateway.frames import HELLO_BYTES_MAX, REQUEST_BYTES_MAX, FrameAssembler
from metadata.gateway.messages import (
    PROTOCOL_VERSION,
    Children,
    CloseSession,
    Get,
    Hello,
    Ping,
    Request,
    Unwatch,
    Watch,
    Welcome,
)
from metadata.msgpack_fields import Packed
from quire.gateway.gateway_context import GatewayContext
from quire.gateway.requests import MetadataRequest, deleted_paths
from quire.gateway.sessions import ClientSession
from quire.server.connection import Pause, ServerConnection
from quire.server.overriding import override

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

RECEIVE_BUFFER_BYTES: Final = 64 * 1024
NAME: Final = "this gateway"
TOO_MANY_SESSIONS: Final = (
    "it has as many sessions as it may have, of all clients or of this principal: close some, or"
    " set sessions_max or sessions_per_principal_max of the gateway"
)


class ClientConnection(ServerConnection):
    """Connection of one client, from accept to loss."""

    _context: GatewayContext

    def __init__(self, context: GatewayContext) -> None:
        super().__init__(context)
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._assembler = FrameAssembler(HELLO_BYTES_MAX)
        self._session: ClientSession | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._tasks: dict[asyncio.Task[None], int] = {}
        """What runs, with the bytes of its request; 0 for what is no request of the metadata."""
        self._running_bytes = 0
        self._waiting: deque[tuple[int, Ping | MetadataRequest, int]] = deque()
        """Numbers of requests, the requests, and their bytes."""
        self._is_ending = False
        self._watches: dict[int, Cancel] = {}
        self._events: dict[int, None] = {}
        """Numbers of watches to report once the client reads again."""

    # -- called by the transport

    @override
    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        super().connection_lost(error)
        if self._greeting is not None:
            self._greeting.cancel()
        self._waiting.clear()
        self._drop_watches()
        if self._session is not None and self._session.connection is self:
            self._session.connection = None

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return memoryview(self._buffer)

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        context, now_s = self._context, self._context.now()
        context.counters.bytes_received += nbytes
        if self._session is not None:
            self._session.heard_s = now_s
        was_mid_frame = self._assembler.is_mid_frame
        try:
            bodies = self._assembler.feed(memoryview(self._buffer)[:nbytes])
        except GatewayFormatError as error:
            self._drop_bad_frame(str(error))
            return
        if self._assembler.is_mid_frame and (bodies or not was_mid_frame):
            self._waiting_since_s = now_s
        if bodies:
            self.serve_in_turns(self._take_all(bodies))

    @override
    def resume_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        super().resume_writing()
        events, self._events = self._events, {}
        for number in events:
            self._report(number)

    # -- called by the server

    @property
    @override
    def holder(self) -> str:
        """See `ServerConnection`."""
        return (self._session.principal if self._session else "") or self.network

    @property
    @override
    def is_idle(self) -> bool:
        """Whether no request of the client is running."""
        return not (self._tasks or self._waiting or self.has_frames_left)

    @override
    def note_closing(self) -> None:
        """Serve what has arrived; a hello is refused from now on."""

    @override
    def _overdue_request(self, waited_s: float) -> str | None:
        limits = self._context.limits
        if self._session is None:
            return "no hello" if waited_s > limits.hello_deadline_s else None
        if self._assembler.is_mid_frame and not self._pause:
            return "a frame stays unfinished" if waited_s > limits.frame_deadline_s else None
        return None

    def end_soon(self) -> None:
        """Serve nothing more, because the session is over, and end the connection once what runs is
        answered.
        """
        self._waiting.clear()
        self._drop_watches()
        self._is_ending = True
        self.set_pause(Pause.CLOSING, on=True)
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._is_ending and not self._tasks:
            self.close()

    # -- hello

    def _take_all(self, bodies: list[bytes]) -> Iterator[None]:
        try:
            for body in bodies:
                if self._is_ending or self._transport is None or self._transport.is_closing():
                    return
                self._context.counters.requests += 1
                self._take(*decode_request(body), len(body))
                yield
        except GatewayFormatError as error:
            self._drop_bad_frame(str(error))
        self._run_waiting()

    def _take(self, number: int, request: Request, size: int) -> None:
        if isinstance(request, Hello):
            if self._session is not None or self._greeting is not None:
                self._drop_bad_frame("a second hello")
                return
            self._greeting = self._start(self._greet(number, request))
        elif self._session is None:
            self._drop_bad_frame(f"{type(request).__name__} before the hello")
        else:
            self._serve(self._session, number, request, size)

    async def _greet(self, number: int, hello: Hello) -> None:
        context = self._context
        try:
            if not hello.version_min <= PROTOCOL_VERSION <= hello.version_max:
                raise StoreRefusedError(
                    "/",
                    NAME,
                    f"it speaks version {PROTOCOL_VERSION} of the protocol, and the client "
                    f"{hello.version_min}..{hello.version_max}: upgrade the older",
                )
            if context.is_closing:
                raise StoreUnavailableError(NAME, "it is closing")
            await context.hellos.prove()
            principal = context.principal_of(self._transport)
            session = context.sessions.begin(hello, principal, context.now())
            if session is None:
                raise StoreUnavailableError(NAME, TOO_MANY_SESSIONS)
        except MetadataError as error:
            context.counters.hellos_refused += 1
            context.log.warning("hello refused", **self._origin(), reason=str(error))
            self._fail(number, error)
            self.close()
            return
        session.connection = self
        self._session = session
        self._assembler.allow(REQUEST_BYTES_MAX)
        welcome = Welcome(
            PROTOCOL_VERSION,
            session.session_id,
            session.token,
            max(1, int(session.timeout_s * 1000)),
            context.limits.watches_max,
        )
        self._write(reply_frame(Code.OK, number, packed_welcome(welcome)))

    # -- requests

    def _serve(self, session: ClientSession, number: int, request: Request, size: int) -> None:
        match request:
            case Watch():
                self._watch(session, request)
            case Unwatch():
                cancel = self._watches.pop(request.number, None)
                if cancel is not None:
                    self._context.counters.watches_now -= 1
                    cancel()
            case CloseSession():
                self._start(self._close_session(session, number))
            case Hello():
                raise AssertionError("a hello is taken before")
            case _:
                self._waiting.append((number, request, size))

    def _run_waiting(self) -> None:
        """Start requests while fewer than the limits run; read on if none waits."""
        session = self._session
        while self._waiting and session is not None and self._has_room(self._waiting[0][2]):
            number, request, size = self._waiting.popleft()
            task = self._start(self._answer(session, number, request), size)
            session.running[task] = None
            task.add_done_callback(lambda done: session.running.pop(done, None))
        self.set_pause(Pause.REQUESTS_WAIT, on=bool(self._waiting))

    def _has_room(self, size: int) -> bool:
        """Return whether a request of so many bytes may run now; one always may."""
        limits, bytes_after = self._context.limits, self._running_bytes + size
        is_small = not self._running_bytes or bytes_after <= limits.running_bytes_max
        return len(self._tasks) < limits.requests_running_max and is_small

    def _start(self, work: Coroutine[None, None, None], size: int = 0) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = size
        self._running_bytes += size
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        self._running_bytes -= self._tasks.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._context.counters.requests_failed += 1
            self._context.log.failure("request failed", error)
            self.abort()
        self._run_waiting()
        self._close_if_idle()

    async def _answer(
        self, session: ClientSession, number: int, request: Ping | MetadataRequest
    ) -> None:
        result: Packed = None
        try:
            if isinstance(request, Ping):
                await self._context.pings.prove()
            else:
                result = await self._perform(session, request)
        except MetadataError as error:
            self._fail(number, error)
        else:
            self._write(reply_frame(Code.OK, number, result))

    async def _perform(self, session: ClientSession, request: MetadataRequest) -> Packed:
        is_read = isinstance(request, Get | Children)
        counters = self._context.counters
        if is_read:
            counters.reads += 1
        else:
            counters.writes += 1
        try:
            result = await self._context.requests.serve(session, request)
        except GatewayRefusedError as error:
            self._note_refusal(session, "read" if is_read else "write", error)
            raise
        except OutcomeUnknownError:
            self._note_deletions(session, request, self._context.log.audit.unknown)
            raise
        self._note_deletions(session, request, self._context.log.audit.done)
        return result

    def _note_deletions(
        self, session: ClientSession, request: MetadataRequest, note: Callable[..., None]
    ) -> None:
        who = session.principal or "unknown"
        for path in deleted_paths(request):
            note("deletion", who=who, peer=self.address, path=path)

    async def _close_session(self, session: ClientSession, number: int) -> None:
        removal = self._context.sessions.end(session)
        if removal is not None:
            await asyncio.shield(removal)
        self._write(reply_frame(Code.OK, number))

    def _note_refusal(self, session: ClientSession, kind: str, error: GatewayRefusedError) -> None:
        self._context.counters.requests_refused[kind] += 1
        self._context.log.audit.refused(
            f"{kind} of metadata",
            who=session.principal or "unknown",
            peer=self.address,
            path=error.path,
            reason=error.why,
        )

    # -- watches

    def _watch(self, session: ClientSession, watch: Watch) -> None:
        context = self._context
        if watch.number in self._watches:
            self._drop_bad_frame("two watches have one number")
            return
        if len(self._watches) >= context.limits.watches_max:
            self.drop("peer overdue", "it has too many watches")
            return
        try:
            context.requests.check_read(session, watch.path)
        except GatewayRefusedError as error:
            self._note_refusal(session, "read", error)
            return  # its reads are refused too
        add = context.store.watch_children if watch.of_children else context.store.watch_value
        report = partial(self._report, watch.number)
        self._watches[watch.number] = add(watch.path, report, holder=self.holder)
        context.counters.watches_now += 1

    def _report(self, number: int) -> None:
        if self._pause & Pause.ANSWERS_UNREAD:
            self._events[number] = None
        elif number in self._watches:
            self._write(reply_frame(Code.EVENT, number))

    def _drop_watches(self) -> None:
        watches, self._watches = self._watches, {}
        self._context.counters.watches_now -= len(watches)
        for cancel in watches.values():
            cancel()

    # -- answers

    def _fail(self, number: int, error: MetadataError) -> None:
        self._write(reply_frame(Code.FAILED, number, failure_fields(error)))

    def _write(self, frame: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(frame)
        if self.unread_bytes > self._context.limits.unread_bytes_max:
            self.drop("peer overdue", "answers are not read")
        self.note_written()
