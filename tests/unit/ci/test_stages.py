"""Stages of continuous integration: every one runs, and only a real failure is red."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.ci import __main__ as ci
from tests.ci.__main__ import Ended, Outcome, Stage, report, run
from tests.until import WAIT_S, until


def python(program: str, name: str = "stage", limit_s: float = WAIT_S, **options: bool) -> Stage:
    return Stage(name, (sys.executable, "-c", program), limit_s, **options)


def soon() -> float:
    return time.monotonic() + 10 * WAIT_S


def failing(tmp_path: Path, test: str) -> str:
    """Return a program that fails as pytest does: it notes a test as failed, and names it."""
    noted = json.dumps({test: True})
    return (
        f"open({str(tmp_path / 'lastfailed')!r}, 'w').write({noted!r});"
        f"print('FAILED {test}'); raise SystemExit(1)"
    )


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ci, "LAST_FAILED", tmp_path / "lastfailed")


def test_a_command_passes_or_fails_by_its_status() -> None:
    assert run(python("pass"), soon()).has_passed
    assert not run(python("raise SystemExit(3)"), soon()).has_passed


@pytest.mark.real_time
async def test_a_stage_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = (
        "import subprocess, sys, time;"
        f"code = 'import time; time.sleep({10 * WAIT_S})';"
        "child = subprocess.Popen([sys.executable, '-c', code]);"
        f"open({str(pid)!r}, 'w').write(str(child.pid)); time.sleep({10 * WAIT_S})"
    )
    outcome = run(python(program, limit_s=1.0), soon())
    assert not outcome.has_passed
    assert outcome.note.startswith("ended after")
    if pid.exists():  # it had started its child
        await until(lambda: has_ended(pid.read_text()))


def has_ended(process: str) -> bool:
    """Return whether a process is gone, or is a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_service_that_is_away_is_no_failure() -> None:
    program = f"import time; time.sleep({10 * WAIT_S})"
    assert run(python(program, limit_s=1.0, may_take_longer=True), soon()).has_passed


@pytest.mark.parametrize("times", [0, 1])
def test_a_test_that_fails_alone_is_a_failure(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`times` is how often it passes alone before it fails."""
    passes = iter([0] * times + [1])
    ended = ci._ended
    monkeypatch.setattr(
        ci,
        "_ended",
        lambda command, s: Ended(next(passes)) if "-v" in command else ended(command, s),
    )
    outcome = run(python(failing(tmp_path, "tests/a.py::test_b"), has_tests=True), soon())
    assert (outcome.has_passed, outcome.depends_on_load) == (False, [])
    assert outcome.failed == ["tests/a.py::test_b"]
    assert list(passes) == []


def test_a_test_that_passes_alone_twice_depends_on_load(tmp_path: Path) -> None:
    sample = tmp_path / "test_sample.py"
    sample.write_text("def test_passes(): pass\n")
    test = f"{sample}::test_passes"
    outcome = run(python(failing(tmp_path, test), has_tests=True), soon())
    assert outcome.depends_on_load == [test]
    assert outcome.has_passed
    assert outcome.failed == []
    assert f"  DEPENDS ON LOAD: {test}" in report([outcome]).splitlines()


def test_many_failures_are_no_matter_of_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ci, "FAILED_MAX", 0)
    stage = python(failing(tmp_path, "tests/a.py::test_b"), has_tests=True)
    outcome = run(stage, soon())
    assert not outcome.has_passed
    assert outcome.failed == ["tests/a.py::test_b"]


def test_output_is_passed_through_and_its_end_kept(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    program = "for number in range(50): print(number, 'x' * 300)"
    outcome = run(python(f"{program}\nprint()\nraise SystemExit(1)"), soon())
    shown = capfdbinary.readouterr().out
    assert shown.endswith(b"".join(b"%d %s\n" % (each, b"x" * 300) for each in range(50)) + b"\n")
    assert [each.split()[0] for each in outcome.end] == [str(each) for each in range(35, 50)]
    assert {len(each) for each in outcome.end} == {ci.LINE_CHARACTERS}


def test_output_of_what_a_stage_leaves_behind_is_not_awaited() -> None:
    code = f"import time; time.sleep({WAIT_S})"
    program = (
        "import subprocess, sys; print('begins', flush=True);"
        f"print(subprocess.Popen([sys.executable, '-c', {code!r}]).pid)"
    )
    outcome = run(python(program), soon())
    try:
        assert outcome.has_passed
        assert outcome.end[0] == "begins"
    finally:
        os.kill(int(outcome.end[-1]), signal.SIGKILL)


def test_the_end_of_the_report_says_what_failed_and_why() -> None:
    tests = [f"tests/a.py::test_{number:02}" for number in range(12)]
    stage = python("", "kafka")
    outcome = Outcome(stage, False, 61.0, failed=tests, end=["E  why", "make: *** Error 1"])
    lines = report([outcome, Outcome(python("", "docs"), True, 1.0)]).splitlines()
    assert lines[-14:] == [
        f"FAILED kafka: {' '.join(stage.command)}",
        *(f"  {each}" for each in tests[:10]),
        "  and 2 other tests",
        "  | E  why",
        "  | make: *** Error 1",
    ]


def test_the_report_names_every_stage() -> None:
    outcomes = [
        Outcome(python("", "check"), True, 61.0),
        Outcome(python("", "tests"), False, 600.0, note="ended after 600 s"),
    ]
    assert report(outcomes).split("\n") == [
        "",
        "stage                   seconds",
        "check                        61  passed",
        "tests                       600  FAILED (ended after 600 s)",
        "in all                      661",
        "",
        f"FAILED tests: {' '.join(outcomes[1].stage.command)}",
    ]


def test_every_stage_makes_a_target_of_the_makefile() -> None:
    makefile = (ci.ROOT / "Makefile").read_text()
    commands = [stage.command for stage in ci.stages("ab" * 20, "HEAD")]
    assert [each[:2] for each in commands if f"\n{each[1]}: " not in makefile] == []
