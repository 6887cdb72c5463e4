"""Detectors that run in a patched copy, and the decision whether they found the bug.

Leaves the copies to `trees`, comparing with the tree without any bug to `plain`, and the order to
`runner`.

Invariant: only a failed test, a failed seed or a violated invariant counts; an error of import,
syntax or naming does not.

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
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

from tests.seeded_bugs.seeded_bug import MODEL_STATES_MAX, Detector, Kind
from tests.seeded_bugs.trees import environment

SEEDS_PER_RUN: Final = 100
"""A run of more seeds than this is split, so that one that hangs does not hide the others."""
TEST_TIMEOUT_S: Final = 60
EVIDENCE_LINES_MAX: Final = 6
EVIDENCE_CHARS_MAX: Final = 300
OUTPUT_BYTES_MAX: Final = 1024 * 1024
FOUND_STATUS: Final = 1
VIOLATED: Final = "violated: "
WRONG_REASONS: Final = ("NameError", "ImportError", "SyntaxError", "AttributeError", "TypeError")
"""Errors of a broken patch, which are no wrong protocol."""
_WRONG_REASON = re.compile(
    rf"\b(?:{'|'.join((*WRONG_REASONS, 'UnboundLocalError', 'ModuleNotFoundError'))})[:(]"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one detector.

    `verdict` is "found", "missed", "absent" (there is no such detector in the tree), "broken" (it
    failed for a wrong reason) or "red" (it fails without the bug too).
    """

    kind: Kind
    verdict: str
    count: int = 0
    """Number of tests, seeds or states that it needed."""
    seconds: float = 0.0
    evidence: tuple[str, ...] = ()
    culprit: str = ""
    """Test or seed that found the bug."""

    @property
    def is_found(self) -> bool:
        """Return whether the bug was found."""
        return self.verdict == "found"


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended; without a status if its time was over."""

    status: int | None
    output: str
    seconds: float


async def run_command(
    arguments: list[str],
    root: Path,
    timeout_s: float,
    *,
    enough: bytes = b"",
    told: Mapping[str, str] | None = None,
) -> Finished:
    """Run a module of a copy, with all its child processes, until its end or its time limit.

    Stop also after a line that begins with `enough`, which means that it found a violation. `told`
    is added to the environment.
    """
    began = asyncio.get_running_loop().time()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=root,
        env=environment(root) | dict(told or {}),
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
                if enough and b"\n" + enough in kept:
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


async def look(
    detector: Detector, root: Path, first_seed: int = 0, modules: Sequence[str] = ()
) -> Finding:
    """Run one detector in a copy, without comparing.

    Unit tests import `modules` before they begin; if that fails, the result is "broken".
    """
    match detector.kind:
        case Kind.UNITS:
            return judge_units(
                *await run_tests(detector.targets, detector.budget_s, root, ("-x",), modules)
            )
        case Kind.MODEL:
            return await _run_model(detector.targets, detector.budget_s, root)
        case Kind.SIMULATION:
            return await _run_simulation(detector, root, first_seed)
        case _ as never:
            assert_never(never)


# -- unit tests, scenarios, storage crash tests ----------------------------------------------------


async def run_tests(
    targets: Sequence[str],
    budget_s: float,
    root: Path,
    more: Sequence[str] = (),
    modules: Sequence[str] = (),
) -> tuple[Finished, dict[str, Any]]:
    """Run tests in a copy; return the result, and the reporter's data."""
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "--hypothesis-seed=0", *more]
    options += [f"--timeout={TEST_TIMEOUT_S}", "-p", "tests.seeded_bugs.reporter"]
    # A separate file: several runs may use the tree without any bug at a time.
    with tempfile.TemporaryDirectory(prefix="report-", dir=root) as directory:
        report = Path(directory) / "report.json"
        told = {"SEEDED_BUGS_REPORT": str(report), "SEEDED_BUGS_MODULES": " ".join(modules)}
        done = await run_command(["-m", "pytest", *options, *targets], root, budget_s, told=told)
        result: dict[str, Any] = {}
        if done.status is not None and report.exists():
            result = json.loads(report.read_text())
    return done, result


def judge_units(done: Finished, result: dict[str, Any]) -> Finding:
    """Judge a run of pytest by its status and the reporter's data."""
    count = len(result.get("passed", ()))
    if done.status == 0:
        return Finding(Kind.UNITS, "missed", count, done.seconds)
    evidence = shortened([str(line) for line in result.get("text", ())])
    test, kinds = str(result.get("test", "")), result.get("kinds", ())
    is_ours = done.status == FOUND_STATUS and bool(test)
    if not is_ours or any(kind in WRONG_REASONS for kind in kinds):
        evidence = evidence or shortened(done.output.splitlines()[-EVIDENCE_LINES_MAX:])
        return Finding(Kind.UNITS, "broken", count, done.seconds, evidence, test)
    return Finding(Kind.UNITS, "found", count + 1, done.seconds, evidence, test)


