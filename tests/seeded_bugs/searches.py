"""Searches that run in a patched copy, and the decision whether they found the bug.

Leaves the copies to `trees`, and the order of the bugs and their time to `runner`.

Invariants: only a failed seed or a violated invariant counts; an error of import, syntax or naming
does not. A seed or a configuration that found a bug counts only after it has passed in the tree
without any bug.

Format: the model and the simulation end with status 1 if they found a violation. The model prints
it in a line that begins with "violated: ". A simulation's last line is JSON with the `failing`
seeds, and the failures are in indented lines before it.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tests.seeded_bugs.seeded_bug import Kind, Search
from tests.seeded_bugs.trees import environment

MODULES: Final[Mapping[Kind, str]] = {
    Kind.MODEL: "tests.model",
    Kind.SIMULATION: "tests.simulation",
    Kind.TOPICS: "tests.simulation.topics",
}
SEEDS_MAX: Final = 800
"""Seeds of all themes. Of these, a search runs those of its theme: about 100."""
STATES_MAX: Final = 400_000
"""Limit for one configuration; the largest number needed to find a bug is about 300,000."""
COMMAND_S_MAX: Final = 3_600.0
"""Limit for a search that hangs. Seeds and states limit the others, at any load of the machine."""
EVIDENCE_LINES_MAX: Final = 6
EVIDENCE_CHARS_MAX: Final = 160
OUTPUT_BYTES_MAX: Final = 1024 * 1024
FOUND_STATUS: Final = 1
VIOLATED: Final = "violated: "
_WRONG_REASON: Final = re.compile(
    r"\b(?:NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError|AttributeError"
    r"|TypeError)[:(]"
)
"""Errors of a broken patch, which are no wrong protocol."""


class Verdict(StrEnum):
    """Result of a search; a broken one failed for a wrong reason."""

    FOUND = "found"
    MISSED = "missed"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one search, and what it printed about it."""

    search: Search
    verdict: Verdict
    seed: int | None = None
    """Seed that found the bug, in a simulation."""
    seconds: float = 0.0
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended; without a status if its time was over."""

    status: int | None
    output: str
    seconds: float


class Searcher:
    """Runs searches in patched copies, and repeats in the tree without any bug what found one."""

    def __init__(self, plain: Path) -> None:
        self._plain = plain
        self._is_red: dict[tuple[str, ...], bool] = {}

    async def look(self, search: Search, patched: Path) -> Finding:
        """Run a search until it finds the bug or ends.

        A seed that fails without the bug is skipped, so that others can find the bug.
        """
        first_seed, seconds = 0, 0.0
        while True:
            count = SEEDS_MAX - first_seed
            done = await run_command(
                arguments(search, first_seed, count), patched, COMMAND_S_MAX, enough=VIOLATED
            )
            seconds += done.seconds
            finding = replace(judge(search, done), seconds=seconds)
            if finding.verdict is not Verdict.FOUND or not await self._fails_plain(finding):
                return finding
            first_seed = SEEDS_MAX if finding.seed is None else finding.seed + 1
            if first_seed >= SEEDS_MAX:
                note = "it fails without the bug too"
                return replace(finding, verdict=Verdict.MISSED, evidence=(note,))

    async def _fails_plain(self, finding: Finding) -> bool:
        """Return whether what found a bug fails without it; each is run once."""
        again = tuple(arguments_of(finding))
        if again not in self._is_red:
            done = await run_command(again, self._plain, COMMAND_S_MAX, enough=VIOLATED)
            self._is_red[again] = done.status != 0
        return self._is_red[again]


def arguments(search: Search, first_seed: int = 0, count: int = SEEDS_MAX) -> list[str]:
    """Return the command line of a search: a module and its options."""
    given = ["-m", MODULES[search.kind]]
    if search.kind is Kind.MODEL:
        return [*given, "--states-max", str(STATES_MAX), "--only", search.part]
    given += ["--first-seed", str(first_seed), "--seeds", str(count), "--stop-at-first"]
    given += ["--theme", search.part] if search.part else []
    return [*given, "--beyond-budget"] if search.beyond_budget else given


def arguments_of(finding: Finding) -> list[str]:
    """Return the command line that repeats only what found a bug."""
    if finding.seed is None:
        return arguments(finding.search)
    return arguments(replace(finding.search, part=""), finding.seed, 1)


async def run_command(
    given: list[str] | tuple[str, ...], root: Path, timeout_s: float, *, enough: str = ""
) -> Finished:
    """Run a module of a copy, with all its child processes, until its end or its time limit.

    Stop also after a line that begins with `enough`, which means that it found a violation.
    """
    began = asyncio.get_running_loop().time()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *given,
        cwd=root,
        env=environment(root),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    kept = bytearray()
    status: int | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while status is None and (piece := await process.stdout.read(64 * 1024)):
                kept = (kept + piece)[-OUTPUT_BYTES_MAX:]
                if enough and b"\n" + enough.encode() in kept:
                    status = FOUND_STATUS
            status = await process.wait() if status is None else status
    except TimeoutError:
        status = None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    seconds = asyncio.get_running_loop().time() - began
    return Finished(status, kept.decode(errors="replace"), seconds)


# -- judging --------------------------------------------------------------------------------------


def judge(search: Search, done: Finished) -> Finding:
    """Judge a search by its status and what it printed."""
    if done.status == 0:
        return Finding(search, Verdict.MISSED)
    if done.status is None:
        return Finding(search, Verdict.MISSED, evidence=("its time was up",))
    if search.kind is Kind.MODEL:
        seed = None
        lines = [line for line in done.output.splitlines() if line.startswith(VIOLATED)]
        told = lines[0] if lines else ""
    else:
        seed = failed_seed(done.output)
        lines = [] if seed is None else re.findall(r"^  +(.*)$", done.output, re.M)
        told = done.output
    is_wrong_reason = _WRONG_REASON.search(told) is not None
    is_found = done.status == FOUND_STATUS and bool(lines) and not is_wrong_reason
    verdict = Verdict.FOUND if is_found else Verdict.BROKEN
    evidence = lines[:EVIDENCE_LINES_MAX] or done.output.splitlines()[-EVIDENCE_LINES_MAX:]
    shortened = tuple(line.strip()[:EVIDENCE_CHARS_MAX] for line in evidence)
    return Finding(search, verdict, seed, evidence=shortened)


def failed_seed(output: str) -> int | None:
    """Return the first seed that a simulation's summary, its last line, lists as failed."""
    lines = output.strip().splitlines()
    try:
        summary: Any = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return None
    failing = summary.get("failing") if isinstance(summary, dict) else None
    return min(failing) if failing else None
