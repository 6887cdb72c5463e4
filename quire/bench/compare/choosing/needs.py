"""Catalogue of needs: each says what a configuration must do, and which figure decides.

Leaves the decision to `quire.bench.compare.choosing.recommendation`.

Source: docs/which-quorum.md, "Which to choose".
"""

from dataclasses import dataclass
from typing import Final

ONE_BOOKIE_FAILS: Final = ("slow-bookie", "slow-network", "paused-bookie", "killed-bookie")
"""Scenarios in which one bookie fails, or is slow."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What every run of a scenario must show."""

    scenario: str
    figure: str
    limit: float
    says: str
    """What a configuration that does not meet it does."""
    is_minimum: bool = False
    """Whether the figure must be at least the limit, and not at most."""

    def is_met_by(self, value: float) -> bool:
        """Return whether a value meets it."""
        return value >= self.limit if self.is_minimum else value <= self.limit


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure that decides, by its worst value in some scenarios."""

    figure: str
    scenarios: tuple[str, ...]
    """At least one of them must have been run."""


@dataclass(frozen=True, slots=True)
class Need:
    """What some people need from a way to replicate."""

    name: str
    title: str
    measures: tuple[Measure, ...]
    """The first one decides; each later one, among those that the earlier ones do not separate."""
    conditions: tuple[Condition, ...] = ()


def _keeps_on(scenario: str) -> tuple[Condition, Condition]:
    return (
        Condition(scenario, "lost", 0, "loses acknowledged entries"),
        Condition(scenario, "unacknowledged", 0, "leaves appends unacknowledged"),
    )


NEEDS: Final = (
    Need(
        "lowest-latency",
        "Lowest latency",
        (Measure("p99_ms", ("steady",)), Measure("copies", ("steady",))),
    ),
    Need(
        "steady-latency",
        "Lowest latency while one bookie fails",
        (Measure("p999_ms", ONE_BOOKIE_FAILS), Measure("copies", ONE_BOOKIE_FAILS)),
    ),
    Need(
        "two-losses",
        "Survives two losses",
        (Measure("max_ms", ("two-failures",)), Measure("copies", ("two-failures",))),
        (
            Condition(
                "steady", "losable", 2, "has entries that two lost bookies take", is_minimum=True
            ),
            *_keeps_on("two-failures"),
        ),
    ),
    Need(
        "fewest-copies",
        "Fewest copies",
        (Measure("copies", ("killed-bookie",)), Measure("max_ms", ("killed-bookie",))),
        _keeps_on("killed-bookie"),
    ),
)
