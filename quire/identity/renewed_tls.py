"""TLS of clients that run for long: a new context when the files change.

Leaves making a context to `quire.identity.tls`, and servers' contexts to
`quire.identity.server_tls`.

Invariants: the files are looked at only when a connection begins, and at most once in
FILES_CHECK_S; files that cannot be used are logged once, and the context stays as it is. Open
connections keep the context with which they began.
"""

import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import Final

from quire.identity.errors import SecurityError
from quire.identity.tls import FILES_CHECK_S, TlsFiles, client_context

ContextSource = Callable[[float], SSLContext]
"""Returns the context for a connection that begins at a time of the event loop, in seconds."""

_log: Final = logging.getLogger(__name__)


class RenewedContext:
    """Contexts of one client for its new connections: a `ContextSource`."""

    def __init__(self, files: TlsFiles) -> None:
        """Load the files. Raises SecurityError."""
        self._files = files
        self._seen = files.state
        self._context = client_context(files)
        self._checked_at: float | None = None

    def __call__(self, now: float) -> SSLContext:
        """Return the context for a connection that begins now."""
        if self._checked_at is None or now - self._checked_at >= FILES_CHECK_S:
            self._checked_at = now
            self._check()
        return self._context

    def _check(self) -> None:
        state = self._files.state
        if state == self._seen:
            return
        self._seen = state
        try:
            self._context = client_context(self._files)
        except SecurityError as error:
            _log.warning("new files for TLS cannot be used, the old ones stay in use: %s", error)
        else:
            _log.info("new files for TLS are in use: %s", self._files.shown)


def fixed(context: SSLContext) -> ContextSource:
    """Return a source of one context only, which an application made."""
    return lambda _now: context
