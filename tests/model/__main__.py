"""Command line that explores a scope's configurations or seeded bugs: `python -m tests.model`.

Leaves to `tests.seeded_bugs` the bugs that are patches of the code; it names the configurations in
which each is searched for. Seconds are of processor time. The exit status is 1 on a violation, or
on a seeded bug that is not found.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.model import scopes
from tests.model.bugs import BUGS, OUT_OF_SIGHT, Bug
from tests.model.patches import Patches
from tests.model.search import HEADING, AnyScope, Exploration, Search
from tests.model.words import Scope

SCOPES: Final = {"small": scopes.SMALL, "ci": scopes.CI, "full": scopes.FULL}


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--scope", choices=SCOPES, default="ci", help="size (default: ci)")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[each.name for each in scopes.FULL],
        metavar="NAME",
        help="only these configurations, in this order, up to the first violation",
    )
    parser.add_argument("--states-max", type=int, help="maximum number of states per scope")
    parser.add_argument("--bugs", action="store_true", help="search for every seeded bug")
    parser.add_argument("--bug", metavar="NAME", help="plant one bug, and show its transcript")
    return parser.parse_args(arguments)


def show(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def chosen(arguments: argparse.Namespace) -> list[AnyScope]:
    """Return the configurations that the command line names."""
    configurations: list[AnyScope] = list(SCOPES[arguments.scope])
    if arguments.only:
        by_name = {each.name: each for each in scopes.FULL}
        configurations = [by_name[name] for name in arguments.only]
    if arguments.states_max is None:
        return configurations
    limit: int = arguments.states_max
    return [
        replace(configuration, states_max=min(limit, configuration.states_max))
        for configuration in configurations
    ]


def explore(configurations: Sequence[AnyScope], *, stops_at_first: bool = False) -> int:
    """Explore configurations; return the exit status."""
    show(HEADING)
    totals = Exploration(Scope("all", scopes.E3))
    violations = count = 0
    for scope in configurations:
        found = Search(scope).run()
        count += 1
        show(found.line())
        totals.states += found.states
        totals.transitions += found.transitions
        totals.resting += found.resting
        totals.seconds += found.seconds
        totals.depth = max(totals.depth, found.depth)
        totals.is_complete = totals.is_complete and found.is_complete
        if found.violation is not None:
            violations += 1
            show("\n".join(found.violation.transcript))
            show(f"violated: {found.violation.what}")
            if stops_at_first:
                break
    show(totals.line())
    show(f"{violations} violations in {count} configurations")
    return 1 if violations else 0


def look_for(bug: Bug) -> list[Exploration]:
    """Plant a bug and explore its configurations until it is found."""
    explorations: list[Exploration] = []
    patches = Patches()
    bug.apply(patches)
    try:
        for scope in bug.scopes:
            explorations.append(Search(scope).run())
            if explorations[-1].violation is not None:
                break
    finally:
        patches.undo()
    return explorations


def look_for_all() -> int:
    """Search for every seeded bug and print the table; return the exit status."""
    show(f"{'bug':<52} {'configuration':<34} {'states':>8} {'steps':>5} {'seconds':>7}  result")
    missed = 0
    for bug in BUGS:
        for found in look_for(bug):
            violation = found.violation
            steps = 0 if violation is None else len(violation.transcript) - 1
            result = "NOT FOUND"
            if violation is not None:
                result = f"found: {violation.what}"
            elif bug.masked_by:
                result = f"masked by {bug.masked_by}"
            is_wrong = bool(bug.masked_by) == (violation is not None)
            is_last = found.scope is bug.scopes[-1] or violation is not None
            missed += is_wrong and is_last
            mark = " (not as listed)" if is_wrong and is_last else ""
            show(
                f"{bug.name:<52} {found.scope.name:<34} {found.states:>8,} {steps:>5} "
                f"{found.seconds:>7.1f}  {result}{mark}"
            )
    for text in OUT_OF_SIGHT:
        show(f"out of sight: {text}")
    found_count = sum(not bug.masked_by for bug in BUGS)
    show(f"{len(BUGS)} bugs: {found_count} to be found, the others masked; {missed} not as listed")
    return 1 if missed else 0


def show_bug(name: str) -> int:
    """Search for one bug and print the violation; return 1 if it is found, as for any violation."""
    bug = next((each for each in BUGS if each.name == name), None)
    if bug is None:
        show(f"no such bug: {name}; there are:\n" + "\n".join(each.name for each in BUGS))
        return 2
    show(HEADING)
    explorations = look_for(bug)
    for found in explorations:
        show(found.line())
    violation = explorations[-1].violation
    if violation is None:
        return 0
    show("\n".join(violation.transcript))
    show(f"violated: {violation.what}")
    return 1


def main() -> int:
    """Run the requested exploration."""
    arguments = parse_arguments(sys.argv[1:])
    if arguments.bug:
        return show_bug(arguments.bug)
    if arguments.bugs:
        return look_for_all()
    return explore(chosen(arguments), stops_at_first=bool(arguments.only))


if __name__ == "__main__":
    sys.exit(main())
