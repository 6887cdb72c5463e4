"""What the processes of a campaign told, gathered from their histories.

Leaves writing them to the processes, and judging to `judge`.

Format: JSON lines as `tests.campaign.history` writes them; `take` lists every event.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from tests.campaign.history import parse_lines
from tests.campaign.topics.spans import SpanList, add_words


class Outcome(Enum):
    """What the writer of a token was told of it."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Token:
    """What one transaction was to write: of each partition (first sequence, records)."""

    writer: str
    parts: dict[int, tuple[int, int]]
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets that a group had committed; `at` is when its member was told."""

    at: float
    offsets: dict[int, int]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Offsets that somebody was told a group had committed; `asked` is when it began to ask."""

    by: str
    asked: float
    offsets: dict[int, int]


@dataclass(slots=True)
class GroupFacts:
    """What the members of one group told, and those who asked for its offsets."""

    commits: list[Commit] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    read: dict[int, SpanList] = field(default_factory=dict)


@dataclass(slots=True)
class Facts:
    """Everything that was told in one campaign."""

    acked: dict[int, SpanList] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    groups: dict[str, GroupFacts] = field(default_factory=dict)
    watched: dict[str, dict[int, SpanList]] = field(default_factory=dict)
    """What each watcher saw of the tokens."""
    stuck: list[dict[str, Any]] = field(default_factory=list)
    """Clients that hung, with what was found out about each."""
    ends: dict[tuple[str, str], list[dict[int, int]]] = field(default_factory=dict)
    """Of a topic at an isolation level, what each question was answered."""
    acked_counts: Counter[int] = field(default_factory=Counter)
    """How many records of each partition of the plain topic were acknowledged."""
    failures: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    in_sync_least: int | None = None
    left: int = 0
    """Records that a producer gave up waiting for at the end."""

    @property
    def acked_count(self) -> int:
        """How many records of the plain topic were acknowledged."""
        return self.acked_counts.total()

    def tokens_of(self, outcome: Outcome) -> int:
        """How many tokens ended so."""
        return sum(each.outcome is outcome for each in self.tokens.values())

    def group(self, name: str) -> GroupFacts:
        """Return what was told of a group."""
        return self.groups.setdefault(name, GroupFacts())

    def take(self, fact: dict[str, Any]) -> None:
        """Add one line's content."""
        match fact["event"]:
            case "acked":
                self.acked_counts.update(add_words(self.acked, fact["spans"]))
            case "began":
                parts = {int(key): (first, count) for key, (first, count) in fact["parts"].items()}
                self.tokens[fact["token"]] = Token(fact["writer"], parts)
            case "committed" | "aborted":
                self.tokens[fact["token"]].outcome = Outcome(fact["event"])
            case "read":
                add_words(self._read_by(fact["by"], fact["group"]), fact["spans"])
            case "offsets committed":
                commit = Commit(fact["mono"], _numbers(fact["offsets"]))
                self.group(fact["group"]).commits.append(commit)
            case "offsets fetched":
                fetch = Fetch(fact["by"], fact["asked"], _numbers(fact["offsets"]))
                self.group(fact["group"]).fetches.append(fetch)
            case "ends":
                answers = self.ends.setdefault((fact["topic"], fact["level"]), [])
                answers.append(_numbers(fact["ends"]))
            case "in sync":
                self._take_counts(fact["counts"])
            case "failed" | "stuck" | "complaint":
                self._take_trouble(fact)
            case "ended":
                self.left += fact["left"]
            case other:
                raise ValueError(f"unknown event {other!r} in a history")

    def _take_trouble(self, fact: dict[str, Any]) -> None:
        if fact["event"] == "failed":
            self.failures[fact["error"]] += 1
        elif fact["event"] == "stuck":
            self.stuck.append({"who": fact["by"], **fact["found"]})
        else:
            self.complaints.append(f"{fact['by']}: {fact['text']}")

    def _read_by(self, name: str, group: str) -> dict[int, SpanList]:
        """Return where to gather what a member of a group read, or a watcher, which is in none."""
        return self.group(group).read if group else self.watched.setdefault(name, {})

    def _take_counts(self, counts: list[int]) -> None:
        least = [self.in_sync_least] if self.in_sync_least is not None else []
        self.in_sync_least = min([*counts, *least], default=None)


class FactsFollower:
    """Reads the histories in a directory while they grow, whole lines at a time."""

    def __init__(self, directory: Path) -> None:
        self.facts = Facts()
        self._directory = directory
        self._offsets: dict[Path, int] = {}

    def catch_up(self) -> Facts:
        """Take in what was written since the last call."""
        for path in sorted(self._directory.glob("*.jsonl")):
            self._offsets[path] = _take_lines(self.facts, path, self._offsets.get(path, 0))
        return self.facts


def read_history(path: Path) -> Facts:
    """Read one process's history, as far as it is written."""
    facts = Facts()
    _take_lines(facts, path, 0)
    return facts


def _take_lines(facts: Facts, path: Path, offset: int) -> int:
    """Take in the whole lines from an offset on; return where they end."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    for fact in parse_lines(data[:end].splitlines()):
        facts.take(fact)
    return offset + end


def read_facts(directory: Path) -> Facts:
    """Read histories that have ended."""
    return FactsFollower(directory).catch_up()


def _numbers(words: dict[str, int]) -> dict[int, int]:
    return {int(key): value for key, value in words.items()}
