"""Listening address of an HTTP server: its connections, how they begin, and its log."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from quire.identity.shares import Shares, network_of
from quire.identity.tls import RefusedCertificates
from quire.server.overriding import override
from quire.server.server_log import ServerLog
from quire.server.tls_listening import TlsCounters, TlsLimits, TlsListener, TlsListening

HEAD_S: Final = 10.0
HEAD_END: Final = b"\r\n\r\n"
KEEP_ALIVE_S: Final = 90.0
"""More than the interval of scrapes, so that they need no new connection."""
WRITE_STALL_S: Final = 30.0
CLOSE_TIMEOUT_S: Final = 1.0
BACKLOG: Final = 128
TLS_LIMITS: Final = TlsLimits(handshakes_max=64, handshakes_of_address_max=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of the open connections of one address."""

    connections_max: int = 64
    of_address_max: int = 16


def http_runner(application: web.Application, log: ServerLog) -> web.AppRunner:
    """Return what serves an application. Its caller sets it up and cleans it up."""
    return web.AppRunner(
        application,
        access_log=None,
        logger=http_logger(log),
        keepalive_timeout=KEEP_ALIVE_S,
        shutdown_timeout=CLOSE_TIMEOUT_S,
    )


class HttpListener:
    """One address, from `open` to `close`.

    At most `connections_max` connections are open, at most `of_address_max` of one address, so that
    clients without credentials neither use all descriptors of a process nor keep others out. A
    connection is closed if the head of its first request is not complete within HEAD_S, if no other
    is within KEEP_ALIVE_S after an answer, and if it takes nothing of an answer for WRITE_STALL_S.
    """

    def __init__(
        self,
        runner: web.AppRunner,
        context: SSLContext | None,
        log: ServerLog,
        limits: HttpLimits,
        refused: RefusedCertificates,
    ) -> None:
        """`runner` was set up, and its caller cleans it up. Without `context` there is no TLS."""
        assert runner.server is not None, "it was set up"
        self._serve = cast("Callable[[], asyncio.Protocol]", runner.server)
        self._context = context
        self._log = log
        self._refused = refused
        self._shares = Shares(limits.connections_max, limits.of_address_max)
        self._listening: asyncio.Server | TlsListener | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the host and port. Raises OSError."""
        if self._context is not None:
            context = self._context
            listening = TlsListening(
                lambda: context, self._log, TlsCounters(), limits=TLS_LIMITS, refused=self._refused
            )
            listener = self._listening = TlsListener(listening, self._make)
            name = await listener.open(host, port, BACKLOG)
            listener.start_serving()
            return name
        loop = asyncio.get_running_loop()
        server = self._listening = await loop.create_server(self._make, host, port, backlog=BACKLOG)
        own = server.sockets[0].getsockname()
        return str(own[0]), int(own[1])

    def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.close()

    def _make(self) -> asyncio.Protocol:
        return _Connection(self._serve, self._shares)


class _Connection(asyncio.Protocol):
    """One connection: counted, and handed to aiohttp."""

    def __init__(self, serve: Callable[[], asyncio.Protocol], shares: Shares) -> None:
        self._serve = serve
        self._shares = shares
        self._network: str | None = None
        """Network of the client while the connection is counted."""
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._last = b""
        """Last bytes of an unfinished head."""
        self._head: asyncio.TimerHandle | None = None
        """End of the time for the first head; None once it is complete."""
        self._stall: asyncio.TimerHandle | None = None
        """End of the time in which the client has to take something."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop is no subclass.
        self._transport = transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        network = network_of(str(name[0])) if name else "unknown"
        if not self._shares.take(network):
            transport.abort()
            return
        self._network = network
        self._head = asyncio.get_running_loop().call_later(HEAD_S, transport.abort)
        self._inner = self._serve()
        self._inner.connection_made(transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            seen = self._last + data
            self._last = seen[1 - len(HEAD_END) :]
            if HEAD_END in seen:
                self._head.cancel()
                self._head = None
        if self._inner is not None:
            self._inner.data_received(data)

    @override
    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    @override
    def pause_writing(self) -> None:
        if self._inner is not None and self._transport is not None:
            loop = asyncio.get_running_loop()
            self._stall = loop.call_later(WRITE_STALL_S, self._transport.abort)
            self._inner.pause_writing()

    @override
    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
        if self._inner is not None:
            self._inner.resume_writing()

    @override
    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._head, self._stall):
            if timer is not None:
                timer.cancel()
        if self._network is not None:
            self._shares.give_back(self._network)
        inner, self._inner, self._network = self._inner, None, None
        if inner is not None:
            inner.connection_lost(error)


NAME: Final = "quire.http"


def http_logger(log: ServerLog) -> logging.Logger:
    """Return a logger for the HTTP library that writes to a server's log.

    The text of a request that is not HTTP is in no line: it may hold the token of a client, and the
    library's own errors quote it.
    """
    logger = logging.Logger(NAME, logging.WARNING)
    logger.addHandler(_HttpLogHandler(log))
    return logger


class _HttpLogHandler(logging.Handler):
    """Handler that logs the kind of each error, and the tracebacks of our own defects alone."""

    def __init__(self, log: ServerLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Log one error of the library."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or isinstance(error, HttpProcessingError):
            kind = "unknown" if error is None else type(error).__name__
            self._log.warning("HTTP request refused", kind=kind)
        else:
            self._log.failure("HTTP request failed", error)
