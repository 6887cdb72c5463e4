"""`python -m tests.ci`: run every stage of continuous integration, then report each of them.

Leaves what a stage does to the Makefile, and installing to `.ci/run`.

Invariants: every stage runs, also after one that failed. A test that failed is run again alone,
twice: if it passes both times, the stage passes and the report names it as DEPENDS ON LOAD, which
is a defect of the test. Searches end by themselves when their time is spent. A stage that hangs is
killed, and has failed.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LAST_FAILED: Final = ROOT / ".pytest_cache/v/cache/lastfailed"
ALONE: Final = 2
"""Times that a failed test must pass alone."""
FAILED_MAX: Final = 40
"""More failed tests than these are no matter of load."""
ALL_S: Final = 80 * 60
"""Time of all stages together."""
TOUCHED_S: Final = 24 * 3600
"""Searches begin with files that changed in this time before the last commit."""
STOP_S: Final = 20
"""Time in which a stage that is told to end must end."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: a command, and how long it may take before it counts as hung."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    has_tests: bool = False
    """Whether pytest runs, so that what failed can be run again alone."""
    may_take_longer: bool = False
    """Whether the limit ends the stage without a failure: it asks a service that may be away."""


@dataclass(slots=True)
class Outcome:
    """What became of a stage."""

    stage: Stage
    has_passed: bool
    seconds: float
    depends_on_load: list[str] = field(default_factory=list)
    note: str = ""


def make(name: str, target: str, limit_s: float, *variables: str, **options: bool) -> Stage:
    """Return a stage that makes a target."""
    return Stage(name, ("make", target, *variables), limit_s, **options)


def stages(seed: str, touched_by: str) -> list[Stage]:
    """Return all stages in their order."""
    first_seed = f"SEED={int(seed[:8], 16)}"
    chosen = (f"SEED={seed}", f"TOUCHED_BY={touched_by}")
    tested = {"has_tests": True}
    return [
        make("check", "check", 600),
        make("docs-site", "docs-site", 180),
        make("audit", "audit", 120, "UNCHECKED=0", may_take_longer=True),
        make("tests", "test-all", 2400, **tested),
        make("spark", "test-spark", 1500, **tested),
        make("browser", "test-browser", 900, **tested),
        make("packages", "test-packages", 900, **tested),
        make("kafka", "test-kafka", 1200, "FOR_S=150", f"SEED={seed}", **tested),
        make("simulation", "sim", 600, "SEEDS=100000", "FOR_S=60", first_seed),
        make("simulation of topics", "sim-topics", 600, "SEEDS=100000", "FOR_S=40", first_seed),
        make("seeded bugs", "seeded-bugs", 900, "FOR_S=80", *chosen),
        make("mutation", "mutation", 900, "FOR_S=60", "WANTED=90", "LEAST=75", *chosen),
    ]


def run(stage: Stage, end_s: float) -> Outcome:
    """Run a stage, and what failed in it once more, alone."""
    _print(f"\n===== {stage.name}: {' '.join(stage.command)}")
    LAST_FAILED.unlink(missing_ok=True)
    began_s = time.monotonic()
    status = _status(stage.command, min(stage.limit_s, end_s - began_s))
    outcome = Outcome(stage, status == 0, time.monotonic() - began_s)
    if status is None:
        outcome.note = f"ended after {outcome.seconds:.0f} s"
        outcome.has_passed = stage.may_take_longer
    elif status != 0 and stage.has_tests:
        failed = _last_failed()
        if 0 < len(failed) <= FAILED_MAX and _pass_alone(stage, failed, end_s):
            outcome.has_passed, outcome.depends_on_load = True, failed
        outcome.seconds = time.monotonic() - began_s
    return outcome


def _status(command: Sequence[str], limit_s: float) -> int | None:
    """Run a command to its end; None if it took too long and was killed with all it started."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(max(1.0, limit_s))
    except subprocess.TimeoutExpired:
        return None
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, number)
                _wait(process)


def _wait(process: "subprocess.Popen[bytes]") -> None:
    end_s = time.monotonic() + STOP_S
    while process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.1)


def _last_failed() -> list[str]:
    """Return the tests that pytest noted as failed."""
    try:
        return sorted(json.loads(LAST_FAILED.read_text()))
    except FileNotFoundError:
        return []


def _pass_alone(stage: Stage, failed: Sequence[str], end_s: float) -> bool:
    command = (".venv/bin/python", "-m", "pytest", "-v", "-m", "", "-p", "no:cacheprovider")
    for number in range(ALONE):
        _print(f"\n===== {stage.name}: what failed, alone, {number + 1} of {ALONE}")
        if _status((*command, *failed), min(stage.limit_s, end_s - time.monotonic())) != 0:
            return False
    return True


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the table of all stages, and what to look at."""
    lines = ["", f"{'stage':22} {'seconds':>8}"]
    for each in outcomes:
        result = "passed" if each.has_passed else "FAILED"
        note = f" ({each.note})" if each.note else ""
        lines.append(f"{each.stage.name:22} {each.seconds:8.0f}  {result}{note}")
        lines += [f"  DEPENDS ON LOAD: {test}" for test in each.depends_on_load]
    lines.append(f"{'in all':22} {sum(each.seconds for each in outcomes):8.0f}")
    return "\n".join(lines)


def main() -> int:
    """Run the stages; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.ci", description=__doc__)
    parser.add_argument("--seed", help="of searches and samples, hexadecimal (the commit)")
    parser.add_argument("--only", nargs="+", default=[], metavar="STAGE", help="only these stages")
    given = parser.parse_args()
    head = _git("rev-parse", "HEAD")
    date_s = int(_git("show", "-s", "--format=%ct", "HEAD"))
    before = _git("rev-list", "-1", f"--before={date_s - TOUCHED_S}", "HEAD") or head
    everything = stages(given.seed or head, before)
    unknown = set(given.only) - {each.name for each in everything}
    if unknown:
        parser.error(f"no stage is called {', '.join(sorted(unknown))}")
    if shutil.which("chromium") is None and "CHROMIUM" not in os.environ:
        everything = [each for each in everything if each.name != "browser"]
        _print("NOT RUN: browser. There is no Chromium.")
    end_s = time.monotonic() + ALL_S
    chosen = [each for each in everything if not given.only or each.name in given.only]
    outcomes = [run(each, end_s) for each in chosen]
    _print(report(outcomes))
    return 0 if all(each.has_passed for each in outcomes) else 1


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
