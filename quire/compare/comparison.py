"""Keeps the runs of one comparison together, in memory and as a directory of JSON files.

Leaves the JSON of one run to `quire.compare.results`.

Format: `<scenario>--<configuration>--<rate>--<repetition>.json` for each run.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quire.compare import configurations, scenarios
from quire.compare.results import (
    Cell,
    FailedRun,
    RunResult,
    failure_to_json,
    of_json,
    to_json,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs, found by what they are of."""

    runs: tuple[RunResult | FailedRun, ...]

    @property
    def configurations(self) -> list[str]:
        """Names of those that were run, in the order of the catalogue."""
        return _in_order([run.cell.configuration for run in self.runs], configurations.BY_NAME)

    @property
    def scenarios(self) -> list[str]:
        """The same of scenarios."""
        return _in_order([run.cell.scenario for run in self.runs], scenarios.BY_NAME)

    @property
    def rates(self) -> list[float]:
        """Appends per second that were tried, ascending."""
        return sorted(dict.fromkeys(run.cell.rate for run in self.runs))

    def of(self, scenario: str, configuration: str, rate: float) -> list[RunResult]:
        """Return the repetitions that gave figures, in order."""
        return [
            run
            for run in self.runs
            if isinstance(run, RunResult) and _key(run.cell) == (scenario, configuration, rate)
        ]

    def failures(self) -> list[FailedRun]:
        """Return the runs that gave none."""
        return [run for run in self.runs if isinstance(run, FailedRun)]


def write_run(directory: Path, run: RunResult | FailedRun) -> Path:
    """Write one run; return its file."""
    directory.mkdir(parents=True, exist_ok=True)
    cell = run.cell
    name = f"{cell.scenario}--{cell.configuration}--{cell.rate:g}--{cell.repetition}.json"
    values = failure_to_json(run) if isinstance(run, FailedRun) else to_json(run)
    path = directory / name
    path.write_text(json.dumps(values, indent=1) + "\n")
    return path


def read_runs(directory: Path) -> Comparison:
    """Read every run that was written to a directory."""
    paths = sorted(directory.glob("*--*--*--*.json"))
    runs = [of_json(json.loads(path.read_text())) for path in paths]
    return Comparison(tuple(sorted(runs, key=lambda run: run.cell.repetition)))


def _key(cell: Cell) -> tuple[str, str, float]:
    return cell.scenario, cell.configuration, cell.rate


def _in_order(names: Sequence[str], catalogue: Iterable[str]) -> list[str]:
    return [name for name in catalogue if name in names]
