"""`python -m tests.ci`: run every stage of continuous integration, then report each of them.

Leaves what a stage does to the Makefile, and installing to `.ci/run`.

Invariants: every stage runs, also after one that failed. A test that failed is run again alone,
twice: if it passes both times, the stage passes and the report names it as DEPENDS ON LOAD, with
its errors; that is a defect of the test. What failed is not run again if the run of tests broke
off, since the others did not run. Searches end by themselves when their time
is spent. A stage that hangs is interrupted, then killed, and has failed. No process of a stage
lives longer than the stage. There is a report also if this process is told to end: it has the
failed tests of each failed stage, and the last lines of its output.
"""

import argparse
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

ROOT: Final = Path(__file__).parents[2]
NOTES: Final = ROOT / ".pytest_cache/v"
LAST_FAILED: Final = "cache/lastfailed"
STATUS: Final = "quire/status"
"""How pytest ended, which make does not pass on: tests/conftest.py notes it."""
TESTS_FAILED: Final = 1
"""Status of pytest if it ran to its end."""
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
END_BYTES: Final = 256 * 1024
"""Part of a stage's output that is searched for its last lines."""
LINE_CHARACTERS: Final = 200
ERROR: Final = "E  "
"""Begins pytest's lines of errors."""
COUNTS: Final = re.compile(r"\d+ (passed|failed|skipped|errors?)\b.* in [\d.]+s")
PR_SET_CHILD_SUBREAPER: Final = 36

_adopts_orphans = False


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
    """None if it took too long, and was ended with all it started."""
    lines: Sequence[str] = ()
    """Lines of the last part of its output that have a text."""

    @property
    def end(self) -> Sequence[str]:
        """Last lines of the output."""
        return self.lines[-END_LINES:]

    @property
    def errors(self) -> Sequence[str]:
        """Last errors of tests."""
        return [line for line in self.lines if line.startswith(ERROR)][-END_LINES:]

    @property
    def counts(self) -> str:
        """Numbers of tests that passed, failed and so on; empty if pytest printed none."""
        return next((line for line in reversed(self.lines) if COUNTS.search(line)), "")


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
    """Last lines of the output of what failed last; errors of what passed when it was run again."""
    is_run: bool = True

    @property
    def row(self) -> str:
        """Row of the table."""
        result = "NOT RUN" if not self.is_run else "passed" if self.has_passed else "FAILED"
        note = f" ({self.note})" if self.note else ""
        return f"{self.stage.name:22} {self.seconds:8.0f}  {result}{note}"


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
    """Run a stage, and what failed in it once more, alone. An error of this program is a failure of
    the stage.
    """
    began_s = time.monotonic()
    if began_s >= end_s:
        return Outcome(stage, False, 0.0, note="no time is left", is_run=False)
    _print(f"\n===== {stage.name}: {' '.join(stage.command)}")
    try:
        for name in (LAST_FAILED, STATUS):
            (NOTES / name).unlink(missing_ok=True)
        outcome = _run(stage, end_s)
    except (OSError, ValueError) as error:
        outcome = Outcome(stage, False, 0.0, note=f"{type(error).__name__}: {error}")
    outcome.seconds = time.monotonic() - began_s
    return outcome


def _run(stage: Stage, end_s: float) -> Outcome:
    began_s = time.monotonic()
    ended = _ended(stage.command, min(stage.limit_s, end_s - began_s))
    outcome = Outcome(stage, ended.status == 0, 0.0, note=ended.counts, end=ended.end)
    if ended.status == 0:
        if stage.has_tests and "passed" not in ended.counts:
            outcome.has_passed, outcome.note = False, f"no test passed: {ended.counts}"
        return outcome
    outcome.failed = _note(LAST_FAILED, [])
    if ended.status is None:
        outcome.note = f"ended after {time.monotonic() - began_s:.0f} s"
        outcome.has_passed = stage.may_take_longer
    elif stage.has_tests and _note(STATUS, None) != TESTS_FAILED:
        outcome.note = f"pytest broke off. {ended.counts}".strip()
    elif stage.has_tests and 0 < len(outcome.failed) <= FAILED_MAX:
        _run_alone(outcome, ended, end_s)
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
            for number in (signal.SIGINT, signal.SIGTERM):
                if process.poll() is None:
                    os.killpg(process.pid, number)
                    _wait(process, STOP_S, output)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _wait(process, STOP_S, output)
        return Ended(status, output.lines())


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

    def lines(self) -> list[str]:
        """Return the lines of the last part that have a text."""
        start = max(0, os.fstat(self._file).st_size - END_BYTES)
        text = os.pread(self._file, END_BYTES, start).decode(errors="replace")
        lines = [line.rstrip()[:LINE_CHARACTERS] for line in text.splitlines()]
        return [line for line in lines if line]


