"""Log of a server, and its audit log: JSON lines on standard error, with a limited rate. A line
says one event, in the same words each time, and has its values in fields.

Format of the fields: `act`, `result` (`done`, `failed`, `unknown` or `refused`), `who` (a
principal, or what is known instead), `peer` (the address), and what the act needs. `left_out`
counts the lines of this peer that were not written before this one.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TextIO

from quire.server.overriding import override

LOGGER: Final = "quire.server"
PACKAGES: Final = ("quire", "bookie", "broker_layer", "ledger_client", "metadata")
"""Our packages, whose loggers have the level of the option; those of libraries only warn."""
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
    for package in PACKAGES:
        logging.getLogger(package).setLevel(level.upper())


def log_event(event: str, level: int = logging.INFO, /, **fields: object) -> None:
    """Write the line of an event of the process itself, which has no limit of its rate."""
    _LOGGER.log(level, event, extra={"fields": fields})


def loop_time() -> float:
    """Return the time of the running loop, for the log of a module that runs in any of them."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class _Written:
    since_s: float
    lines: int = 1
    left_out: int = 0


class _LineLimit:
    """Limit of the lines of each event or peer in a period. At most `names_max` names are
    remembered; the one whose period began first is replaced.
    """

    def __init__(
        self, lines_max: int, period_s: float, names_max: int, now: Callable[[], float]
    ) -> None:
        self._lines_max = lines_max
        self._period_s = period_s
        self._names_max = names_max
        self._now = now
        self._written: dict[str, _Written] = {}

    def __len__(self) -> int:
        """Return the number of names that are remembered."""
        return len(self._written)

    def admit(self, name: str) -> int | None:
        """Return how many lines were left out before this one; None if this one is left out too."""
        now_s = self._now()
        written = self._written.get(name)
        # Another loop may have an earlier time.
        if written is None or not 0 <= now_s - written.since_s < self._period_s:
            self._written.pop(name, None)
            if len(self._written) >= self._names_max:
                del self._written[next(iter(self._written))]
            self._written[name] = _Written(now_s)
            return 0 if written is None else written.left_out
        if written.lines < self._lines_max:
            written.lines += 1
            return 0
        written.left_out += 1
        return None


class ServerLog:
    """Writer of at most LINES_PER_EVENT_MAX lines per event in EVENT_PERIOD_S. The next line says
    how many were left out.

    Invariant: a peer can cause only a limited number of lines.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.audit = AuditLog(now)
        """Lines about who tried or changed what."""
        self._limit = _LineLimit(LINES_PER_EVENT_MAX, EVENT_PERIOD_S, EVENTS_MAX, now)

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
        left_out = self._limit.admit(event)
        if left_out is None:
            return
        if left_out:
            values["left_out"] = left_out
        _LOGGER.log(level, event, exc_info=error, extra={"fields": values})


class SessionLog:
    """Lines about a server's session with the metadata service. Call it with each state."""

    def __init__(self, log: ServerLog, now: Callable[[], float] = loop_time) -> None:
        self._log = log
        self._now = now
        self._lost_s: float | None = None

    def __call__(self, state: str) -> None:
        """Note the state that the session has now: connected, suspended, expired or closed."""
        if state == "suspended":
            self._lost_s = self._now()
            self._log.info("metadata connection lost")
        elif state == "expired":
            self._log.warning("metadata session expired")
        elif state == "connected" and self._lost_s is not None:
            self._log.info("metadata connected again", away_s=round(self._now() - self._lost_s, 1))
            self._lost_s = None


AUDIT_LOGGER: Final = "quire.server.audit"
AUDIT_EVENT: Final = "audit"
LINES_PER_PEER_MAX: Final = 10
PERIOD_S: Final = 10.0
PEERS_MAX: Final = 10_000
"""Number of peers that are remembered; the one whose first line is oldest is replaced."""

_AUDIT_LOGGER: Final = logging.getLogger(AUDIT_LOGGER)


class Result(StrEnum):
    """Result of an act."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class AuditLog:
    """Writer of audit lines of one server.

    No secret is written; one peer causes at most LINES_PER_PEER_MAX lines of refusals in PERIOD_S,
    however many it causes, and no peer affects the lines of another; what was done or failed with
    the right to do it is always written.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._limit = _LineLimit(LINES_PER_PEER_MAX, PERIOD_S, PEERS_MAX, now)

    def refused(self, act: str, *, who: str, peer: str, **values: object) -> None:
        """Note that an act was refused."""
        left_out = self._limit.admit(peer)
        if left_out is not None:
            more = {"left_out": left_out} if left_out else {}
            self._write(logging.WARNING, act, Result.REFUSED, who, peer, {**values, **more})

    def done(
        self, act: str, *, who: str, peer: str, failed: bool = False, **values: object
    ) -> None:
        """Note that an act was done, or failed, by one who may do it."""
        result = Result.FAILED if failed else Result.DONE
        self._write(logging.INFO, act, result, who, peer, values)

    def unknown(self, act: str, *, who: str, peer: str, **values: object) -> None:
        """Note that one who may do it asked for an act, which may have been done."""
        self._write(logging.WARNING, act, Result.UNKNOWN, who, peer, values)

    def _write(
        self, level: int, act: str, result: Result, who: str, peer: str, values: dict[str, object]
    ) -> None:
        fields = {"act": act, "result": result.value, "who": who, "peer": peer, **values}
        _AUDIT_LOGGER.log(level, AUDIT_EVENT, extra={"fields": fields})
