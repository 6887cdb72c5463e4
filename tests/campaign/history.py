"""History of a campaign: a JSON line for each fact, written before the process continues.

Leaves judging it to `judge`.

Invariants: a line is one `write` to a file opened for appending, so a written fact survives the end
of its process. Lines never change.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ledger_client import BookieUnreachable, ClientEvent, EnsembleChanged, LedgerWriter
from tests.support.line_file import LineFile

CHANGED: Final = "ensemble changed"


@dataclass(frozen=True, slots=True)
class AckedRange:
    """Entries first..last whose appends were confirmed, with the digest of their contents."""

    first: int
    last: int
    digest: str


@dataclass(frozen=True, slots=True)
class WriterError:
    """A typed error that a writer got."""

    at: float
    ledger_id: int | None
    """None for a ledger that was not created."""
    doing: str
    """Call: "connect", "create", "append", "abort" or "recover"; "" where it is not recorded."""
    error: str
    text: str


@dataclass(slots=True)
class LedgerHistory:
    """Facts about one ledger."""

    ledger_id: int
    acked: list[AckedRange] = field(default_factory=list)
    lac: int = -1
    """Highest LAC that its writer showed."""
    lac_regressions: int = 0
    ended: str | None = None
    ensemble: tuple[str, ...] = ()
    """Bookies that its writer sends to, as last recorded."""
    members: dict[str, None] = field(default_factory=dict)
    """All bookies that its writer sent to."""
    end_last: int | None = None
    """Last entry that its writer or recoverer received as its end."""

    @property
    def is_closed_by_writer(self) -> bool:
        """Whether no recovery ended it, so that its writer recorded all bookies that it used."""
        return self.ended == "closed"

    def send_to(self, ensemble: tuple[str, ...]) -> None:
        """Take the bookies that its writer sends to from now on."""
        self.ensemble = ensemble
        self.members |= dict.fromkeys(ensemble)


@dataclass(slots=True)
class History:
    """Facts that the writers of one campaign recorded."""

    ledgers: dict[int, LedgerHistory] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """Count of typed errors by name: correct ends of a writer, and repeated recoveries."""
    errors: list[WriterError] = field(default_factory=list)
    """The same errors, in order."""
    complaints: list[str] = field(default_factory=list)
    """Errors that a writer itself found: ids out of order, an untyped error."""
    ensemble_changes: int = 0
    acked_at: dict[str, int] = field(default_factory=dict)
    """Count of entries acknowledged when a bookie was first lost, by its id, and `CHANGED` when the
    first ensemble was changed; of writers that record losses."""

    def take(self, fact: dict[str, Any]) -> None:
        """Add the contents of one line."""
        match fact["event"]:
            case "created":
                ledger_id = int(fact["ledger"])
                ensemble = tuple(fact["ensemble"])
                self.ledgers[ledger_id] = LedgerHistory(ledger_id)
                self.ledgers[ledger_id].send_to(ensemble)
            case "acked":
                acked = AckedRange(fact["first"], fact["last"], fact["digest"])
                self.ledgers[fact["ledger"]].acked.append(acked)
            case "lac":
                ledger = self.ledgers[fact["ledger"]]
                ledger.lac_regressions += fact["lac"] < ledger.lac
                ledger.lac = max(ledger.lac, fact["lac"])
            case "ended":
                ledger = self.ledgers[fact["ledger"]]
                ledger.ended, ledger.end_last = fact["how"], fact["last"]
            case "failed":
                self.failures[fact["error"]] = self.failures.get(fact["error"], 0) + 1
                self.errors.append(_error_of(fact))
            case "lost":
                self.acked_at.setdefault(fact["bookie"], self.acked_count)
            case "ensemble_changed":
                self.ensemble_changes += 1
                self.acked_at.setdefault(CHANGED, self.acked_count)
                self.ledgers[fact["ledger"]].send_to(tuple(fact["ensemble"]))
            case "complaint":
                self.complaints.append(str(fact["text"]))
            case other:
                raise ValueError(f"unknown event {other!r} in a history")

    @property
    def acked_count(self) -> int:
        """Number of acknowledged entries."""
        ledgers = self.ledgers.values()
        return sum(
            acked_range.last - acked_range.first + 1
            for ledger in ledgers
            for acked_range in ledger.acked
        )

    @property
    def ensembles(self) -> list[tuple[str, ...]]:
        """For each ledger that is being written, the bookies that its writer sends to."""
        return [ledger.ensemble for ledger in self.ledgers.values() if ledger.ended is None]

    @property
    def unended(self) -> list[int]:
        """Ledgers whose end no writer or recoverer received."""
        return [ledger.ledger_id for ledger in self.ledgers.values() if ledger.ended is None]


def _error_of(fact: dict[str, Any]) -> WriterError:
    doing, text = fact.get("doing", ""), fact.get("text", "")
    return WriterError(fact["at"], fact.get("ledger"), doing, fact["error"], text)


class HistoryFile(LineFile):
    """Writes facts; each survives the end of this process once the call returns."""

    def tell(self, event: str, **fields: object) -> None:
        """Write one complete line."""
        at = round(time.time(), 3)
        line = (
            json.dumps({"event": event, "at": at, **fields}, separators=(",", ":")).encode() + b"\n"
        )
        self.write_line(line)

    def tell_created(self, ledger: LedgerWriter) -> None:
        """Write that a ledger was created, and the bookies that its writer sends to."""
        self.tell("created", ledger=ledger.id, ensemble=ledger.info.fragments[-1].ensemble)

    def tell_change(self, event: ClientEvent) -> None:
        """Write the bookies that a writer sends to from now on, if the event is such a change."""
        if isinstance(event, EnsembleChanged):
            self.tell("ensemble_changed", ledger=event.ledger_id, ensemble=event.ensemble)

    def tell_loss(self, event: ClientEvent) -> None:
        """Write that a bookie was lost, if the event is that, or what `tell_change` writes."""
        if isinstance(event, BookieUnreachable):
            self.tell("lost", bookie=event.bookie_id)
        self.tell_change(event)


class HistoryFollower:
    """Reads complete lines of a history that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.history = History()

    def catch_up(self) -> History:
        """Read the facts written since the last call."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            end = data.rfind(b"\n") + 1
            self._offset += end
            for fact in parse_lines(data[:end].splitlines()):
                self.history.take(fact)
        return self.history


def parse_lines(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    """Return the facts of complete lines."""
    for line in lines:
        fact = json.loads(line)
        assert isinstance(fact, dict), "a fact is an object"
        yield fact


def read_history(path: Path) -> History:
    """Read a finished history."""
    return HistoryFollower(path).catch_up()
