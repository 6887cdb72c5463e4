"""`python -m tests.seeded_bugs`: break a copy of the code in each known way, one at a time, and
check whether tests, model and simulation find it.

Prints a table, or JSON. The exit status is 1 if a bug was not found.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from random import Random

from tests.seeded_bugs import table
from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.runner import Plan, Verdict, is_missing, look_for
from tests.seeded_bugs.seeded_bug import Kind, SeededBug


def main() -> int:
    """Search for the seeded bugs."""
    given = _arguments()
    chosen = [bug for bug in BUGS if not given.only or bug.name in given.only]
    unknown = [name for name in given.only if all(name != bug.name for bug in BUGS)]
    if unknown:
        sys.stderr.write(f"no seeded bug has the name {', '.join(unknown)}: see --list\n")
        return 2
    if given.sample:
        chosen = sample_of(chosen, given.sample, given.seed)
    if given.list:
        for bug in chosen:
            sys.stdout.write(f"{bug.name} ({', '.join(bug.rules)}): {bug.wrong}\n")
        return 0
    kinds = tuple(kind for kind in Kind if not given.detector or kind in given.detector)
    plan = Plan(kinds, given.seeds, given.workers, given.stop_at_first)
    verdicts, is_whole = _look_for(chosen, plan)
    if given.json:
        sys.stdout.write(json.dumps(table.as_json(verdicts, plan), indent=2) + "\n")
    else:
        sys.stdout.write(table.render(table.rows(verdicts, kinds)) + "\n\n")
        sys.stdout.write(table.evidence_of_missing(verdicts, plan))
        sys.stdout.write(table.score(verdicts, plan) + "\n")
    return 1 if not is_whole or any(is_missing(verdict, plan) for verdict in verdicts) else 0


def sample_of(bugs: Sequence[SeededBug], count: int, seed: str) -> list[SeededBug]:
    """Return `count` of the bugs, which the text `seed` chooses, in their order."""
    kept = set(Random(seed).sample(range(len(bugs)), min(count, len(bugs))))
    return [bug for number, bug in enumerate(bugs) if number in kept]


def _look_for(chosen: Sequence[SeededBug], plan: Plan) -> tuple[list[Verdict], bool]:
    """Return the verdicts in the order of the catalogue, also after an interruption."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done: dict[str, Verdict] = {}

    def tell(verdict: Verdict) -> None:
        done[verdict.bug.name] = verdict
        _tell_progress(verdict)

    is_whole = True
    try:
        asyncio.run(look_for(chosen, plan, tell))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the results are incomplete\n")
        is_whole = False
    return [done[bug.name] for bug in chosen if bug.name in done], is_whole


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_bugs", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these bugs")
    parser.add_argument(
        "--detector", type=Kind, choices=list(Kind), action="append", help="only these classes"
    )
    parser.add_argument("--seeds", type=int, help="the simulation's budget for each bug")
    parser.add_argument("--sample", type=int, default=0, help="only so many bugs, at random")
    parser.add_argument("--seed", default="0", help="of the sample; any text")
    parser.add_argument("--workers", type=int, default=2, help="number of concurrent searches")
    parser.add_argument(
        "--stop-at-first", action="store_true", help="one class that finds a bug is enough"
    )
    parser.add_argument("--json", action="store_true", help="print JSON with all evidence")
    parser.add_argument("--list", action="store_true", help="print the bugs' descriptions and exit")
    return parser.parse_args()


def _tell_progress(verdict: Verdict) -> None:
    ended = ", ".join(
        f"{each.kind} {each.verdict} ({each.count:,}, {each.seconds:.0f} s)"
        for each in verdict.findings
    )
    sys.stderr.write(f"{verdict.bug.name}: {ended or 'out of sight'}\n")


if __name__ == "__main__":
    sys.exit(main())
