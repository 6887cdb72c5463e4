"""Listening address whose connections begin with TLS, and TLS of one connection.

Source: `asyncio.loop.start_tls`; `asyncio.Protocol.pause_writing`; RFC 8446, section 6.2.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

from quire.identity.shares import Shares, network_of
from quire.identity.tls import RefusedCertificates
from quire.server.overriding import override
from quire.server.server_log import ServerLog

HANDSHAKE_BYTE: Final = 0x16
"""First byte of a TLS record with a handshake message."""
PROTOCOL: Final = ssl.PROTOCOL_TLS_SERVER
ACCEPT_AGAIN_S: Final = 0.5
"""Pause after an accept that failed, as a rule because there are no descriptors left."""
ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Errors of an address that this machine does not have, such as `::1` without IPv6."""
SHUTDOWN_S: Final = 5.0
"""Maximum time for the end of TLS on a connection that is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsLimits:
    """Limits of connections that have not finished their handshake."""

    handshakes_max: int = 256
    handshakes_of_address_max: int = 64
    handshakes_per_s: int = 500
    handshakes_of_address_per_s: int = 250
    handshake_s: float = 10.0


@dataclass(slots=True)
class TlsCounters:
    """Counters of one server, since its start."""

    handshakes: int = 0
    handshakes_failed: int = 0
    handshakes_refused: int = 0


@dataclass(frozen=True, slots=True)
class TlsListening:
    """How an address listens."""

    context: Callable[[], ssl.SSLContext]
    """Returns the context for the next connection."""
    log: ServerLog
    counters: TlsCounters
    is_required: bool = True
    """Whether connections without TLS are refused."""
    limits: TlsLimits = TlsLimits()
    refused: RefusedCertificates = field(default_factory=RefusedCertificates)
    """Certificates of clients that are refused."""


class TlsListener:
    """One port, from `open` to `close`, at each address of its host.

    A connection is accepted here, and handed to its protocol once the handshake is done, so that
    the number, the rate and the length of handshakes are bounded before anything is known of a
    client. An address may also take connections without TLS, while a cluster changes from one to
    the other: the first byte shows which it is, because a handshake begins with 0x16 and no frame
    of Quire or Kafka does.

    At most `handshakes_max` handshakes are under way, at most `handshakes_per_s` begin in a second,
    and each ends within `handshake_s`; one address has a share of both numbers, so that it keeps no
    other out; a connection over these limits is closed at once, and counts for none. The context is
    the one at the start of the handshake, so new files need no restart.
    """

    def __init__(self, listening: TlsListening, make: Callable[[], asyncio.BaseProtocol]) -> None:
        """`make` returns the protocol of each connection."""
        self._listening = listening
        self._make = make
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[asyncio.Task[None], None] = {}
        limits = listening.limits
        self._places = Shares(limits.handshakes_max, limits.handshakes_of_address_max)
        """Handshakes under way, by the network of the client."""
        self._contexts: list[AlertingContext] = []
        """Contexts that no handshake uses; as many as handshakes were under way at once."""
        self._second = 0
        self._begun = self._new_second()
        """Handshakes that began in this second, by the network of the client."""

    async def open(self, host: str, port: int, backlog: int) -> tuple[str, int]:
        """Bind the addresses of a host that this machine has, and return the first one. Raises
        OSError.
        """
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = dict.fromkeys((info[0], info[4][0]) for info in infos)
        failed: OSError | None = None
        for family, address in addresses:
            try:
                made = socket.create_server((address, port), family=family, backlog=backlog)
            except OSError as error:
                if error.errno not in ABSENT:
                    self.close()
                    raise
                failed = error
                continue
            made.setblocking(False)  # noqa: FBT003 - the socket's own interface
            self._sockets.append(made)
            port = int(
                made.getsockname()[1]
            )  # a free one that was chosen is that of the others too
        if failed is not None and not self._sockets:
            raise failed
        name = self._sockets[0].getsockname()
        return str(name[0]), int(name[1])

    def start_serving(self) -> None:
        """Begin to accept connections."""
        loop = asyncio.get_running_loop()
        self._accepting = [loop.create_task(self._accept(sock)) for sock in self._sockets]

    def close(self) -> None:
        """Stop listening, and end the handshakes under way."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for sock in self._sockets:
            sock.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, name = await loop.sock_accept(listening)
            except OSError as error:
                self._listening.log.warning("accept failed", reason=str(error))
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            network = network_of(str(name[0]))
            if not self._take_room(network, loop.time()):
                self._listening.counters.handshakes_refused += 1
                connection.close()
                continue
            task = loop.create_task(self._begin(connection))
            self._handshakes[task] = None
            task.add_done_callback(partial(self._note_done, network))

    def _note_done(self, network: str, task: "asyncio.Task[None]") -> None:
        del self._handshakes[task]
        self._places.give_back(network)

    def _take_room(self, network: str, now_s: float) -> bool:
        if int(now_s) != self._second:
            self._second, self._begun = int(now_s), self._new_second()
        if not self._begun.has_share(network) or not self._places.take(network):
            return False
        return self._begun.take(network)

    def _new_second(self) -> Shares:
        limits = self._listening.limits
        return Shares(limits.handshakes_per_s, limits.handshakes_of_address_per_s)

    async def _begin(self, connection: socket.socket) -> None:
        """Finish the handshake, and hand the connection to its protocol."""
        listening, counters = self._listening, self._listening.counters
        loop = asyncio.get_running_loop()
        until_s = loop.time() + listening.limits.handshake_s
        context = self._contexts.pop() if self._contexts else AlertingContext(PROTOCOL)
        peer = _peer(connection)  # a socket has no address once a handshake has failed
        try:
            if listening.is_required or await self._wants_tls(connection):
                counters.handshakes += 1
                context.begin(listening.context(), connection)
                rest_s = max(0.1, until_s - loop.time())
                refused = listening.refused
                await begin_tls(connection, self._make, context, rest_s, SHUTDOWN_S, refused)
            else:
                await loop.connect_accepted_socket(self._make, connection)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            counters.handshakes_failed += 1
            reason = str(error) or type(error).__name__
            listening.log.audit.refused("handshake", who="unknown", peer=peer, reason=reason)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        self._contexts.append(context)

    async def _wants_tls(self, connection: socket.socket) -> bool:
        """Return whether the first byte is that of a handshake; it stays to be read. Raises
        TimeoutError if none comes.
        """
        loop = asyncio.get_running_loop()
        connection.setblocking(False)  # noqa: FBT003 - the socket's own interface
        readable = asyncio.Event()
        async with asyncio.timeout(self._listening.limits.handshake_s):
            loop.add_reader(connection.fileno(), readable.set)
            try:
                while True:
                    await readable.wait()
                    readable.clear()
                    with contextlib.suppress(BlockingIOError, InterruptedError):
                        first = connection.recv(1, socket.MSG_PEEK)
                        if not first:
                            raise ConnectionResetError("the peer closed the connection")
                        return first[0] == HANDSHAKE_BYTE
            finally:
                loop.remove_reader(connection.fileno())


