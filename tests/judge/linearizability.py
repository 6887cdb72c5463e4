"""Verdict of porcupine, a linearizability checker in Go, on a history of operations on ledgers.

Leaves the model to `porcupine/model.go`, and the format to README.md.

Invariants: without Go, or if Go cannot get the checker, the verdict says so and judges nothing. A
search that took too long is no acceptance.
"""

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = Path(__file__).parent / "porcupine"
BUILD_S_MAX: Final = 300.0
LEDGER_S_MAX: Final = 60.0
"""Time of the search for one ledger; ledgers are searched one after the other."""
JUDGE_S_MAX: Final = 1800.0
STATUSES: Final = {0: "accepted", 1: "rejected", 3: "undecided"}
NO_GO: Final = "Go is not on the PATH: install Go 1.21 or later"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of judging one history."""

    result: str
    """`accepted`, `rejected`, `undecided` (the search took too long) or `skipped`."""
    report: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    """Reason why nothing was judged."""

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as the JSON object that a campaign prints."""
        reason = {"why": self.why} if self.why else {}
        return {"result": self.result} | reason | self.report


class JudgeError(Exception):
    """The program did not build, or could not read the history."""


def why_no_go() -> str:
    """Return why the judge cannot run on this machine; "" if it can."""
    if shutil.which("go") is None:
        return NO_GO
    try:
        got = _go("mod", "download")
    except subprocess.TimeoutExpired:
        return f"Go did not get the checker within {BUILD_S_MAX:.0f} s"
    return f"Go cannot get the checker: {got.stderr.strip()}" if got.returncode else ""


def judge_operations(*histories: Path) -> Verdict:
    """Build the program and judge histories. Raises JudgeError."""
    why = why_no_go()
    if why:
        return Verdict("skipped", why=why)
    with tempfile.TemporaryDirectory(prefix="quire-judge-") as directory:
        return run_judge(build_judge(Path(directory)), *histories)


def build_judge(directory: Path) -> Path:
    """Build the program in a directory; return its path. Raises JudgeError."""
    program = directory / "judge"
    built = _go("build", "-o", str(program), ".")
    if built.returncode:
        raise JudgeError(f"the judge does not build: {built.stderr}")
    return program


def run_judge(program: Path, *histories: Path, ledger_s_max: float = LEDGER_S_MAX) -> Verdict:
    """Judge histories with the program. Raises JudgeError if it cannot read them."""
    try:
        done = subprocess.run(
            [program, f"-limit={ledger_s_max:.3f}s", *map(str, histories)],
            check=False,
            capture_output=True,
            text=True,
            timeout=JUDGE_S_MAX,
        )
    except subprocess.TimeoutExpired:
        return Verdict("undecided", why=f"the search did not end within {JUDGE_S_MAX:.0f} s")
    if done.returncode not in STATUSES:
        raise JudgeError(f"the judge ended with {done.returncode}: {done.stderr.strip()}")
    return Verdict(STATUSES[done.returncode], json.loads(done.stdout))


def _go(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["go", *words],
        check=False,
        cwd=PROGRAM,
        capture_output=True,
        text=True,
        timeout=BUILD_S_MAX,
    )
