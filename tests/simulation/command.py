"""Command line of a simulation: seeds in, violations and one JSON line out.

Leaves running seeds to `tests.simulation.campaign`. The exit status is 1 if any invariant was
violated.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tests.simulation.campaign import RunSeed, replay_command, run_campaign
from tests.simulation.run import Result


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
