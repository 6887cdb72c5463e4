"""What the process of bad clients is asked to do, and what it answers.

Leaves the pipe between the two processes to `flooder` and `flooder_process`.

Format: JSON, the fields of the classes.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks.floods.kinds import FloodKind, Size

BAD_HOST: Final = "127.0.0.3"
"""Address of the bad clients, on Linux: the good ones have another one, as they would elsewhere."""


@dataclass(frozen=True, slots=True)
class FloodTarget:
    """Where the attacked servers are, and what the bad clients have: a certificate without a role,
    a login without an ACL for other topics, a ledger of their own, and a topic that they may read.
    """

    client_file: str
    user: str
    password_file: str
    bookie_id: str
    bookie: str
    admin: str
    broker: str
    gateway: str
    ledger_id: int
    ledger_key: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class FloodJob:
    """One flood."""

    kind: FloodKind
    size: Size
    target: FloodTarget

    def as_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "FloodJob":
        """Return the job of a line."""
        given = json.loads(line)
        target = FloodTarget(**given["target"])
        return cls(FloodKind(given["kind"]), Size(**given["size"]), target)


@dataclass(slots=True)
class FloodCounts:
    """What the bad clients did, and what they got."""

    opened: int = 0
    refused: int = 0
    """Connections that were closed before they were in their place."""
    cut: int = 0
    """Connections that were closed later."""
    requests: int = 0
    denied: int = 0
    """Requests that were answered with an error."""


@dataclass(frozen=True, slots=True)
class FloodRun:
    """A flood that runs: its job and its counts."""

    job: FloodJob
    counts: FloodCounts
    full: Callable[[], None]
    """Is called once all bad clients have come."""
