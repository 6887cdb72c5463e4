"""`python -m tests.mutation`: change the code of decisions in small wrong ways, one at a time, and
check whether their tests fail.

Prints every mutant that no test noticed and is not explained in `equivalent/`, and a table of
scores. The exit status is 1 if there is such a mutant, or if an explained one was noticed. With
`--least` some of the former are allowed.
"""

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Collection
from pathlib import Path

from tests.mutation import explained, scores
from tests.mutation.forks import run_forked
from tests.mutation.mutants import Module, Mutant
from tests.mutation.scores import Result
from tests.mutation.session import Judgement, Verdict, run_session
from tests.mutation.swapping import ROOT
from tests.mutation.targets import TARGETS, Target
from tests.seeded_bugs.trees import changed_files

TARGET_S = 4 * 3600
CPU_S = 10.0
"""Processor time that the tests of one mutant may take together."""
MUTANTS_MAX = 40
"""Number of mutants of a target after which --for-s takes the next one."""
Chosen = list[tuple[Target, list[Module], list[Mutant]]]


def main() -> int:
    """Judge the chosen mutants."""
    given = _arguments()
    os.chdir(ROOT)
    chosen = _chosen(given)
    if given.list:
        for mutant in (each for _, _, mutants in chosen for each in mutants):
            sys.stdout.write(f"{mutant.described}\n")
        return 0
    if not chosen:
        sys.stderr.write("no mutants: no target and module have these names (--list shows all)\n")
        return 2
    reasons = explained.reasons()
    results: list[Result] = []
    end_s = time.monotonic() + given.for_s
    for target, modules, mutants in chosen:
        if time.monotonic() > end_s:
            break
        sys.stderr.write(f"{target.name}: {len(mutants)} mutants\n")
        problem, judged = _judge(target, modules, mutants, given, end_s)
        results += [
            Result(target, judgement, reasons.get(judgement.mutant.key, "")) for judgement in judged
        ]
        if problem:
            sys.stderr.write(f"{target.name}: {problem}\n")
            return 2
    if given.json:
        Path(given.json).write_text(json.dumps(scores.as_json(results), indent=1) + "\n")
    if results:
        sys.stdout.write(scores.surprises(results) + scores.table(results))
    count = sum(len(mutants) for _, _, mutants in chosen)
    sys.stdout.write(f"judged {len(results)} of {count} mutants, seed {given.seed}\n")
    return 0 if not results or scores.are_as_wanted(results, given.least) else 1


def _chosen(given: argparse.Namespace) -> Chosen:
    """Parse the chosen modules, and choose of their mutants."""
    chosen: Chosen = []
    again = scores.keys_of(json.loads(Path(given.again).read_text())) if given.again else ()
    for target in TARGETS:
        if given.target not in target.name or target.wanted < given.wanted:
            continue
        paths = [path for path in target.paths if given.module in path]
        modules = [Module(path, Path(path).read_text()) for path in paths]
        mutants = [mutant for module in modules for mutant in module.mutants]
        mutants = [mutant for mutant in mutants if given.function in mutant.function]
        if given.again:
            mutants = [mutant for mutant in mutants if mutant.key in again]
        chosen.append((target, modules, mutants))
    chosen = [each for each in chosen if each[2]]
    rng = random.Random(given.seed)
    if given.for_s < math.inf:
        touched = changed_files(ROOT, given.touched_by) if given.touched_by else frozenset[str]()
        rng.shuffle(chosen)
        chosen.sort(key=lambda each: touched.isdisjoint(each[0].paths))
        return [
            (target, modules, _shuffled(mutants, touched, rng))
            for target, modules, mutants in chosen
        ]
    return chosen


def _shuffled(mutants: list[Mutant], touched: Collection[str], rng: random.Random) -> list[Mutant]:
    """Return the mutants of a target to judge, those of touched files first."""
    shuffled = rng.sample(mutants, len(mutants))
    return sorted(shuffled, key=lambda each: each.path not in touched)[:MUTANTS_MAX]


def _judge(
    target: Target,
    modules: list[Module],
    mutants: list[Mutant],
    given: argparse.Namespace,
    end_s: float,
) -> tuple[str, list[Judgement]]:
    """Judge a target's mutants in a process of its own; return also what went wrong, if any."""
    numbers = {mutant: number for number, mutant in enumerate(mutants)}
    found: list[list[object]] = []

    def tell(judged: Judgement) -> None:
        number = numbers[judged.mutant]
        found.append([number, judged.verdict, judged.test, judged.is_slow, judged.seconds])
        if given.verbose:
            said = f"{judged.verdict} {judged.seconds:.1f} s {judged.test}"
            os.write(errors, f"{judged.mutant.described} [{said}]\n".encode())

    def run() -> list[object]:
        tests = [f"tests/{test}" for test in given.test or target.tests]
        return [run_session(modules, mutants, tests, tell, given.cpu_s, end_s), found]

    errors = os.dup(2)
    outcome = run_forked(run, TARGET_S)
    os.close(errors)
    if not outcome.is_done:
        return outcome.text or "the time was up", []
    problem, judged = outcome.result
    return problem, [
        Judgement(mutants[number], Verdict(verdict), test, is_slow, seconds)
        for number, verdict, test, is_slow, seconds in judged
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--target", default="", help="only targets whose name contains this")
    parser.add_argument(
        "--wanted", type=int, default=0, help="only targets of which this percentage is wanted"
    )
    parser.add_argument("--module", default="", help="only modules whose path contains this")
    parser.add_argument("--function", default="", help="only functions whose name contains this")
    parser.add_argument(
        "--test", metavar="PATH", action="append", help="judge with these tests, not the target's"
    )
    parser.add_argument("--seed", default="0", help="with --for-s, any text: chooses the order")
    parser.add_argument(
        "--for-s",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="judge in an order that --seed chooses, and begin no mutant after this time",
    )
    parser.add_argument(
        "--touched-by",
        metavar="REF",
        help="with --for-s, first what differs from this commit, or in this range of commits",
    )
    parser.add_argument(
        "--cpu-s", type=float, default=CPU_S, help="limit for the tests of one mutant"
    )
    parser.add_argument(
        "--least", type=float, default=100, help="percentage to be killed or explained"
    )
    parser.add_argument("--verbose", action="store_true", help="print each verdict")
    parser.add_argument("--json", metavar="FILE", help="write scores and survivors there as JSON")
    parser.add_argument(
        "--again", metavar="FILE", help="only mutants that such a file says were not killed"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and exit")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
