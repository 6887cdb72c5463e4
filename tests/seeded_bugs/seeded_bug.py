"""Description of a seeded bug: a small patch to production code, and the detectors that find it.

Leaves the bugs themselves to the modules of `families`, applying them to `trees`, and running
detectors to `detectors` and `runner`.

Invariants: values only. An edit's old text occurs exactly once in its file.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

SEEDS_MAX: Final = 2_000
TOPICS_SEEDS_MAX: Final = 1_000
LEDGERS_MODULE: Final = "tests.simulation"
TOPICS_MODULE: Final = "tests.simulation.topics"
SIMULATION_BUDGET_S: Final = 300
UNITS_BUDGET_S: Final = 180
MODEL_BUDGET_S: Final = 180
MODEL_STATES_MAX: Final = 300_000
"""Limit for one configuration; the largest number needed to find a bug is about 155,000."""

APPEND_HISTORIES: Final = (
    "tests/unit/ledger_client/protocol/test_append_protocol.py::test_every_history_keeps_the_rules"
)
RECOVERY_HISTORIES: Final = (
    "tests/unit/ledger_client/protocol/test_recovery_protocol.py"
    "::test_every_history_keeps_the_rules"
)
SCENARIOS: Final = "tests/scenarios/test_scenarios.py::test_scenario"
STORAGE_CRASHES: Final = (
    "tests/unit/bookie/storage/test_storage_crash.py::test_nothing_acknowledged_is_lost_or_changed"
)
LOG_CRASHES: Final = (
    "tests/unit/bookie/log/test_log_crash.py::test_nothing_acknowledged_is_lost_or_changed"
)


class Kind(StrEnum):
    """Classes of detectors, the cheapest first."""

    UNITS = "units"
    MODEL = "model"
    SIMULATION = "simulation"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `old`, which occurs exactly once in the file, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Detector:
    """Check that may find a bug within a budget.

    `targets` are pytest's arguments (units), or the configurations that find the bug, the smallest
    first (model). A simulation runs the seeds below `seeds_max` whose faults have a `theme`
    (`plan.py`, or `topic_plan.py`, of `tests/simulation`), or all.
    """

    kind: Kind
    budget_s: float
    targets: tuple[str, ...] = ()
    seeds_max: int = 0
    theme: str = ""
    module: str = LEDGERS_MODULE
    """Module of the simulation to run."""
    beyond_budget: bool = False
    """Whether more is damaged than the ledgers tolerate."""


@dataclass(frozen=True, slots=True)
class OutOfSight:
    """A class of detectors that cannot see a bug, and why."""

    kind: Kind
    why: str


@dataclass(frozen=True, slots=True)
class SeededBug:
    """One known bug."""

    name: str
    wrong: str
    """What the code does wrong, in one sentence."""
    rules: tuple[str, ...]
    edits: tuple[Edit, ...]
    detectors: tuple[Detector, ...]
    """In the order in which they run, the cheapest first."""
    out_of_sight: tuple[OutOfSight, ...] = ()
    masked_by: str = ""
    """Rule that hides the bug if it is alone; the patch breaks this rule too."""

    def detector(self, kind: Kind) -> Detector | None:
        """Return the detector of a class, if that class can find the bug."""
        return next((each for each in self.detectors if each.kind is kind), None)


def units(*targets: str) -> Detector:
    """Return a detector of unit tests, scenarios or storage crash tests."""
    return Detector(Kind.UNITS, UNITS_BUDGET_S, targets)


def model(*configurations: str) -> Detector:
    """Return a detector that explores these configurations of `tests.model.scopes`."""
    return Detector(Kind.MODEL, MODEL_BUDGET_S, configurations)


def simulation(theme: str = "") -> Detector:
    """Return a detector of simulated clusters with faults of one theme, or of all themes."""
    return Detector(Kind.SIMULATION, SIMULATION_BUDGET_S, (), SEEDS_MAX, theme)


def beyond_budget(theme: str = "") -> Detector:
    """Return a detector of simulated clusters that lose more than their ledgers tolerate: every
    answer must then be an honest error.
    """
    return replace(simulation(theme), beyond_budget=True)


def hidden_from_simulation(why: str) -> OutOfSight:
    """Return the reason why no simulated cluster can find it."""
    return OutOfSight(Kind.SIMULATION, why)


def hidden_from_model(why: str) -> OutOfSight:
    """Return the reason why the exhaustive exploration cannot find it."""
    return OutOfSight(Kind.MODEL, why)


def topics(theme: str = "") -> Detector:
    """Return a detector of simulated clusters with brokers, with faults of one theme or all."""
    return Detector(
        Kind.SIMULATION, SIMULATION_BUDGET_S, (), TOPICS_SEEDS_MAX, theme, TOPICS_MODULE
    )


SHELL_ONLY: Final = hidden_from_model("the model drives decisions, not the shells that act on them")
LEDGERS_ONLY: Final = hidden_from_model("the model knows ledgers, not what brokers do with them")
CLIENTS_TRUSTED: Final = (
    hidden_from_model("the model has no clients that prove who they are, or are refused"),
    hidden_from_simulation("its clients use no TLS and no logins, and have all rights"),
)
DISK_ONLY: Final = hidden_from_model("the log, its files and the index are no part of the model")
