"""The runs of one comparison, in memory and as a directory of JSON files, and the machine on which
they ran, so that the figures can be judged.

What the system does not report of the machine is left out.

Format: `<scenario>--<configuration>--<rate>--<repetition>.json` for each run, and `machine.json`.
"""

import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from quire.bench import configurations, scenarios
from quire.bench.results import (
    Cell,
    FailedRun,
    RunResult,
    failure_to_json,
    of_json,
    to_json,
)

MACHINE_NAME: Final = "machine.json"
RUNS_PATTERN: Final = "*--*--*--*.json"
LOCK_NAME: Final = "lock"
SAME_S: Final = 1e-6
LOAD: Final = "load average at the start"

ParsedT = TypeVar("ParsedT")


class ResultsError(Exception):
    """A directory of results cannot be used; the text gives the file, the reason and the next
    step.
    """


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs by scenario, configuration and rate."""

    runs: tuple[RunResult | FailedRun, ...]
    machine: Mapping[str, str] = field(default_factory=dict)
    """Facts about the machine."""

    @property
    def configurations(self) -> list[str]:
        """Names of the configurations that were run, in the order of the catalogue."""
        return _in_order([run.cell.configuration for run in self.runs], configurations.BY_NAME)

    @property
    def scenarios(self) -> list[str]:
        """Names of the scenarios that were run, in the order of the catalogue."""
        return _in_order([run.cell.scenario for run in self.runs], scenarios.BY_NAME)

    @property
    def rates(self) -> list[float]:
        """Rates that were run, in appends per second, ascending."""
        return sorted(dict.fromkeys(run.cell.rate for run in self.runs))

    def of(self, scenario: str, configuration: str, rate: float) -> list[RunResult]:
        """Return the successful repetitions, in order."""
        return [
            run
            for run in self.runs
            if isinstance(run, RunResult) and _key(run.cell) == (scenario, configuration, rate)
        ]

    def at_lowest_rate(self, scenario: str, configuration: str) -> list[RunResult]:
        """Return the repetitions of a cell at the lowest rate that was run."""
        by_rate = (self.of(scenario, configuration, rate) for rate in self.rates)
        return next((runs for runs in by_rate if runs), [])

    def failures(self) -> list[FailedRun]:
        """Return the failed runs."""
        return [run for run in self.runs if isinstance(run, FailedRun)]


def write_run(directory: Path, run: RunResult | FailedRun) -> Path:
    """Write one run; return its file."""
    directory.mkdir(parents=True, exist_ok=True)
    cell = run.cell
    name = f"{cell.scenario}--{cell.configuration}--{cell.rate:g}--{cell.repetition}.json"
    values = failure_to_json(run) if isinstance(run, FailedRun) else to_json(run)
    path = directory / name
    with path.open("x") as file:  # never replaces a file
        file.write(json.dumps(values) + "\n")
    return path


def write_machine(directory: Path, facts: Mapping[str, str]) -> None:
    """Write the facts about the machine that a directory's runs used."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MACHINE_NAME).write_text(json.dumps(dict(facts), indent=1) + "\n")


def read_comparison(directory: Path) -> Comparison:
    """Read all results of a directory. Raises ResultsError, with the file's name, for a file that
    is not a result.
    """
    runs = [_read(path, of_json) for path in sorted(directory.glob(RUNS_PATTERN))]
    machine = directory / MACHINE_NAME
    facts: dict[str, str] = _read(machine, _facts) if machine.exists() else {}
    return Comparison(tuple(sorted(runs, key=lambda run: run.cell.repetition)), facts)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a directory for this process. Raises ResultsError when another process adds runs to it,
    or when it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / LOCK_NAME).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                text = f"{directory}: another comparison adds runs to it now; wait for it to end"
                raise ResultsError(text) from error
            yield
    except OSError as error:
        raise ResultsError(f"{directory} cannot be written: {error}") from error


def next_repetition(directory: Path, *, entry_bytes: int, scale: float) -> int:
    """Return the first repetition number that no run in a directory has, because runs are never
    replaced.

    Raises ResultsError if the directory's runs cannot be compared with the new ones.
    """
    runs = read_comparison(directory).runs
    for run in runs:
        if not isinstance(run, RunResult):
            continue
        seconds = scenarios.BY_NAME[run.cell.scenario].scaled(scale).seconds
        if run.entry_bytes != entry_bytes or abs(run.seconds - seconds) > SAME_S:
            raise ResultsError(
                f"{directory} has runs of {run.seconds:g} s with entries of {run.entry_bytes} "
                f"bytes; the new ones have {seconds:g} s and {entry_bytes}: use another directory"
            )
    return 1 + max((run.cell.repetition for run in runs), default=-1)


def _read(path: Path, parse: Callable[[Any], ParsedT]) -> ParsedT:
    try:
        return parse(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResultsError(
            f"{path} is not a result of `quire bench compare` ({type(error).__name__}: {error}): "
            "move it away"
        ) from error


def _facts(values: Any) -> dict[str, str]:
    return {name: str(value) for name, value in dict(values).items()}


def _key(cell: Cell) -> tuple[str, str, float]:
    return cell.scenario, cell.configuration, cell.rate


def _in_order(names: Sequence[str], catalogue: Iterable[str]) -> list[str]:
    return [name for name in catalogue if name in names]


def describe_machine(release: str, command: str) -> dict[str, str]:
    """Return facts by name: when, by which release and command, and on which machine."""
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "release": release,
        "command": command,
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": str(os.cpu_count() or "unknown"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    if hasattr(os, "getloadavg"):
        facts[LOAD] = " ".join(f"{load:.2f}" for load in os.getloadavg())
    return facts


def processor() -> str:
    """Return the model of the processor, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
