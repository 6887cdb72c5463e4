"""`python -m tests.seeded_bugs`: break a copy of the code in each known way, one at a time, and
check that the model and the simulations find it.

Prints a line for each search, and at the end how many of the bugs it looked for. The exit status is
1 if a bug was not found.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence

from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.runner import Result, look_for, ordered
from tests.seeded_bugs.seeded_bug import Kind, SeededBug
from tests.seeded_bugs.trees import ROOT, changed_files


def main() -> int:
    """Search for the seeded bugs."""
    given = _arguments()
    unknown = sorted({*given.only} - {bug.name for bug in BUGS})
    if unknown:
        sys.stderr.write(f"no seeded bug has the name {', '.join(unknown)}: see --list\n")
        return 2
    kinds = given.search or list(Kind)
    bugs = [
        bug
        for bug in BUGS
        if (not given.only or bug.name in given.only)
        and any(search.kind in kinds for search in bug.searches)
    ]
    if given.list:
        for bug in bugs:
            _print(f"{bug.name} ({', '.join(bug.rules)}): {bug.wrong}")
        return 0
    try:
        touched = changed_files(ROOT, given.touched_by) if given.touched_by else frozenset()
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"git does not know {given.touched_by}: {error.stderr}")
        return 2
    return _search(ordered(bugs, given.seed, touched), kinds, given)


def _search(bugs: Sequence[SeededBug], kinds: Collection[Kind], given: argparse.Namespace) -> int:
    results: list[Result] = []

    def on_result(result: Result) -> None:
        results.append(result)
        _print(report(result))

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began_s, note = time.monotonic(), ""
    try:
        asyncio.run(look_for(bugs, kinds, on_result, workers=given.workers, for_s=given.for_s))
    except KeyboardInterrupt:
        note = ", interrupted"
    seconds = time.monotonic() - began_s
    missed = sorted(each.bug.name for each in results if not each.is_found)
    ending = f"not found: {', '.join(missed)}" if missed else "all found"
    looked_for = f"looked for {len(results)} of {len(bugs)} seeded bugs in {seconds:.0f} s"
    _print(f"{looked_for}, seed {given.seed}{note}: {ending}")
    return 1 if missed or note else 0


def report(result: Result) -> str:
    """Return a line for each search for a bug: its verdict, and the first evidence."""
    return "\n".join(
        f"{result.bug.name}: {finding.search.description}: {finding.verdict}"
        f"{'' if finding.seed is None else f' at seed {finding.seed}'} in {finding.seconds:.0f} s"
        f"{f': {finding.evidence[0]}' if finding.evidence else ''}"
        for finding in result.findings
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_bugs", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these bugs")
    parser.add_argument(
        "--search", type=Kind, choices=list(Kind), action="append", help="only these searches"
    )
    parser.add_argument(
        "--for-s", type=float, metavar="SECONDS", help="begin no search after this time"
    )
    parser.add_argument("--seed", default="0", help="any text; chooses the order of the bugs")
    parser.add_argument(
        "--touched-by",
        metavar="REF",
        help="first the bugs in files that differ from this commit, or in this range of commits",
    )
    parser.add_argument("--workers", type=int, default=2, help="number of concurrent searches")
    parser.add_argument("--list", action="store_true", help="print the bugs' descriptions and exit")
    return parser.parse_args()


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
