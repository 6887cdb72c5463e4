"""Facts that the processes of a campaign recorded, gathered from their histories.

Leaves writing them to the processes, and judging to `judge`.

Format: JSON lines as `tests.campaign.history` writes them; `take` lists every event.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from tests.campaign.history import parse_lines
from tests.campaign.topics.spans import SpanList, SpanWords, add_words


class Outcome(Enum):
    """Outcome of a token, as its writer received it."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Token:
    """Planned contents of one transaction: for each partition (first sequence, records)."""

    writer: str
    parts: dict[int, tuple[int, int]]
    reader: str = ""
    reads: dict[int, SpanList] = field(default_factory=dict)
    """Records that its reader got before the token began."""
    began: float = 0.0
    ended: float = 0.0
    """When its writer received the outcome."""
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets that a group committed; `at` is when its member received the confirmation."""

    at: float
    offsets: dict[int, int]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Committed offsets as a process received them; `asked` is when it sent the request."""

    by: str
    asked: float
    offsets: dict[int, int]


@dataclass(frozen=True, slots=True)
class TokenRead:
    """Records of the tokens that a reader got."""

    by: str
    at: float
    spans: dict[int, SpanList]


@dataclass(slots=True)
class GroupFacts:
    """Facts of one group's members, and of the processes that query its offsets."""

    commits: list[Commit] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    read: dict[int, SpanList] = field(default_factory=dict)


@dataclass(slots=True)
class Facts:
    """All facts of one campaign."""

    acked: dict[int, SpanList] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    groups: dict[str, GroupFacts] = field(default_factory=dict)
    watched: dict[str, dict[int, SpanList]] = field(default_factory=dict)
    """What each watcher read of the tokens."""
    token_reads: list[TokenRead] = field(default_factory=list)
    """The same, read by read."""
    stuck: list[dict[str, Any]] = field(default_factory=list)
    """Clients that hung, with the cause as far as known."""
    ends: dict[tuple[str, str], list[dict[int, int]]] = field(default_factory=dict)
    """For each topic and isolation level, the answers to the queries."""
    acked_counts: Counter[int] = field(default_factory=Counter)
    """Number of acknowledged records of each partition of the plain topic."""
    failures: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    in_sync_least: int | None = None
    left: int = 0
    """Records that a producer stopped waiting for at the end."""

    @property
    def acked_count(self) -> int:
        """Number of acknowledged records of the plain topic."""
        return self.acked_counts.total()

    def tokens_of(self, outcome: Outcome) -> int:
        """Return the number of tokens with this outcome."""
        return sum(token.outcome is outcome for token in self.tokens.values())

    def group(self, name: str) -> GroupFacts:
        """Return the facts of a group."""
        return self.groups.setdefault(name, GroupFacts())

    def take(self, fact: dict[str, Any]) -> None:
        """Add the contents of one line."""
        match fact["event"]:
            case "acked":
                self.acked_counts.update(add_words(self.acked, fact["spans"]))
            case "began":
                self.tokens[fact["token"]] = _token(fact)
            case "committed" | "aborted":
                token = self.tokens[fact["token"]]
                token.outcome, token.ended = Outcome(fact["event"]), fact["mono"]
            case "read":
                add_words(self._read_by(fact["by"], fact["group"]), fact["spans"])
                if not fact["group"]:
                    read = TokenRead(fact["by"], fact["mono"], _spans(fact["spans"]))
                    self.token_reads.append(read)
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
        """Return where to add the records read by a group's member, or by a watcher without a
        group.
        """
        return self.group(group).read if group else self.watched.setdefault(name, {})

    def _take_counts(self, counts: list[int]) -> None:
        least = [self.in_sync_least] if self.in_sync_least is not None else []
        self.in_sync_least = min([*counts, *least], default=None)


class FactsFollower:
    """Reads complete lines of the histories in a directory while they grow."""

    def __init__(self, directory: Path) -> None:
        self.facts = Facts()
        self._directory = directory
        self._offsets: dict[Path, int] = {}

    def catch_up(self) -> Facts:
        """Read the facts written since the last call."""
        for path in sorted(self._directory.glob("*.jsonl")):
            self._offsets[path] = _take_lines(self.facts, path, self._offsets.get(path, 0))
        return self.facts


def read_history(path: Path) -> Facts:
    """Read one process's history as far as it is written."""
    facts = Facts()
    _take_lines(facts, path, 0)
    return facts


def _take_lines(facts: Facts, path: Path, offset: int) -> int:
    """Read the complete lines from an offset on; return their end."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    for fact in parse_lines(data[:end].splitlines()):
        facts.take(fact)
    return offset + end


def read_facts(directory: Path) -> Facts:
    """Read finished histories."""
    return FactsFollower(directory).catch_up()


def _token(fact: dict[str, Any]) -> Token:
    parts = {int(key): (first, count) for key, (first, count) in fact["parts"].items()}
    reads = _spans(fact["reads"])
    return Token(fact["writer"], parts, fact["reader"], reads, fact["mono"])


def _spans(words: dict[str, list[SpanWords]]) -> dict[int, SpanList]:
    spans: dict[int, SpanList] = {}
    add_words(spans, words)
    return spans


def _numbers(words: dict[str, int]) -> dict[int, int]:
    return {int(key): value for key, value in words.items()}
