"""Log of a server: one JSON object per line on standard error, with a limited rate of lines.

Leaves the choice of events to the callers.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

from quire.server.audit_log import AuditLog
from quire.server.overriding import override

LOGGER: Final = "quire.server"
LINES_PER_EVENT_MAX: Final = 5
EVENT_PERIOD_S: Final = 10.0
EVENTS_MAX: Final = 1_000

_LOGGER: Final = logging.getLogger(LOGGER)


class JsonFormatter(logging.Formatter):
    """Formatter of a record as one line of JSON, including the record's `fields`."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03}",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def start_logging(stream: TextIO, level: str) -> None:
    """Send the logs of Quire and of all libraries to `stream`. A process's main calls it once."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("quire").setLevel(level.upper())


@dataclass(slots=True)
class _Written:
    since_s: float
    lines: int
    left_out: int


class ServerLog:
    """Writer of at most LINES_PER_EVENT_MAX lines per event in EVENT_PERIOD_S. The next line says
    how many were left out.

    Invariant: a peer can cause only a limited number of lines.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.audit = AuditLog(now)
        """Lines about who tried or changed what."""
        self._events: dict[str, _Written] = {}

    def info(self, event: str, **values: object) -> None:
        """Log a normal event that an operator needs to know."""
        self._write(logging.INFO, event, values, None)

    def warning(self, event: str, **values: object) -> None:
        """Log a fault of a peer or of the environment."""
        self._write(logging.WARNING, event, values, None)

    def failure(self, event: str, error: BaseException | None, **values: object) -> None:
        """Log an internal failure, with its traceback."""
        self._write(logging.ERROR, event, values, error)

    def _write(
        self, level: int, event: str, values: dict[str, object], error: BaseException | None
    ) -> None:
        if not _LOGGER.isEnabledFor(level):
            return
        left_out = self._admit(event)
        if left_out is None:
            return
        if left_out:
            values["left_out"] = left_out
        _LOGGER.log(level, event, exc_info=error, extra={"fields": values})

    def _admit(self, event: str) -> int | None:
        """Return how many lines were left out before this one; None if this one is left out too."""
        now = self._now()
        written = self._events.get(event)
        if written is None:
            assert len(self._events) < EVENTS_MAX, "events are few; details go into values"
            self._events[event] = _Written(now, 1, 0)
            return 0
        if now - written.since_s >= EVENT_PERIOD_S:
            left_out = written.left_out
            written.since_s, written.lines, written.left_out = now, 1, 0
            return left_out
        if written.lines < LINES_PER_EVENT_MAX:
            written.lines += 1
            return 0
        written.left_out += 1
        return None
