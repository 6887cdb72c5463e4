"""Listening address whose connections begin with TLS.

Leaves the context to its caller, the alert of a failed handshake to `quire.server.handshake_alert`,
the bytes of TLS to `quire.server.tls_transport`, and each connection to `quire.server.connection`.

A connection is accepted here, and handed to its protocol once the handshake is done, so that the
number, the rate and the length of handshakes are bounded before anything is known of a client. An
address may also take connections without TLS, while a cluster changes from one to the other: the
first byte shows which it is, because a handshake begins with 0x16 and no frame of Quire or Kafka
does.

Invariants: at most `handshakes_max` handshakes are under way, at most `handshakes_per_s` begin in a
second, and each ends within `handshake_s`; one address has a share of both numbers, so that it
keeps no other out; a connection over these limits is closed at once, and counts for none. The
context is the one at the start of the handshake, so new files need no restart.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from quire.identity.refused_certificates import RefusedCertificates
from quire.identity.shares import Shares, network_of
from quire.server.handshake_alert import AlertingContext
from quire.server.server_log import ServerLog
from quire.server.tls_transport import begin_tls

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
    """One port, from `open` to `close`, at each address of its host."""

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
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = dict.fromkeys((each[0], each[4][0]) for each in found)
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
        self._accepting = [loop.create_task(self._accept(each)) for each in self._sockets]

    def close(self) -> None:
        """Stop listening, and end the handshakes under way."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for each in self._sockets:
            each.close()

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
