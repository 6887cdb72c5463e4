"""Record of the calls that one process makes at the metadata store: a JSON line for each.

Leaves making the calls to `holder`, and judging them to `judge`.

Format: `at` and `began` are times of the wall clock, in seconds; processes of one machine compare
them.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support.line_file import LineFile


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the session's state."""

    at: float
    state: str
    session: int


@dataclass(frozen=True, slots=True)
class Read:
    """A read of the register; without an answer, `version` is None."""

    began: float
    at: float
    kind: str
    """"plain", "fresh" or "agreed"."""
    version: int | None = None
    value: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """A compare-and-set of the register."""

    began: float
    at: float
    expected: int
    value: str
    outcome: str
    """"applied", "conflict", "unknown" or "unavailable" (certainly not applied)."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """A broken promise that the process itself noticed."""

    at: float
    text: str


Fact = Change | Read | Write | Complaint
KINDS: dict[str, type[Fact]] = {each.__name__: each for each in (Change, Read, Write, Complaint)}


@dataclass(slots=True)
class Record:
    """Everything that one process recorded, in order."""

    name: str
    changes: list[Change] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)

    def take(self, fact: Fact) -> None:
        """Add one fact."""
        match fact:
            case Change():
                self.changes.append(fact)
            case Read():
                self.reads.append(fact)
            case Write():
                self.writes.append(fact)
            case Complaint():
                self.complaints.append(fact)


class RecordFile(LineFile):
    """Writes facts; each survives the end of this process once the call returns."""

    def tell(self, fact: Fact) -> None:
        """Write one complete line."""
        line = json.dumps({"fact": type(fact).__name__, **asdict(fact)}).encode() + b"\n"
        self.write_line(line)


def read_record(path: Path) -> Record:
    """Read the record of a process that has ended."""
    record = Record(path.stem)
    for fields in _lines(path):
        record.take(KINDS[fields.pop("fact")](**fields))
    return record


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_bytes().splitlines():
            yield json.loads(line)
