"""TLS context of accepted connections, which sends the alert of a failed handshake.

Leaves the handshake to the event loop. asyncio and uvloop close the socket of a failed handshake
and discard the alert, so that a client without a certificate would see a closed connection alone.

Invariants: an alert is sent once, without waiting, and only after the handshake has failed. The
client may not receive it if it does not read.

Source: RFC 8446, section 6.2.
"""

import contextlib
import socket
import ssl

from quire.server.overriding import override


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
