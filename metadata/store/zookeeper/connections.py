"""TCP and TLS connections to ZooKeeper's servers, for kazoo.

Leaves which server to try to kazoo, and the bytes on a connection too. Runs on kazoo's threads.

Invariants: an attempt to connect, with its handshake, takes at most `connect_timeout_s` for each of
its two steps; with TLS, nothing is sent before the server's certificate and name are verified.
Kazoo's own TLS checks no names and opens a socket without the limit, so it is not used. Each
connection reads the files again, so a renewed certificate needs no restart.

Source: kazoo 2.10-2.11, `create_tcp_connection`.
"""

import logging
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

from quire.identity.errors import SecurityError
from quire.identity.zookeeper_access import ZooKeeperAccess

REASON_CHARACTERS_MAX: Final = 300

_log = logging.getLogger(__name__)


class ConnectionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """Opens connections, and waits for them.

    Raises SecurityError for files that cannot be used, in the constructor alone.
    """

    def __init__(self, connect_timeout_s: float, access: ZooKeeperAccess) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._access = access
        self._context = access.context
        self.failure = ""
        """Why the last attempt to connect failed; empty if it did not."""
        self.unknown_names = ""
        """Which names of servers have no address; empty if all have one."""

    def create_connection(self, **options: Any) -> Any:
        """Open a connection, in at most the time of one attempt."""
        options["timeout"] = min(options["timeout"], self._connect_timeout_s)
        connection = super().create_connection(**options)
        if self._context is None:
            return connection
        try:
            connection.settimeout(options["timeout"])
            return self._current_context().wrap_socket(
                connection, server_hostname=options["hostname"]
            )
        except ValueError as error:  # a name that no certificate can have; kazoo expects OSError
            connection.close()
            raise OSError(f"{options['hostname']} cannot be verified: {error}") from error
        except BaseException:
            connection.close()
            raise

    def select(self, *arguments: Any, **options: Any) -> Any:
        """Wait as `select` does; bytes that TLS has read already count too."""
        read, write, failed, *_ = arguments
        pending = [sock for sock in read if isinstance(sock, ssl.SSLSocket) and sock.pending()]
        if not pending:
            return super().select(*arguments, **options)
        ready, writable, failing = super().select(read, write, failed, 0)
        return [*(sock for sock in ready if sock not in pending), *pending], writable, failing

    def note_failure(self, error: BaseException) -> None:
        """Keep why an attempt failed, for messages."""
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        self.failure = (str(cause) or type(cause).__name__)[:REASON_CHARACTERS_MAX]

    def note_names(self, names: Sequence[str], known: Iterable[tuple[str, str, int]]) -> None:
        """Keep which names of servers have no address, for messages, and log what is new."""
        with_address = {name for name, _, _ in known}
        unknown = [name for name in names if name not in with_address]
        text = f"DNS does not know {', '.join(unknown)}: check the address" if unknown else ""
        if text and text != self.unknown_names:
            _log.warning("of the metadata service's servers, %s", text)
        self.unknown_names = text

    def _current_context(self) -> ssl.SSLContext:
        """Return a context from the files as they are now; the last good one if they do not fit."""
        try:
            self._context = self._access.context
        except SecurityError as error:
            _log.warning("new files for TLS with ZooKeeper cannot be used: %s", error)
        assert self._context is not None
        return self._context


def cut(connection: socket.socket) -> None:
    """End a connection that another thread uses. `SSLSocket.shutdown` would first make it one
    without TLS, in which the other thread could send a request.
    """
    socket.socket.shutdown(connection, socket.SHUT_RDWR)
