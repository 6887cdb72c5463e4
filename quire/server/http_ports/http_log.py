"""Log of the HTTP library of a server: a limited number of lines, without what a client sent.

Leaves requests that have a handler to `quire.server.admin`.

Invariant: the text of a request that is not HTTP is in no line: it may hold the token of a client,
and the library's own errors quote it.
"""

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError

from quire.server.overriding import override
from quire.server.server_log import ServerLog

NAME: Final = "quire.http"


def http_logger(log: ServerLog) -> logging.Logger:
    """Return a logger for the HTTP library that writes to a server's log."""
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
