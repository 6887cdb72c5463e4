"""Holds what a seeded bug is: a small patch to production code, and what should find it.

Leaves the bugs themselves to the modules of `families`, applying them to `trees`, and running what
finds them to `detectors` and `runner`.

Invariants: values only; an edit's old text stands exactly once in its file.
"""

from dataclasses import dataclass
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
"""Of one configuration; the largest number that a bug was found to need is some 155,000."""

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
    """The classes of detectors, the cheapest first."""

    UNITS = "units"
    MODEL = "model"
    SIMULATION = "simulation"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `old`, which stands exactly once in the file, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Detector:
    """Something that may find a bug within a budget.

    `targets` are what pytest is given (units), or the configurations in which the bug shows, the
    smallest first (model). Of a simulation, those seeds below `seeds_max` are run whose faults
    have a `theme` (`plan.py`, or `topic_plan.py`, of `tests/simulation`), or all.
    """

    kind: Kind
    budget_s: float
    targets: tuple[str, ...] = ()
    seeds_max: int = 0
    theme: str = ""
    module: str = LEDGERS_MODULE
    """Of the simulation: what is run."""


@dataclass(frozen=True, slots=True)
class OutOfSight:
    """A class of detectors that cannot see a bug, and why."""

    kind: Kind
    why: str


@dataclass(frozen=True, slots=True)
class SeededBug:
    """One known way to be wrong."""

    name: str
    wrong: str
    """What it gets wrong, in one sentence."""
    rules: tuple[str, ...]
    edits: tuple[Edit, ...]
    detectors: tuple[Detector, ...]
    """In the order in which they run, the cheapest first."""
    out_of_sight: tuple[OutOfSight, ...] = ()
    masked_by: str = ""
    """The rule that hides the bug when it stands alone, and is broken together with it."""

    def detector(self, kind: Kind) -> Detector | None:
        """Return the detector of a class, if the bug is in its sight."""
        return next((each for each in self.detectors if each.kind is kind), None)


def units(*targets: str) -> Detector:
    """Find it by unit tests, scenarios or storage crash tests."""
    return Detector(Kind.UNITS, UNITS_BUDGET_S, targets)


def model(*configurations: str) -> Detector:
    """Find it by exploring the decision classes in these configurations of `tests.model.scopes`."""
    return Detector(Kind.MODEL, MODEL_BUDGET_S, configurations)


def simulation(theme: str = "") -> Detector:
    """Find it by whole simulated clusters, those of one theme."""
    return Detector(Kind.SIMULATION, SIMULATION_BUDGET_S, (), SEEDS_MAX, theme)


def hidden_from_simulation(why: str) -> OutOfSight:
    """Say why no simulated cluster can show it."""
    return OutOfSight(Kind.SIMULATION, why)


def hidden_from_model(why: str) -> OutOfSight:
    """Say why the exhaustive exploration cannot show it."""
    return OutOfSight(Kind.MODEL, why)


def topics(theme: str = "") -> Detector:
    """Find it by whole simulated clusters with brokers, those of one theme."""
    return Detector(
        Kind.SIMULATION, SIMULATION_BUDGET_S, (), TOPICS_SEEDS_MAX, theme, TOPICS_MODULE
    )


SHELL_ONLY: Final = hidden_from_model("the model drives decisions, not the shells that act on them")
LEDGERS_ONLY: Final = hidden_from_model("the model knows ledgers, not what brokers do with them")
DISK_ONLY: Final = hidden_from_model("the log, its files and the index are no part of the model")
