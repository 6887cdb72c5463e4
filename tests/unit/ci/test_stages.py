"""Stages of continuous integration: every one runs, and only a real failure is red."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ci import __main__ as ci
from tests.ci.__main__ import Ended, Outcome, Stage, report, run
from tests.until import WAIT_S, until, within


def python(program: str, name: str = "stage", limit_s: float = WAIT_S, **options: bool) -> Stage:
    return Stage(name, (sys.executable, "-c", program), limit_s, **options)


def soon() -> float:
    return time.monotonic() + 10 * WAIT_S


def failing(tmp_path: Path, test: str, status: int = ci.TESTS_FAILED) -> str:
    """Return a program that fails as pytest does: it notes a test as failed, and names it."""
    noted = json.dumps({test: True})
    return (
        f"open({str(tmp_path / ci.LAST_FAILED)!r}, 'w').write({noted!r});"
        f"open({str(tmp_path / ci.STATUS)!r}, 'w').write('{status}');"
        f"print('E   why\\nFAILED {test}'); raise SystemExit(1)"
    )


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ci, "NOTES", tmp_path)
    for name in (ci.LAST_FAILED, ci.STATUS):
        (tmp_path / name).parent.mkdir()


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
    lines = report([outcome]).splitlines()
    assert lines[3:5] == [f"  DEPENDS ON LOAD: {test}", "  | E   why"]


def test_nothing_is_run_again_if_the_tests_broke_off(tmp_path: Path) -> None:
    sample = tmp_path / "test_sample.py"
    sample.write_text("def test_passes(): pass\n")
    program = failing(tmp_path, f"{sample}::test_passes", status=3)
    outcome = run(python(program, has_tests=True), soon())
    assert (outcome.has_passed, outcome.note) == (False, "pytest broke off.")


def test_tests_that_are_all_skipped_are_a_failure() -> None:
    said = "12 skipped in 1.30s"
    outcome = run(python(f"print('{said}')", has_tests=True), soon())
    assert (outcome.has_passed, outcome.note) == (False, f"no test passed: {said}")
    said = "1 passed, 12 skipped in 1.30s (0:00:01)"
    outcome = run(python(f"print('{said}')", has_tests=True), soon())
    assert (outcome.has_passed, outcome.note) == (True, said)


def test_an_error_of_this_program_fails_one_stage_only(tmp_path: Path) -> None:
    program = f"open({str(tmp_path / ci.LAST_FAILED)!r}, 'w').write('{{'); raise SystemExit(1)"
    outcome = run(python(program, has_tests=True), soon())
    assert not outcome.has_passed
    assert outcome.note.startswith("JSONDecodeError: ")
    outcome = run(Stage("stage", (str(tmp_path / "missing"),), 1.0), soon())
    assert not outcome.has_passed
    assert outcome.note.startswith("FileNotFoundError: ")


def test_a_stage_that_hangs_names_what_had_failed(tmp_path: Path) -> None:
    program = (
        "import time\n"
        "try: print('begins', flush=True); time.sleep(1e6)\n"
        f"except KeyboardInterrupt: {failing(tmp_path, 'tests/a.py::test_b')}"
    )
    outcome = run(python(program, limit_s=1.0, has_tests=True), soon())
    assert outcome.note.startswith("ended after")
    if outcome.end:  # it had begun
        assert outcome.failed == ["tests/a.py::test_b"]


def test_processes_whose_parent_has_ended_do_not_stay_as_zombies() -> None:
    """The stage ends once the process is gone that it has left to another parent."""
    stage = (
        "import os, sys, time\n"
        "near, far = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    if (child := os.fork()) == 0: time.sleep(0.1)\n"
        "    else: os.write(far, b'%d' % child)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "child = int(os.read(near, 100))\n"
        "while os.path.exists(f'/proc/{child}'): time.sleep(0.01)\n"
    )
    program = (
        "import sys, time\n"
        "from tests.ci import __main__ as ci\n"
        "ci.adopt_orphans()\n"
        f"stage = ci.Stage('stage', (sys.executable, '-c', {stage!r}), {WAIT_S})\n"
        f"raise SystemExit(not ci.run_all([stage], time.monotonic() + {WAIT_S}))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ci.ROOT, check=False).returncode == 0


@pytest.mark.real_time
async def test_a_report_is_printed_if_this_is_told_to_end(tmp_path: Path) -> None:
    """The stage that runs is ended with what it started, in a session of its own too."""
    pid = tmp_path / "pid"
    code = f"import time; time.sleep({10 * WAIT_S})"
    stage = (
        "import pathlib, subprocess, sys, time;"
        f"child = subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session=True);"
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid)); {code}"
    )
    program = (
        "import signal, sys, time\n"
        "from tests.ci import __main__ as ci\n"
        "signal.signal(signal.SIGTERM, ci._end)\n"
        "ci.adopt_orphans()\n"
        f"stages = [ci.Stage('first', (sys.executable, '-c', 'pass'), {WAIT_S}),\n"
        f"  ci.Stage('second', (sys.executable, '-c', {stage!r}), {WAIT_S}),\n"
        f"  ci.Stage('third', (sys.executable, '-c', 'pass'), {WAIT_S})]\n"
        f"ci.run_all(stages, time.monotonic() + {WAIT_S})\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ci.ROOT, stdout=asyncio.subprocess.PIPE
    )
    await until(lambda: pid.exists() and bool(pid.read_text()))
    process.terminate()
    output, _ = await within(process.communicate())
    assert process.returncode == 128 + signal.SIGTERM
    rows = [line.split() for line in output.decode().splitlines()[-4:]]
    assert [row[0] for row in rows] == ["first", "second", "third", "in"]
    assert [row[2:] for row in rows[:3]] == [["passed"], *(2 * [["NOT", "RUN", "(ended)"]])]
    await until(lambda: has_ended(pid.read_text()))


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
    assert shown.endswith(
        b"".join(b"%d %s\n" % (number, b"x" * 300) for number in range(50)) + b"\n"
    )
    assert [each.split()[0] for each in outcome.end] == [str(number) for number in range(35, 50)]
    assert {len(each) for each in outcome.end} == {ci.LINE_CHARACTERS}


@pytest.mark.real_time
async def test_what_a_stage_leaves_behind_is_ended_and_its_output_not_awaited() -> None:
    code = f"import time; time.sleep({WAIT_S})"
    program = (
        "import subprocess, sys; print('begins', flush=True);"
        f"print(subprocess.Popen([sys.executable, '-c', {code!r}]).pid)"
    )
    outcome = run(python(program), soon())
    assert outcome.has_passed
    assert outcome.end[0] == "begins"
    await until(lambda: has_ended(outcome.end[-1]))


def test_the_end_of_the_report_says_what_failed_and_why() -> None:
    tests = [f"tests/a.py::test_{number:02}" for number in range(12)]
    stage = python("", "kafka")
    outcome = Outcome(stage, False, 61.0, failed=tests, end=["E  why", "make: *** Error 1"])
    lines = report([outcome, Outcome(python("", "docs"), True, 1.0)]).splitlines()
    assert lines[-14:] == [
        f"FAILED kafka: {' '.join(stage.command)}",
        *(f"  {test}" for test in tests[:10]),
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
    assert [command[:2] for command in commands if f"\n{command[1]}: " not in makefile] == []