# -- the model ------------------------------------------------------------------------------------


async def _run_model(targets: tuple[str, ...], budget_s: float, root: Path) -> Finding:
    if not (root / "tests/model/__main__.py").exists():
        return Finding(Kind.MODEL, "absent")
    arguments = ["-m", "tests.model", "--states-max", str(MODEL_STATES_MAX), "--only", *targets]
    return judge_model(await run_command(arguments, root, budget_s, enough=VIOLATED.encode()))


def judge_model(done: Finished) -> Finding:
    """Judge an exploration by the violation it names, and by each configuration's number of states.

    The last of those lines is of the configuration that found it.
    """
    lines = re.findall(r"^(?!all )(.{34}) +([\d,]+) +[\d,]+ +\d+ ", done.output, re.M)
    count = sum(int(states.replace(",", "")) for _, states in lines)
    culprit = lines[-1][0].strip() if lines else ""
    if done.status in (0, None):
        note: tuple[str, ...] = () if done.status == 0 else ("its time was up",)
        return Finding(Kind.MODEL, "missed", count, done.seconds, note)
    violated = [line for line in done.output.splitlines() if line.startswith(VIOLATED)]
    if not violated or _WRONG_REASON.search(violated[0]):
        return Finding(Kind.MODEL, "broken", count, done.seconds, telling_lines(done.output))
    return Finding(Kind.MODEL, "found", count, done.seconds, shortened(violated), culprit)


# -- the simulation -------------------------------------------------------------------------------


def simulation_arguments(detector: Detector, first_seed: int, count: int) -> list[str]:
    given = ["--first-seed", str(first_seed), "--seeds", str(count), "--stop-at-first"]
    theme = ["--theme", detector.theme] if detector.theme else []
    beyond = ["--beyond-budget"] if detector.beyond_budget else []
    return ["-m", detector.module, *given, *theme, *beyond]


async def _run_simulation(detector: Detector, root: Path, first_seed: int) -> Finding:
    if not (root / detector.module.replace(".", "/") / "__main__.py").exists():
        return Finding(Kind.SIMULATION, "absent")
    seconds, first = 0.0, first_seed
    while first < detector.seeds_max and seconds < detector.budget_s:
        count = min(SEEDS_PER_RUN, detector.seeds_max - first)
        arguments = simulation_arguments(detector, first, count)
        done = await run_command(arguments, root, detector.budget_s - seconds)
        seconds += done.seconds
        finding = judge_simulation(done, first, seconds)
        if finding.verdict != "missed" or done.status is None:
            return finding
        first += count
    return Finding(Kind.SIMULATION, "missed", first, seconds)


def judge_simulation(done: Finished, first_seed: int, seconds: float) -> Finding:
    """Judge a run of seeds by its status and its last line."""
    if done.status == 0 or done.status is None:
        note: tuple[str, ...] = () if done.status == 0 else ("its time was up",)
        return Finding(Kind.SIMULATION, "missed", first_seed, seconds, note)
    seed = failed_seed(last_json(done.output))
    evidence = shortened(re.findall(r"^  +(.*)$", done.output, re.M)) or telling_lines(done.output)
    if done.status != FOUND_STATUS or seed is None or _WRONG_REASON.search(done.output):
        return Finding(Kind.SIMULATION, "broken", first_seed, seconds, evidence)
    return Finding(Kind.SIMULATION, "found", seed + 1, seconds, evidence, str(seed))


def failed_seed(last: dict[str, Any]) -> int | None:
    """Return the first seed that a simulation's summary lists as failed."""
    failing = last.get("failing")
    return min(failing) if isinstance(failing, list) and failing else None


# -- texts ----------------------------------------------------------------------------------------


def last_json(output: str) -> dict[str, Any]:
    """Return the JSON object in the last line; an empty one if there is none."""
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def telling_lines(output: str) -> tuple[str, ...]:
    """Return the last meaningful lines before the JSON."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("{")]
    return shortened(lines[-EVIDENCE_LINES_MAX:])


def shortened(lines: list[str]) -> tuple[str, ...]:
    """Return the first lines, each cut to a maximum length."""
    return tuple(line.strip()[:EVIDENCE_CHARS_MAX] for line in lines[:EVIDENCE_LINES_MAX])
