"""`python -m tests.ci`: run every stage of continuous integration, then report each of them.

Leaves what a stage does to the Makefile, and installing to `.ci/run`.

Invariants: every stage runs, also after one that failed. A test that failed is run again alone,
twice: if it passes both times, the stage passes and the report names it as DEPENDS ON LOAD, which
is a defect of the test. Searches end by themselves when their time is spent. A stage that hangs is
killed, and has failed. The end of the report is enough to see what failed and why: it has the
failed tests of each failed stage, and the last lines of its output.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
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
POLL_S: Final = 0.05
NAMED_MAX: Final = 10
"""Failed tests of a stage that the report names."""
END_LINES: Final = 15
END_BYTES: Final = 32 * 1024
"""Part of a stage's output that is searched for its last lines."""
LINE_CHARACTERS: Final = 200


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


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int | None
    """None if it took too long, and was killed with all it started."""
    end: Sequence[str] = ()
    """Last lines of its output."""


@dataclass(slots=True)
class Outcome:
    """What became of a stage."""

    stage: Stage
    has_passed: bool
    seconds: float
    depends_on_load: list[str] = field(default_factory=list)
    note: str = ""
    failed: list[str] = field(default_factory=list)
    end: Sequence[str] = ()
    """Last lines of the output of what ran last."""


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
    ended = _ended(stage.command, min(stage.limit_s, end_s - began_s))
    outcome = Outcome(stage, ended.status == 0, time.monotonic() - began_s, end=ended.end)
    if ended.status is None:
        outcome.note = f"ended after {outcome.seconds:.0f} s"
        outcome.has_passed = stage.may_take_longer
    elif ended.status != 0:
        outcome.failed = _last_failed()
        if stage.has_tests and 0 < len(outcome.failed) <= FAILED_MAX:
            _run_alone(outcome, end_s)
        outcome.seconds = time.monotonic() - began_s
    return outcome


def _ended(command: Sequence[str], limit_s: float) -> Ended:
    """Run a command to its end, or to the limit. Its output is printed as it comes.

    It goes through a file: a process that the command leaves behind would keep a pipe open.
    """
    with tempfile.TemporaryFile("a+b") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, stdout=file, stderr=subprocess.STDOUT
        )
        output = _Output(file.fileno())
        try:
            status = _wait(process, max(1.0, limit_s), output)
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None:
                    os.killpg(process.pid, number)
                    _wait(process, STOP_S, output)
        return Ended(status, output.last_lines())


class _Output:
    """Output of a command, in a file that it appends to."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._printed = 0

    def print_new(self) -> None:
        """Print what came since the last call."""
        size = os.fstat(self._file).st_size
        sys.stdout.buffer.write(os.pread(self._file, size - self._printed, self._printed))
        sys.stdout.flush()
        self._printed = size

    def last_lines(self) -> list[str]:
        """Return the last lines that have a text."""
        start = max(0, os.fstat(self._file).st_size - END_BYTES)
        text = os.pread(self._file, END_BYTES, start).decode(errors="replace")
        lines = [line.rstrip()[:LINE_CHARACTERS] for line in text.splitlines()]
        return [line for line in lines if line][-END_LINES:]


def _wait(process: "subprocess.Popen[bytes]", limit_s: float, output: _Output) -> int | None:
    """Wait for the end of a process, and print its output; None if it does not end in time."""
    end_s = time.monotonic() + limit_s
    while True:
        status = process.poll()
        output.print_new()
        if status is not None or time.monotonic() > end_s:
            return status
        time.sleep(POLL_S)


def _last_failed() -> list[str]:
    """Return the tests that pytest noted as failed."""
    try:
        return sorted(json.loads(LAST_FAILED.read_text()))
    except FileNotFoundError:
        return []


def _run_alone(outcome: Outcome, end_s: float) -> None:
    """Run the failed tests again; the stage passes if they do, each time."""
    stage = outcome.stage
    command = (".venv/bin/python", "-m", "pytest", "-v", "-m", "", "-p", "no:cacheprovider")
    for number in range(ALONE):
        _print(f"\n===== {stage.name}: what failed, alone, {number + 1} of {ALONE}")
        limit_s = min(stage.limit_s, end_s - time.monotonic())
        ended = _ended((*command, *outcome.failed), limit_s)
        outcome.end = ended.end
        if ended.status != 0:
            return
    outcome.has_passed, outcome.depends_on_load, outcome.failed = True, outcome.failed, []


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the table of all stages, and what failed in each that failed."""
    lines = ["", f"{'stage':22} {'seconds':>8}"]
    for each in outcomes:
        result = "passed" if each.has_passed else "FAILED"
        note = f" ({each.note})" if each.note else ""
        lines.append(f"{each.stage.name:22} {each.seconds:8.0f}  {result}{note}")
        lines += [f"  DEPENDS ON LOAD: {test}" for test in each.depends_on_load]
    lines.append(f"{'in all':22} {sum(each.seconds for each in outcomes):8.0f}")
    for each in outcomes:
        if not each.has_passed:
            lines += _failure(each)
    return "\n".join(lines)


def _failure(outcome: Outcome) -> list[str]:
    """Return the failed tests, and the last lines of the output."""
    lines = ["", f"FAILED {outcome.stage.name}: {' '.join(outcome.stage.command)}"]
    lines += [f"  {test}" for test in outcome.failed[:NAMED_MAX]]
    if len(outcome.failed) > NAMED_MAX:
        lines.append(f"  and {len(outcome.failed) - NAMED_MAX} other tests")
    return lines + [f"  | {line}" for line in outcome.end]


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
