"""Description of a seeded bug: a small patch to production code, and the searches that find it.

Leaves the bugs themselves to the modules of `families`, applying them to `trees`, and running
searches to `searches` and `runner`. Bugs that a unit test finds are left to `tests.mutation`.

Invariants: values only. An edit's old text occurs exactly once in its file.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Programs that search for defects."""

    MODEL = "model"
    SIMULATION = "simulation"
    TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `old`, which occurs exactly once in the file, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Search:
    """Search that finds a bug.

    `part` is a configuration of the model, or the theme of the seeds that a simulation runs
    (`plan.py`, or `topic_plan.py`, of `tests/simulation`); without a theme it runs all seeds.
    """

    kind: Kind
    part: str = ""
    beyond_budget: bool = False
    """Whether more is damaged than the ledgers tolerate."""

    @property
    def description(self) -> str:
        """Return the search in words, as reports and documents name it."""
        beyond = ", beyond the budget" if self.beyond_budget else ""
        return f"{self.kind} ({self.part or 'every theme'}{beyond})"


@dataclass(frozen=True, slots=True)
class SeededBug:
    """One known bug."""

    name: str
    """What breaks."""
    wrong: str
    """What the code does wrong, in one sentence."""
    rules: tuple[str, ...]
    edits: tuple[Edit, ...]
    searches: tuple[Search, ...]
    """Each of them finds the bug."""
    masked_by: str = ""
    """Rule that hides the bug if it is alone; the patch breaks this rule too."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the files that the bug changes."""
        return tuple(dict.fromkeys(edit.path for edit in self.edits))


def model(configuration: str) -> Search:
    """Return an exploration of one configuration of `tests.model.scopes`."""
    return Search(Kind.MODEL, configuration)


def simulation(theme: str = "") -> Search:
    """Return simulated clusters with faults of one theme, or of all themes."""
    return Search(Kind.SIMULATION, theme)


def beyond_budget(theme: str = "") -> Search:
    """Return simulated clusters that lose more than their ledgers tolerate: every answer must then
    be an honest error.
    """
    return Search(Kind.SIMULATION, theme, beyond_budget=True)


def topics(theme: str = "") -> Search:
    """Return simulated clusters with brokers, with faults of one theme or of all."""
    return Search(Kind.TOPICS, theme)
