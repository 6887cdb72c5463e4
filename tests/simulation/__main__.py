"""Runs the simulation from the command line: seeds in, violations and one JSON line out.

Leaves running seeds to `tests.simulation.campaign`. The exit status is 1 if any promise was broken.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence

from tests.simulation.campaign import replay_command, run_campaign
from tests.simulation.plan import THEMES, theme_of
from tests.simulation.run import Result, run_seed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; return the exit status."""
    asked = _parser().parse_args(arguments)
    if asked.trace:
        return _show(asked)
    began_s = time.monotonic()
    seeds = [asked.seed] if asked.seed is not None else _range(asked)

    def tell(result: Result) -> None:
        if asked.hashes:
            _print(f"{result.seed} {result.trace_hash}")
        if result.violations:
            command = replay_command(result.seed, beyond_budget=asked.beyond_budget)
            _print(f"seed {result.seed}: {command}")
            for violation in result.violations:
                _print(f"  {violation}")

    summary = run_campaign(
        seeds,
        workers=min(asked.workers, len(seeds)) or 1,
        beyond_budget=asked.beyond_budget,
        stop_at_first=asked.stop_at_first,
        on_result=tell,
    )
    _print(json.dumps(summary.as_json(time.monotonic() - began_s)))
    return 1 if summary.failing else 0


def _range(asked: argparse.Namespace) -> Sequence[int]:
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    return [seed for seed in seeds if asked.theme in (None, theme_of(seed))]


def _show(asked: argparse.Namespace) -> int:
    seed = asked.first_seed if asked.seed is None else asked.seed
    result = run_seed(seed, beyond_budget=asked.beyond_budget, trace=True)
    for line in result.trace:
        _print(line)
    for violation in result.violations:
        _print(f"violation: {violation}")
    _print(f"{seed} {result.trace_hash}")
    return 1 if result.violations else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Run simulated clusters, one per seed."
    )
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="the first (0)")
    parser.add_argument("--seed", type=int, metavar="N", help="only this one")
    parser.add_argument("--theme", choices=THEMES, help="only seeds whose faults are of this theme")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument(
        "--beyond-budget",
        action="store_true",
        help="damage more than can be borne: only honest unavailability is then allowed",
    )
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first violation")
    parser.add_argument("--hashes", action="store_true", help="print the trace hash of each seed")
    parser.add_argument("--trace", action="store_true", help="print the history of one seed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
