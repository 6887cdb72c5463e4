"""Operations on ledgers as their clients saw them: a JSON line for each, for an outside judge.

Leaves judging to the program in `porcupine/`, and the format to README.md beside it.

Invariants: a line is one `write` to a file opened for appending, and many processes may share the
file. An operation that can change a ledger has a line with the outcome `unknown` before anything is
sent, and another with the same id at its end. So it is not missing if its process is killed.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tests.support.line_file import LineFile

Kind = Literal["create", "append", "read", "absent", "lac", "look", "close", "recover"]
Outcome = Literal["ok", "fail", "unknown"]
VALUE_DIGITS: Final = 16
CHANGES: Final = ("append", "close", "recover")


def value_of(data: bytes) -> str:
    """Return the value of an entry in a history: the start of its SHA-256."""
    return hashlib.sha256(data).hexdigest()[:VALUE_DIGITS]


def now_ns() -> int:
    """Return the time on the clock that all processes of a machine share."""
    return time.monotonic_ns()


@dataclass(slots=True)
class Operation:
    """One operation of one client that has begun."""

    id: str
    client: str
    handle: str
    operation: Kind
    ledger: int
    start_ns: int
    end_ns: int | None = None
    outcome: Outcome = "unknown"
    facts: dict[str, Any] = field(default_factory=dict)
    """Arguments and results: `first`, `values`, `confirmed`, `last`, `closed`."""

    def line(self) -> bytes:
        """Return the line of the history."""
        names = ("id", "client", "handle", "operation", "ledger", "start_ns", "end_ns", "outcome")
        fields = {name: getattr(self, name) for name in names} | self.facts
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


class OperationFile(LineFile):
    """Writes operations of one client."""

    def __init__(self, path: Path, client: str) -> None:
        super().__init__(path)
        self._client = client
        self._count = 0

    def begin(self, kind: Kind, ledger: int, handle: str, **facts: object) -> Operation:
        """Begin an operation now; one that can change the ledger is written before it is sent."""
        began = self.began(now_ns(), kind, ledger, handle, **facts)
        if kind in CHANGES:
            self.write(began)
        return began

    def began(
        self, start_ns: int, kind: Kind, ledger: int, handle: str, **facts: object
    ) -> Operation:
        """Return an operation that began at this time, and write nothing."""
        self._count += 1
        name = f"{self._client}/{self._count}"
        return Operation(name, self._client, handle, kind, ledger, start_ns, facts=facts)

    def end(self, begun: Operation, outcome: Outcome, **facts: object) -> None:
        """End an operation now, with its results."""
        begun.end_ns, begun.outcome = now_ns(), outcome
        begun.facts |= facts
        self.write(begun)

    def write(self, operation: Operation) -> None:
        """Write one complete line."""
        self.write_line(operation.line())


class CreatedLedgers:
    """Ids of the ledgers in a history that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.ids: list[int] = []

    def catch_up(self) -> list[int]:
        """Read what was written since the last call; return all ids in order of creation."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            end = data.rfind(b"\n") + 1
            self._offset += end
            self.ids += _created(data[:end].splitlines())
        return self.ids


def _created(lines: Iterable[bytes]) -> Iterator[int]:
    for line in lines:
        if b'"create"' in line:
            yield json.loads(line)["ledger"]
