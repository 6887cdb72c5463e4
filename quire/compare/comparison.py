"""Keeps the runs of one comparison together, in memory and as a directory of JSON files.

Leaves the JSON of one run to `quire.compare.results`.

Format: `<scenario>--<configuration>--<rate>--<repetition>.json` for each run, and `machine.json`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quire.compare import configurations, scenarios
from quire.compare.results import (
    Cell,
    FailedRun,
    RunResult,
    failure_to_json,
    of_json,
    to_json,
)

MACHINE_NAME: Final = "machine.json"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs, found by what they are of."""

    runs: tuple[RunResult | FailedRun, ...]
    machine: Mapping[str, str] = field(default_factory=dict)
    """What it ran on."""

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
    path.write_text(json.dumps(values) + "\n")
    return path


def write_machine(directory: Path, facts: Mapping[str, str]) -> None:
    """Write what the runs of a directory ran on."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MACHINE_NAME).write_text(json.dumps(dict(facts), indent=1) + "\n")


def read_comparison(directory: Path) -> Comparison:
    """Read everything that was written to a directory."""
    paths = sorted(directory.glob("*--*--*--*.json"))
    runs = [of_json(json.loads(path.read_text())) for path in paths]
    machine = directory / MACHINE_NAME
    facts: dict[str, str] = json.loads(machine.read_text()) if machine.exists() else {}
    return Comparison(tuple(sorted(runs, key=lambda run: run.cell.repetition)), facts)


def next_repetition(directory: Path) -> int:
    """Return the first number that no run in a directory has: runs are added, none replaced."""
    return 1 + max((run.cell.repetition for run in read_comparison(directory).runs), default=-1)


def _key(cell: Cell) -> tuple[str, str, float]:
    return cell.scenario, cell.configuration, cell.rate


def _in_order(names: Sequence[str], catalogue: Iterable[str]) -> list[str]:
    return [name for name in catalogue if name in names]
