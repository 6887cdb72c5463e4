"""Comparison with the tree without any bug, in which a detector must find nothing.

Leaves running and judging one detector to `detectors`.

Invariant: a test or a seed that found a bug counts only after it has passed here.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.seeded_bugs.detectors import (
    Finding,
    look,
    run_command,
    run_tests,
    simulation_arguments,
)
from tests.seeded_bugs.seeded_bug import Detector, Kind

TESTS_BUDGET_S: Final = 900.0
"""All tests that found a bug run here together, in one process for each worker."""


class Plain:
    """Tree without any bug, and the tests and seeds that fail in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.red_tests: set[str] = set()
        self._green_tests: set[str] = set()
        self._red: dict[tuple[Kind, str, bool, str], asyncio.Task[bool]] = {}

    async def run(self, tests: Iterable[str], workers: int) -> None:
        """Run tests that found a bug; add those that fail here to `red_tests`."""
        left = sorted({*tests} - self.red_tests - self._green_tests)
        size = -(-len(left) // workers) or 1
        parts = [left[first : first + size] for first in range(0, len(left), size)]
        ended = await asyncio.gather(
            *(run_tests(part, TESTS_BUDGET_S, self.root) for part in parts)
        )
        passed = {str(name) for _, result in ended for name in result.get("passed", ())}
        self._green_tests |= passed.intersection(left)
        self.red_tests |= {*left} - passed

    async def is_red(self, detector: Detector, finding: Finding) -> bool:
        """Return whether a detector that found a bug fails here too; each is run once.

        Tests are known from `run`.
        """
        if finding.kind is Kind.UNITS:
            return finding.culprit in self.red_tests
        key = finding.kind, detector.module, detector.beyond_budget, finding.culprit
        if key not in self._red:
            self._red[key] = asyncio.create_task(self._look(detector, finding))
        return await self._red[key]

    async def _look(self, detector: Detector, finding: Finding) -> bool:
        if finding.kind is Kind.SIMULATION:
            everything = replace(detector, theme="")
            arguments = simulation_arguments(everything, int(finding.culprit), 1)
            done = await run_command(arguments, self.root, detector.budget_s)
            return done.status != 0
        again = await look(replace(detector, targets=(finding.culprit,)), self.root)
        return again.verdict != "missed"


async def detect(
    detector: Detector, patched: Path, plain: Plain, modules: Sequence[str] = ()
) -> Finding:
    """Run one detector until it finds the bug or its budget ends.

    A seed that is red without the bug is skipped, so that others can find the bug.
    """
    first_seed, seconds = 0, 0.0
    while True:
        left = replace(detector, budget_s=max(1.0, detector.budget_s - seconds))
        finding = await look(left, patched, first_seed, modules)
        finding = replace(finding, seconds=finding.seconds + seconds)
        if not finding.is_found or not await plain.is_red(detector, finding):
            return finding
        finding = replace(finding, verdict="red")
        first_seed, seconds = finding.count, finding.seconds
        is_over = first_seed >= detector.seeds_max or seconds >= detector.budget_s
        if finding.kind is not Kind.SIMULATION or is_over:
            return finding
