"""Command line of a simulation: seeds in, violations and one JSON line out.

The exit status is 1 if any invariant was violated.
"""

import argparse
import json
import math
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from tests.simulation.run import Result

SEEDS_PER_PROCESS: Final = 50
RunSeed = Callable[[int], Result]


@dataclass(slots=True)
class Summary:
    """Runs of many seeds, in one process or several, and the sum of their results.

    Format of the summary, one JSON object: seeds, violations (runs that showed any), failing
    (their seeds), messages (frames between clients and bookies), metadata_messages (requests to
    the metadata service, answers, news), messages_per_s (both, per processor second),
    simulated_hours, wall_seconds, entries (acknowledged), ledgers, faults by kind, errors by kind
    (typed ones, which callers met), rejected (writers, and for how many of them the checker
    `availability` would have rejected an error at some time), rejecting_seeds (runs with such a
    writer, by error).
    """

    seeds: int = 0
    failing: list[int] = field(default_factory=list)
    messages: int = 0
    metadata_messages: int = 0
    simulated_s: float = 0.0
    processor_s: float = 0.0
    entries: int = 0
    ledgers: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    rejecting_seeds: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result, processor_s: float) -> None:
        """Add the result of one seed."""
        self.seeds += 1
        if result.violations:
            self.failing.append(result.seed)
        self.messages += result.messages
        self.metadata_messages += result.metadata_messages
        self.simulated_s += result.simulated_s
        self.processor_s += processor_s
        self.entries += result.entries
        self.ledgers += result.ledgers
        self.faults.update(result.faults)
        self.errors.update(result.errors)
        self.rejected.update(result.rejected)
        self.rejecting_seeds.update(name for name, count in result.rejected.items() if count)

    def as_json(self, wall_s: float) -> dict[str, object]:
        """Return the summary as the JSON object that is printed."""
        return {
            "seeds": self.seeds,
            "violations": len(self.failing),
            "failing": sorted(self.failing),
            "messages": self.messages,
            "metadata_messages": self.metadata_messages,
            "messages_per_s": round(
                (self.messages + self.metadata_messages) / max(0.001, self.processor_s)
            ),
            "simulated_hours": round(self.simulated_s / 3600, 2),
            "wall_seconds": round(wall_s, 1),
            "processor_seconds": round(self.processor_s, 1),
            "entries": self.entries,
            "ledgers": self.ledgers,
            "faults": dict(sorted(self.faults.items())),
            "errors": dict(sorted(self.errors.items())),
            "rejected": dict(sorted(self.rejected.items())),
            "rejecting_seeds": dict(sorted(self.rejecting_seeds.items())),
        }


def replay_command(command: str, seed: int, *, beyond_budget: bool) -> str:
    """Return the command that replays one seed, and the commit that it belongs to."""
    options = f"--seed {seed}{' --beyond-budget' if beyond_budget else ''} --trace"
    return f"{command} {options}  # {_commit()}"


def run_campaign(
    seeds: Iterable[int],
    run: RunSeed,
    *,
    workers: int,
    stop_at_first: bool,
    on_result: Callable[[Result], None],
    for_s: float = math.inf,
) -> Summary:
    """Run all seeds, or stop at the first one that fails, or when so many seconds have passed."""
    summary = Summary()
    end_s = time.monotonic() + for_s
    for result, processor_s in _results(seeds, workers, run):
        summary.add(result, processor_s)
        on_result(result)
        if (result.violations and stop_at_first) or time.monotonic() > end_s:
            break
    return summary


def _commit() -> str:
    """Return the checked-out commit; "no commit" for a copy without its history."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        check=False,
        text=True,
    )
    return described.stdout.strip() or "no commit"


def _results(seeds: Iterable[int], workers: int, run: RunSeed) -> Iterator[tuple[Result, float]]:
    job = partial(_timed, run)
    if workers == 1:
        yield from map(job, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(job, seeds)


def _timed(run: RunSeed, seed: int) -> tuple[Result, float]:
    began_s = time.process_time()
    result = run(seed)
    return result, time.process_time() - began_s


class RunTraced(Protocol):
    """Runs one seed; with a trace, it keeps the history."""

    def __call__(self, seed: int, *, trace: bool = False) -> Result:
        """Run it to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulation that runs by seeds."""

    command: str
    themes: tuple[str, ...]
    theme_of: Callable[[int], str]
    run: RunTraced
    run_beyond_budget: RunTraced | None = None
    """Run with more damage than the system tolerates, if there is such a mode."""


def run_command(simulation: Simulation, arguments: Sequence[str] | None = None) -> int:
    """Run the simulations that the arguments request; return the exit status."""
    asked = _parser(simulation).parse_args(arguments)
    run: RunTraced = simulation.run
    if asked.beyond_budget:
        assert simulation.run_beyond_budget is not None
        run = simulation.run_beyond_budget
    if asked.trace:
        return _show(asked, run)
    began_s = time.monotonic()
    seeds = [asked.seed] if asked.seed is not None else _range(asked, simulation)

    def tell(result: Result) -> None:
        if asked.hashes:
            _print(f"{result.seed} {result.trace_hash}")
        if result.violations:
            command = replay_command(
                simulation.command, result.seed, beyond_budget=asked.beyond_budget
            )
            _print(f"seed {result.seed}: {command}")
            for violation in result.violations:
                _print(f"  {violation}")

    run_one: RunSeed = partial(run, trace=False)
    summary = run_campaign(
        seeds,
        run_one,
        workers=min(asked.workers, len(seeds)) or 1,
        stop_at_first=asked.stop_at_first,
        on_result=tell,
        for_s=asked.for_s,
    )
    _print(json.dumps(summary.as_json(time.monotonic() - began_s)))
    return 1 if summary.failing else 0


def _range(asked: argparse.Namespace, simulation: Simulation) -> Sequence[int]:
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    return [seed for seed in seeds if asked.theme in (None, simulation.theme_of(seed))]


def _show(asked: argparse.Namespace, run: RunTraced) -> int:
    seed = asked.first_seed if asked.seed is None else asked.seed
    result = run(seed, trace=True)
    for line in result.trace:
        _print(line)
    for violation in result.violations:
        _print(f"violation: {violation}")
    _print(f"{seed} {result.trace_hash}")
    return 1 if result.violations else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser(simulation: Simulation) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=simulation.command, description="Run simulated clusters, one per seed."
    )
    parser.set_defaults(beyond_budget=False)
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="the first (0)")
    parser.add_argument("--seed", type=int, metavar="N", help="only this one")
    parser.add_argument(
        "--theme", choices=simulation.themes, help="only seeds whose faults are of this theme"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (1)")
    if simulation.run_beyond_budget is not None:
        parser.add_argument(
            "--beyond-budget",
            action="store_true",
            help="damage more than the system tolerates: it may then be unavailable, never wrong",
        )
    parser.add_argument(
        "--for-s",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="end at the first seed that ends after this time",
    )
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first violation")
    parser.add_argument("--hashes", action="store_true", help="print the trace hash of each seed")
    parser.add_argument("--trace", action="store_true", help="print the history of one seed")
    return parser
