"""Application of each seeded bug to a copy of the tree, and the search by its detectors.

Leaves running and judging a detector to `detectors`, comparing with the tree without any bug to
`plain`, and printing to `table`.

Invariants: a bug whose patched modules cannot be imported counts as broken, not as found, and so
does one whose search fails; the others continue. Every copy is removed. At most `workers` bugs are
searched for at a time. No verdict depends on a test that fails without the bug.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.seeded_bugs import trees
from tests.seeded_bugs.detectors import Finding, run_command, telling_lines
from tests.seeded_bugs.plain import Plain, detect
from tests.seeded_bugs.seeded_bug import Detector, Kind, SeededBug

IMPORT_TIMEOUT_S: Final = 60.0
COMPILE_TIMEOUT_S: Final = 300.0
_IMPORT = (
    "import importlib, sys\n"
    "for name in sys.argv[2:]:\n"
    "    found = importlib.import_module(name).__file__\n"
    "    assert found.startswith(sys.argv[1] + '/'), f'{found} is not the copy'\n"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of a run: classes of detectors, their budget, and the number of concurrent bugs."""

    kinds: tuple[Kind, ...] = tuple(Kind)
    seeds_max: int | None = None
    workers: int = 2
    stops_at_first: bool = False
    """Whether the other classes skip a bug that one class has found."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result for one bug."""

    bug: SeededBug
    findings: tuple[Finding, ...]

    def finding(self, kind: Kind) -> Finding | None:
        """Return the result of a class of detectors."""
        return next((each for each in self.findings if each.kind is kind), None)

    @property
    def tests(self) -> list[str]:
        """Return the tests that found the bug."""
        return [each.culprit for each in self.findings if each.is_found and each.kind is Kind.UNITS]

    @property
    def is_found(self) -> bool:
        """Return whether any detector found the bug."""
        return any(finding.is_found for finding in self.findings)


async def look_for(
    bugs: Sequence[SeededBug], plan: Plan, tell: Callable[[Verdict], None]
) -> list[Verdict]:
    """Search for each bug; call `tell` after each.

    The tests that found bugs run together without any bug at the end. If one fails there, its bug
    is searched for again without that test, and `tell` is called again.
    """
    places = asyncio.Semaphore(plan.workers)
    work = Path(tempfile.mkdtemp(prefix="seeded-bugs-"))
    try:
        pristine, plain = work / "pristine", Plain(work / "plain")
        trees.copy_listed(trees.ROOT, pristine)
        await _compile(pristine, bugs)
        trees.copy_tree(pristine, plain.root)

        async def look(bug: SeededBug) -> Verdict:
            async with places:
                patched = work / bug.name
                trees.copy_tree(pristine, patched)
                try:
                    verdict = await judge(bug, plan, patched, plain)
                finally:
                    shutil.rmtree(patched, ignore_errors=True)
                tell(verdict)
                return verdict

        verdicts = list(await asyncio.gather(*(look(bug) for bug in bugs)))
        while True:
            await plain.run((name for each in verdicts for name in each.tests), plan.workers)
            red = [n for n, each in enumerate(verdicts) if plain.red_tests.intersection(each.tests)]
            if not red:
                return verdicts
            for n in red:
                verdicts[n] = await look(verdicts[n].bug)
    finally:
        shutil.rmtree(work, ignore_errors=True)


async def _compile(root: Path, bugs: Sequence[SeededBug]) -> None:
    """Compile all modules, and, as pytest does, the tests of these bugs, for all copies."""
    await run_command(["-m", "compileall", "-q", "-j", "0", "."], root, COMPILE_TIMEOUT_S)
    targets = [target for bug in bugs for each in bug.detectors for target in each.targets]
    files = sorted({target.partition("::")[0] for target in targets if ".py" in target})
    if files:
        collect = ["-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *files]
        await run_command(collect, root, COMPILE_TIMEOUT_S)


async def judge(bug: SeededBug, plan: Plan, patched: Path, plain: Plain) -> Verdict:
    """Search for one bug in a copy; an error becomes its verdict, and ends no other search."""
    try:
        return Verdict(bug, await _findings(bug, plan, patched, plain))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other bugs are looked for
        evidence = (repr(error),)
        broken = [Finding(each.kind, "broken", evidence=evidence) for each in planned(bug, plan)]
        return Verdict(bug, tuple(broken))


def planned(bug: SeededBug, plan: Plan) -> list[Detector]:
    """Return the detectors of a bug that a plan runs, in order."""
    chosen = [each for each in bug.detectors if each.kind in plan.kinds]
    if plan.seeds_max is None:
        return chosen
    seeds_max = plan.seeds_max
    return [
        replace(each, seeds_max=seeds_max) if each.kind is Kind.SIMULATION else each
        for each in chosen
    ]


def is_missing(verdict: Verdict, plan: Plan) -> bool:
    """Return whether a bug should have been found and was not."""
    return bool(planned(verdict.bug, plan)) and not verdict.is_found


async def _findings(bug: SeededBug, plan: Plan, patched: Path, plain: Plain) -> tuple[Finding, ...]:
    chosen = planned(bug, plan)
    trees.apply_bug(bug, patched)
    modules = trees.module_names(bug)
    is_checked = False
    findings: list[Finding] = []
    for detector in chosen:
        if detector.kind is not Kind.UNITS and not is_checked:
            names = [str(patched), *modules]
            done = await run_command(["-c", _IMPORT, *names], patched, IMPORT_TIMEOUT_S)
            if done.status != 0:
                evidence = telling_lines(done.output)
                return tuple(Finding(each.kind, "broken", evidence=evidence) for each in chosen)
            is_checked = True
        findings.append(await detect(detector, patched, plain, modules))
        if plan.stops_at_first and findings[-1].is_found:
            break
    return tuple(findings)
