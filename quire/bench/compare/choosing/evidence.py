"""Figures of a comparison as a choice needs them: one rate for each scenario.

Leaves the choice to `quire.bench.compare.choosing.recommendation`.

Invariants: pure; configurations are compared at the same rate only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.bench.compare import figures
from quire.bench.compare.comparison import Comparison
from quire.bench.compare.results import FailedRun, RunResult
from quire.bench.compare.spreads import Spread


@dataclass(frozen=True, slots=True)
class Evidence:
    """A figure of one configuration, and the scenario that it comes from."""

    scenario: str
    rate: float
    spread: Spread


def rate_of(comparison: Comparison, scenario: str) -> float | None:
    """Return the rate at which most configurations ran a scenario, and the lowest such rate; None
    if there is no run of it.
    """
    counts = {
        rate: len({run.cell.configuration for run in _runs(comparison, scenario, rate)})
        for rate in comparison.rates
    }
    found = [rate for rate, count in counts.items() if count]
    return min(found, key=lambda rate: (-counts[rate], rate), default=None)


def runs_of(comparison: Comparison, scenario: str, configuration: str) -> list[RunResult]:
    """Return the repetitions of a configuration, at the rate of its scenario."""
    rate = rate_of(comparison, scenario)
    return [] if rate is None else comparison.of(scenario, configuration, rate)


def failures_of(comparison: Comparison, scenario: str, configuration: str) -> list[FailedRun]:
    """Return the failed runs of a configuration, at the rate of its scenario."""
    rate = rate_of(comparison, scenario)
    runs = [] if rate is None else _runs(comparison, scenario, rate)
    failed = [each for each in runs if isinstance(each, FailedRun)]
    return [each for each in failed if each.cell.configuration == configuration]


def worst(
    comparison: Comparison, scenarios: Sequence[str], configuration: str, name: str
) -> Evidence | None:
    """Return a figure in the scenario in which its median is worst; None if no run has it."""
    figure = figures.BY_NAME[name]
    sign = -1.0 if figure.more_is_better else 1.0
    found = []
    for scenario in scenarios:
        runs = runs_of(comparison, scenario, configuration)
        spread = figures.summarise(runs, figure)
        if spread is not None:
            found.append(Evidence(scenario, runs[0].cell.rate, spread))
    return max(found, key=lambda each: sign * each.spread.median, default=None)


def _runs(comparison: Comparison, scenario: str, rate: float) -> list[RunResult | FailedRun]:
    cells = ((run, run.cell) for run in comparison.runs)
    return [run for run, cell in cells if (cell.scenario, cell.rate) == (scenario, rate)]