def _wait(process: "subprocess.Popen[bytes]", limit_s: float, output: _Output) -> int | None:
    """Wait for the end of a process, and print its output; None if it does not end in time."""
    end_s = time.monotonic() + limit_s
    while True:
        reap_orphans(process.pid)
        status = process.poll()
        output.print_new()
        if status is not None or time.monotonic() > end_s:
            return status
        time.sleep(POLL_S)


def _note(name: str, missing: Any) -> Any:
    """Return what pytest noted in its cache."""
    try:
        noted = json.loads((NOTES / name).read_text())
    except FileNotFoundError:
        return missing
    return sorted(noted) if isinstance(noted, dict) else noted


def _run_alone(outcome: Outcome, first: Ended, end_s: float) -> None:
    """Run the failed tests again; the stage passes if they do, each time."""
    stage = outcome.stage
    command = (sys.executable, "-m", "pytest", "-v", "-m", "", "-p", "no:cacheprovider")
    for number in range(ALONE):
        _print(f"\n===== {stage.name}: what failed, alone, {number + 1} of {ALONE}")
        limit_s = min(stage.limit_s, end_s - time.monotonic())
        ended = _ended((*command, *outcome.failed), limit_s)
        if ended.status != 0:
            outcome.end = ended.end
            return
    outcome.has_passed, outcome.depends_on_load, outcome.failed = True, outcome.failed, []
    outcome.end = first.errors


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the table of all stages, and what failed in each that failed."""
    lines = ["", f"{'stage':22} {'seconds':>8}"]
    for outcome in outcomes:
        lines.append(outcome.row)
        if outcome.depends_on_load:
            lines += [f"  DEPENDS ON LOAD: {test}" for test in outcome.depends_on_load]
            lines += [f"  | {line}" for line in outcome.end]
    lines.append(f"{'in all':22} {sum(outcome.seconds for outcome in outcomes):8.0f}")
    for outcome in outcomes:
        if outcome.is_run and not outcome.has_passed:
            lines += _failure(outcome)
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
    unknown = set(given.only) - {stage.name for stage in everything}
    if unknown:
        parser.error(f"no stage is called {', '.join(sorted(unknown))}")
    chosen = [stage for stage in everything if not given.only or stage.name in given.only]
    signal.signal(signal.SIGTERM, _end)
    adopt_orphans()
    return 0 if run_all(chosen, time.monotonic() + ALL_S) else 1


def run_all(chosen: Sequence[Stage], end_s: float) -> bool:
    """Run stages, print the report however this ends, and return whether all passed."""
    outcomes: list[Outcome] = []
    try:
        for stage in chosen:
            if stage.name == "browser" and not has_browser():
                outcomes.append(Outcome(stage, True, 0.0, note="no Chromium", is_run=False))
            else:
                outcomes.append(run(stage, end_s))
            end_orphans()
            _print(outcomes[-1].row)
    finally:
        end_orphans()
        left = chosen[len(outcomes) :]
        outcomes += [Outcome(each, False, 0.0, note="ended", is_run=False) for each in left]
        _print(report(outcomes))
    return all(outcome.has_passed for outcome in outcomes)


def has_browser() -> bool:
    """Return whether there is a Chromium."""
    return shutil.which("chromium") is not None or "CHROMIUM" in os.environ


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ends, so that `end_orphans` finds them."""
    global _adopts_orphans  # noqa: PLW0603 - a property of the process, too
    if sys.platform == "linux":
        _adopts_orphans = True
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(but: int) -> None:
    """Take the status of adopted processes that have ended, as init does, so that they are gone.
    That of `but` is left to the one who waits for it.
    """
    if not _adopts_orphans:
        return
    with contextlib.suppress(ChildProcessError):
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while (ended := os.waitid(os.P_ALL, 0, flags)) is not None and ended.si_pid != but:
            os.waitpid(ended.si_pid, 0)


def end_orphans() -> None:
    """Kill what a stage has left behind in sessions of its own, with all that it started."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            for child in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(POLL_S)


def _children() -> list[int]:
    """Return the processes whose parent is this one."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(path.parent.name))
    return children


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