def _peer(connection: socket.socket) -> str:
    with contextlib.suppress(OSError):
        return str(connection.getpeername()[0])
    return "gone"


PIECE_BYTES: Final = 256 * 1024
"""Bytes that are encrypted at once: the buffers of TLS grow to it, and do not shrink."""
BELOW_BYTES_HIGH: Final = 256 * 1024
BELOW_BYTES_LOW: Final = 64 * 1024
"""Encrypted bytes at which more are encrypted."""
HIGH_DEFAULT_BYTES: Final = 64 * 1024
UNLIMITED_BYTES: Final = 2**31 - 1
"""More than ever waits in TLS; the largest number that uvloop takes."""
LOST: Final = "the peer closed the connection"

Data = bytes | bytearray | memoryview


class TlsTransport(asyncio.Transport):
    """What a protocol writes to: TLS, and the bytes that wait for it.

    `get_write_buffer_size` is the number of bytes that neither the socket nor the client has; the
    protocol is paused while it is above the high limit, until it is at most the low one. At most
    BELOW_BYTES_HIGH and PIECE_BYTES wait encrypted; the rest waits as it was written, in order.
    Bytes that arrive while a connection changes hands reach its next protocol first.
    """

    def __init__(
        self,
        tls: asyncio.Transport,
        below: "_BelowTls",
        inner: asyncio.Transport,
        shutdown_s: float,
    ) -> None:
        super().__init__()
        self._tls = tls
        self._below = below
        self._inner = inner
        self._shutdown_s = shutdown_s
        self._protocol: asyncio.BaseProtocol | None = None
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._is_closing = False
        self._is_paused = False
        self._end: asyncio.TimerHandle | None = None
        tls.set_write_buffer_limits(UNLIMITED_BYTES)  # this transport pauses the protocol
        below.on_room = self._go_on
        below.on_lost = self._forget
        self.set_write_buffer_limits()

    @override
    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return a fact of the TLS connection; see `asyncio.BaseTransport`."""
        return self._tls.get_extra_info(name, default)

    @override
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See `asyncio.BaseTransport`."""
        self._protocol = protocol
        self._tls.set_protocol(protocol)

    @override
    def get_protocol(self) -> asyncio.BaseProtocol:
        """See `asyncio.BaseTransport`."""
        return self._tls.get_protocol()

    @override
    def is_reading(self) -> bool:
        """See `asyncio.ReadTransport`."""
        return self._tls.is_reading()

    @override
    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._tls.pause_reading()

    @override
    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._tls.resume_reading()

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bytes above which the protocol is paused, and down to which."""
        if high is None:
            high = HIGH_DEFAULT_BYTES if low is None else 4 * low
        self._high = high
        self._low = high // 4 if low is None else low
        self._inner.set_write_buffer_limits(
            min(self._high, BELOW_BYTES_HIGH), min(self._low, BELOW_BYTES_LOW)
        )
        self._check_limits()

    @override
    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high limit in bytes."""
        return self._low, self._high

    @override
    def get_write_buffer_size(self) -> int:
        """Return the bytes, encrypted or not, that the socket has not taken."""
        below = self._tls.get_write_buffer_size() + self._inner.get_write_buffer_size()
        return self._queued_bytes + below

    @override
    def write(self, data: Data) -> None:
        """Send bytes, or keep them to send; the caller changes them no more."""
        self.writelines((data,))

    @override
    def writelines(self, list_of_data: Iterable[Data]) -> None:
        """Send several buffers in one write; see `write`."""
        if self._is_closing:
            return
        for data in list_of_data:
            view = memoryview(data).cast("B")
            if view.nbytes:
                self._queue.append(view)
                self._queued_bytes += view.nbytes
        self._encrypt()
        if self._below.is_paused:
            self._check_limits()

    @override
    def can_write_eof(self) -> bool:
        """Return False: TLS ends in both directions together."""
        return False

    @override
    def is_closing(self) -> bool:
        """Return whether nothing more is sent that is written now."""
        return self._is_closing or self._tls.is_closing()

    @override
    def close(self) -> None:
        """Send what was written, and end TLS, within `shutdown_s` each."""
        if self._is_closing:
            return
        self._is_closing = True
        self._end = asyncio.get_running_loop().call_later(self._shutdown_s, self.abort)
        self._end_if_sent()

    @override
    def abort(self) -> None:
        """End the connection at once; unsent bytes are lost."""
        self._is_closing = True
        self._forget()
        self._tls.abort()

    def _go_on(self) -> None:
        self._encrypt()
        self._check_limits()
        self._end_if_sent()

    def _encrypt(self) -> None:
        while self._queue and not self._below.is_paused:
            piece, room = list[memoryview](), PIECE_BYTES
            while self._queue and room:
                first = self._queue.popleft()
                if first.nbytes > room:
                    self._queue.appendleft(first[room:])
                    first = first[:room]
                piece.append(first)
                room -= first.nbytes
            self._queued_bytes -= PIECE_BYTES - room
            self._tls.writelines(piece)

    def _check_limits(self) -> None:
        protocol = cast("asyncio.Protocol", self._protocol)
        if protocol is None:
            return
        count = self.get_write_buffer_size()
        if not self._is_paused and count > self._high:
            self._is_paused = True
            protocol.pause_writing()
        elif self._is_paused and count <= self._low:
            self._is_paused = False
            protocol.resume_writing()

    def _end_if_sent(self) -> None:
        if self._end is not None and not self._queue:
            self._end.cancel()
            self._end = None
            self._tls.close()

    def _forget(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0
        if self._end is not None:
            self._end.cancel()
            self._end = None


class _BelowTls(asyncio.BufferedProtocol):
    """What the transport below TLS calls: passes all on to TLS, and notes the pauses."""

    def __init__(self, tls: asyncio.BufferedProtocol) -> None:
        self._tls = tls
        self.is_paused = False
        self.on_room: Callable[[], None] = _do_nothing
        self.on_lost: Callable[[], None] = _do_nothing
        # Not through a call here, which each read of a socket would pay for.
        vars(self).update(get_buffer=tls.get_buffer, buffer_updated=tls.buffer_updated)

    @override
    def eof_received(self) -> bool | None:
        return self._tls.eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._tls.connection_lost(exc)
        self.on_lost()

    @override
    def pause_writing(self) -> None:
        self.is_paused = True
        self._tls.pause_writing()

    @override
    def resume_writing(self) -> None:
        self.is_paused = False
        self._tls.resume_writing()  # it may write, and so be paused again
        if not self.is_paused:
            self.on_room()


class _Arrivals(asyncio.Protocol):
    """Protocol of a connection until the next one takes over: keeps what arrives."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._taken: list[bytes] = []
        self._has_ended = False
        self._next: asyncio.BaseProtocol | None = None
        self.is_lost = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()

    @override
    def data_received(self, data: bytes) -> None:
        self._taken.append(data)
        if self._transport is not None:
            self._transport.pause_reading()  # uvloop begins to read after `connection_made`

    @override
    def eof_received(self) -> bool | None:
        self._has_ended = True
        return None

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._next is not None:
            self._next.connection_lost(exc)

    def hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass what arrived, and what comes yet, to the next protocol."""
        self._next = protocol
        taken, self._taken = self._taken, []
        for data in taken:
            _feed(protocol, data)
        if self._has_ended:
            cast("asyncio.Protocol", protocol).eof_received()


async def begin_tls(
    connection: socket.socket,
    make: Callable[[], asyncio.BaseProtocol],
    context: ssl.SSLContext,
    handshake_s: float,
    shutdown_s: float,
    refused: RefusedCertificates,
) -> None:
    """Finish the handshake of an accepted connection within `handshake_s`, and hand it to the
    protocol that `make` returns, unless its certificate is refused. Raises OSError, TimeoutError.
    """
    loop = asyncio.get_running_loop()
    outside, inside = _Arrivals(), _Arrivals()
    inner, _ = await loop.connect_accepted_socket(lambda: outside, connection)
    starting = loop.create_task(
        loop.start_tls(
            inner,
            inside,
            context,
            server_side=True,
            ssl_handshake_timeout=handshake_s,
            ssl_shutdown_timeout=shutdown_s,
        )
    )
    try:
        await asyncio.sleep(0)  # TLS is the protocol of `inner` now, and reads nothing yet
        if outside.is_lost:
            raise ConnectionResetError(LOST)
        below = _BelowTls(cast("asyncio.BufferedProtocol", inner.get_protocol()))
        inner.set_protocol(below)
        loop.call_soon(outside.hand_over, below)
        tls = await starting
        if tls is None or inside.is_lost:
            raise ConnectionResetError(LOST)
        outer = TlsTransport(tls, below, inner, shutdown_s)
        why = refused.refusal(outer, tls.get_extra_info("peercert"))
        if why:
            raise ConnectionRefusedError(why)
    except BaseException:
        starting.cancel()
        inner.abort()
        raise
    protocol = make()
    outer.set_protocol(protocol)
    protocol.connection_made(outer)
    inside.hand_over(protocol)


def _feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    if isinstance(protocol, asyncio.Protocol):
        protocol.data_received(data)
        return
    buffered, rest = cast("asyncio.BufferedProtocol", protocol), memoryview(data)
    while rest:
        buffer = memoryview(cast("bytearray", buffered.get_buffer(len(rest))))
        count = min(len(buffer), len(rest))
        buffer[:count] = rest[:count]
        buffered.buffer_updated(count)
        rest = rest[count:]


def _do_nothing() -> None:
    """Do nothing: no transport has been made yet."""


class AlertingHandshake(ssl.SSLObject):
    """TLS of one connection."""

    _connection: socket.socket | None = None
    """Socket for the alert, until the handshake is done."""
    _outgoing: ssl.MemoryBIO | None = None
    """Place from which the event loop sends, and where OpenSSL writes the alert."""

    def send_alert_to(self, connection: socket.socket, outgoing: ssl.MemoryBIO) -> None:
        """Set the socket that an alert is sent to, and the place where it is found."""
        self._connection, self._outgoing = connection, outgoing

    @override
    def do_handshake(self) -> None:
        """Continue the handshake. Raises SSLError."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self._connection is not None and self._outgoing is not None:
                with contextlib.suppress(OSError):
                    self._connection.send(self._outgoing.read())
            raise
        self._connection = self._outgoing = None


class AlertingContext(ssl.SSLContext):
    """Context of one handshake at a time, which uses another context for TLS.

    Its own files and settings are not used. It is an SSLContext because uvloop takes nothing else,
    and is used again because each takes 13 KB and 150 us.

    An alert is sent once, without waiting, and only after the handshake has failed. The client may
    not receive it if it does not read.
    """

    _used: ssl.SSLContext
    _connection: socket.socket | None

    def begin(self, context: ssl.SSLContext, connection: socket.socket) -> None:
        """Prepare the handshake of a connection that was accepted."""
        self._used, self._connection = context, connection
        context.sslobject_class = AlertingHandshake

    @override
    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - the interface of SSLContext
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return the TLS of the connection."""
        made = self._used.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(made, AlertingHandshake) and self._connection is not None:
            made.send_alert_to(self._connection, outgoing)
        self._connection = None
        return made
