"""TLS of an accepted connection, with a count of all bytes that the client has not taken.

Leaves the context and the time of the handshake to `quire.server.tls_listening`. The TLS transports
of asyncio and uvloop hand every encrypted byte to the transport below them at once: they count none
of these bytes, and do not pause their protocol while a client reads nothing.

Invariants: `get_write_buffer_size` is the number of bytes that neither the socket nor the client
has; the protocol is paused while it is above the high limit, until it is at most the low one. At
most BELOW_BYTES_HIGH and PIECE_BYTES wait encrypted; the rest waits as it was written, in order.
Bytes that arrive while a connection changes hands reach its next protocol first.

Source: `asyncio.loop.start_tls`; `asyncio.Protocol.pause_writing`.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, cast

from quire.identity.refused_certificates import RefusedCertificates
from quire.server.overriding import override

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
    """What a protocol writes to: TLS, and the bytes that wait for it."""

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
