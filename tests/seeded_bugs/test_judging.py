"""Tests of the decision whether a detector found a bug."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.model import scopes
from tests.model.__main__ import chosen, parse_arguments
from tests.seeded_bugs import table
from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.detectors import (
    Finding,
    Finished,
    judge_model,
    judge_simulation,
    judge_units,
    look,
    run_command,
    simulation_arguments,
)
from tests.seeded_bugs.plain import Plain
from tests.seeded_bugs.runner import Plan, Verdict, is_missing, judge, planned
from tests.seeded_bugs.seeded_bug import Detector, Kind, beyond_budget, simulation


def failure(*kinds: str) -> dict[str, Any]:
    return {
        "passed": ["a", "b", "c"],
        "test": "tests/x.py::test_y",
        "kinds": kinds,
        "text": ["lost entry 7"],
    }


@pytest.mark.parametrize(
    ("status", "result", "verdict", "count"),
    [
        (0, {"passed": ["a", "b"]}, "missed", 2),
        (1, failure("AssertionError", "Exception"), "found", 4),
        (1, failure("UnboundLocalError", "NameError", "Exception"), "broken", 3),
        (1, failure("AttributeError", "Exception"), "broken", 3),
        (2, {"passed": [], "test": "", "kinds": ["SyntaxError"], "text": []}, "broken", 0),
        (4, {}, "broken", 0),
        (None, {}, "broken", 0),
    ],
)
def test_a_run_of_tests(
    status: int | None, result: dict[str, Any], verdict: str, count: int
) -> None:
    finding = judge_units(Finished(status, "some output", 1.5), result)
    assert (finding.verdict, finding.count) == (verdict, count)
    assert finding.is_found == (verdict == "found")
    if finding.is_found:
        assert finding.culprit == "tests/x.py::test_y"
        assert finding.evidence == ("lost entry 7",)


def put_reporter(root: Path) -> None:
    (root / "tests/seeded_bugs").mkdir(parents=True)
    reporter = Path(__file__).with_name("reporter.py").read_text()
    (root / "tests/seeded_bugs/reporter.py").write_text(reporter)


async def test_a_test_that_fails_without_any_bug_is_red(tmp_path: Path) -> None:
    put_reporter(tmp_path)
    texts = ("assert False", "pass", "import pytest; pytest.skip('not here')")
    for number, text in enumerate(texts):
        (tmp_path / f"test_{number}.py").write_text(f"def test_it():\n    {text}\n")
    plain = Plain(tmp_path)
    await plain.run((f"test_{number}.py::test_it" for number in range(3)), 2)
    assert plain.red_tests == {"test_0.py::test_it", "test_2.py::test_it"}
    finding = Finding(Kind.UNITS, "found", culprit="test_0.py::test_it")
    assert await plain.is_red(Detector(Kind.UNITS, 40.0), finding)
    finding = Finding(Kind.UNITS, "found", culprit="test_1.py::test_it")
    assert not await plain.is_red(Detector(Kind.UNITS, 40.0), finding)


@pytest.mark.parametrize("text", ["import nothing_like_it", "raise ValueError"])
async def test_tests_of_a_module_that_cannot_be_imported_are_broken(
    tmp_path: Path, text: str
) -> None:
    put_reporter(tmp_path)
    (tmp_path / "patched.py").write_text(text)
    (tmp_path / "test_0.py").write_text("def test_it():\n    assert False\n")
    detector = Detector(Kind.UNITS, 40.0, ("test_0.py",))
    assert (await look(detector, tmp_path)).verdict == "found"
    finding = await look(detector, tmp_path, modules=("patched",))
    assert finding.verdict == "broken"
    assert "patched cannot be imported" in "".join(finding.evidence)


async def test_concurrent_runs_in_one_tree_have_separate_reports(tmp_path: Path) -> None:
    put_reporter(tmp_path)
    for number in range(2):
        (tmp_path / f"test_{number}.py").write_text(
            "import pathlib, time\n"
            "def test_it():\n"
            f"    pathlib.Path('begun-{number}').touch()\n"
            f"    while not pathlib.Path('begun-{1 - number}').exists():\n"
            "        time.sleep(0.01)\n"
            f"    assert {number}, 'lost entry {number}'\n"
        )
    detectors = [Detector(Kind.UNITS, 40.0, (f"test_{number}.py",)) for number in range(2)]
    failed, passed = await asyncio.gather(*(look(each, tmp_path) for each in detectors))
    assert (failed.verdict, failed.culprit) == ("found", "test_0.py::test_it")
    assert (passed.verdict, passed.count) == ("missed", 1)
    assert not list(tmp_path.glob("report*"))


async def test_a_failed_search_is_reported_and_ends_no_other(tmp_path: Path) -> None:
    bug, plan = BUGS[0], Plan()
    verdict = await judge(bug, plan, tmp_path, Plain(tmp_path))
    assert [each.verdict for each in verdict.findings] == ["broken"] * len(planned(bug, plan))
    assert "FileNotFoundError" in verdict.findings[0].evidence[0]
    assert is_missing(verdict, plan)
    assert "FileNotFoundError" in table.evidence_of_missing([verdict], plan)


EXPLORED = (
    f"{'pair, recovery':<34} {43_975:>10,} {214_787:>11,} {25:>5} {23:>8,} {1.3:>7.1f}  complete\n"
)


@pytest.mark.parametrize(
    ("status", "output", "verdict"),
    [
        (0, EXPLORED, "missed"),
        (1, f"{EXPLORED}a step\nviolated: 1 was confirmed with 1 copies\n", "found"),
        (1, f"{EXPLORED}violated: NameError('x')\n", "broken"),
        (1, f"{EXPLORED}Traceback (most recent call last):\n", "broken"),
        (2, f"{EXPLORED}usage", "broken"),
        (None, EXPLORED, "missed"),
    ],
)
def test_an_exploration(status: int | None, output: str, verdict: str) -> None:
    finding = judge_model(Finished(status, output, 1.0))
    assert (finding.verdict, finding.count) == (verdict, 43_975)
    assert finding.culprit == ("pair, recovery" if verdict == "found" else "")


def test_the_model_explores_the_named_configurations() -> None:
    asked = parse_arguments(["--states-max", "100", "--only", "pair, recovery", "trio, recovery"])
    assert [(each.name, each.states_max) for each in chosen(asked)] == [
        ("pair, recovery", 100),
        ("trio, recovery", 100),
    ]


def test_every_configuration_fits_its_column() -> None:
    names = [each.name for each in scopes.FULL]
    assert len(frozenset(names)) == len(names)
    assert not [name for name in names if len(name) > 34]


def test_a_run_of_seeds() -> None:
    summary = json.dumps({"seeds": 8, "failing": [107]})
    found = judge_simulation(
        Finished(1, f"seed 107: replay\n  entry 7 was lost\n{summary}\n", 2.0), 100, 9.0
    )
    assert (found.verdict, found.count, found.culprit) == ("found", 108, "107")
    assert found.evidence == ("entry 7 was lost",)
    assert judge_simulation(Finished(0, summary, 2.0), 100, 9.0).verdict == "missed"
    assert judge_simulation(Finished(1, "Traceback ...", 2.0), 100, 9.0).verdict == "broken"
    assert judge_simulation(Finished(None, "", 2.0), 100, 9.0).verdict == "missed"


def test_a_detector_can_damage_more_than_the_budget() -> None:
    within, beyond = simulation("damage"), beyond_budget("damage")
    given = simulation_arguments(within, 3, 4)
    assert given[:2] == ["-m", "tests.simulation"]
    assert simulation_arguments(beyond, 3, 4) == [*given, "--beyond-budget"]


async def test_a_command_ends_with_its_time(tmp_path: Path) -> None:
    done = await run_command(["-c", "print('begun', flush=True); input()"], tmp_path, 20.0)
    assert done.status == 1, "it has no standard input"
    done = await run_command(["-c", "import time; time.sleep(1000)"], tmp_path, 0.05)
    assert done.status is None
    endless = "print('a'); print('violated: b', flush=True); import time"
    endless += "; time.sleep(1000)"
    done = await run_command(["-c", endless], tmp_path, 20.0, enough=b"violated: ")
    assert done.status == 1
    assert "violated: b" in done.output


def test_a_bug_that_nothing_found_is_missing() -> None:
    plan = Plan(kinds=(Kind.UNITS, Kind.SIMULATION), seeds_max=7)
    bug = next(bug for bug in BUGS if bug.detector(Kind.UNITS) and bug.detector(Kind.SIMULATION))
    assert [each.seeds_max for each in planned(bug, plan)] == [0, 7]
    missed = Finding(Kind.UNITS, "missed", 5, 1.0)
    found = Finding(Kind.SIMULATION, "found", 5, 1.0, ("an entry was lost",), "4")
    assert is_missing(Verdict(bug, (missed,)), plan)
    assert is_missing(Verdict(bug, (missed, Finding(Kind.SIMULATION, "red"))), plan)
    assert not is_missing(Verdict(bug, (missed, found)), plan)
    hidden = next(bug for bug in BUGS if bug.detector(Kind.SIMULATION) is None)
    assert not is_missing(Verdict(hidden, ()), Plan(kinds=(Kind.SIMULATION,)))


def test_the_table_shows_what_each_class_did() -> None:
    plan = Plan(kinds=(Kind.UNITS, Kind.SIMULATION))
    bug = next(bug for bug in BUGS if bug.detector(Kind.UNITS) and bug.detector(Kind.SIMULATION))
    found = Finding(Kind.SIMULATION, "found", 1234, 9.0, ("an entry was lost",), "4")
    verdicts = [Verdict(bug, (Finding(Kind.UNITS, "missed", 5, 1.0), found))]
    text = table.render(table.rows(verdicts, plan.kinds))
    assert "1,234  9 s" in text
    assert "missed in 5" in text
    assert "an entry was lost" in text
    assert table.score(verdicts, plan).startswith("1 of 1 seeded bugs found")
    assert table.as_json(verdicts, plan)["not_found"] == []
