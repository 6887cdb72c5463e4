"""Tests of the decision whether a search found a bug, and of the order and time of searches."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model import scopes
from tests.model.__main__ import chosen, parse_arguments
from tests.seeded_bugs.__main__ import report
from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.runner import OVERRUN_S_MAX, Result, look_until, ordered
from tests.seeded_bugs.searches import (
    Finding,
    Finished,
    Searcher,
    Verdict,
    arguments,
    arguments_of,
    judge,
    run_command,
)
from tests.seeded_bugs.seeded_bug import SeededBug, beyond_budget, model, simulation, topics
from tests.simulation.loop import run_simulation, simulation_loop

EXPLORED = "pair, recovery   43,975   complete\n"
SUMMARY = json.dumps({"seeds": 8, "failing": [107, 110]})
FAILED = f"seed 107: replay\n  entry 7 was lost\n{SUMMARY}\n"


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
    finding = judge(model("pair, recovery"), Finished(status, output, 1.0))
    assert finding.verdict == verdict
    if verdict == "found":
        assert finding.seed is None
        assert finding.evidence == ("violated: 1 was confirmed with 1 copies",)


@pytest.mark.parametrize(
    ("status", "output", "verdict"),
    [
        (0, SUMMARY, "missed"),
        (1, FAILED, "found"),
        (1, FAILED.replace("entry 7 was lost", "AttributeError: no x"), "broken"),
        (1, "Traceback ...", "broken"),
        (1, "", "broken"),
        (2, FAILED, "broken"),
        (None, "", "missed"),
    ],
)
def test_a_run_of_seeds(status: int | None, output: str, verdict: str) -> None:
    finding = judge(simulation("crashes"), Finished(status, output, 1.0))
    assert finding.verdict == verdict
    if verdict == "found":
        assert finding.seed == 107
        assert finding.evidence == ("entry 7 was lost",)


def test_the_model_explores_the_named_configuration() -> None:
    asked = parse_arguments(arguments(model("pair, recovery"))[2:])
    assert [each.name for each in chosen(asked)] == ["pair, recovery"]
    assert max(each.states_max for each in scopes.FULL) > chosen(asked)[0].states_max


def test_a_finding_is_repeated_alone() -> None:
    within, beyond = simulation("damage"), beyond_budget("damage")
    given = arguments(within, 3, 4)
    assert given[:2] == ["-m", "tests.simulation"]
    assert arguments(beyond, 3, 4) == [*given, "--beyond-budget"]
    assert arguments(topics("users"))[:2] == ["-m", "tests.simulation.topics"]
    assert arguments_of(Finding(beyond, Verdict.FOUND, 107)) == [
        *("-m", "tests.simulation", "--first-seed", "107", "--seeds", "1"),
        *("--stop-at-first", "--beyond-budget"),
    ]


def put_simulation(root: Path, failing: set[int]) -> Path:
    (root / "tests/simulation").mkdir(parents=True)
    (root / "tests/__init__.py").touch()
    (root / "tests/simulation/__main__.py").write_text(
        "import json, sys\n"
        "given = sys.argv\n"
        "first, count = (int(given[given.index(each) + 1]) for each in"
        " ('--first-seed', '--seeds'))\n"
        f"failing = [seed for seed in range(first, first + count) if seed in {failing}][:1]\n"
        "print('  an entry was lost')\n"
        "print(json.dumps({'failing': failing}))\n"
        "sys.exit(bool(failing))\n"
    )
    return root


@pytest.mark.parametrize(
    ("failing", "verdict", "seed"), [({3, 5, 9}, "found", 5), ({3}, "missed", None)]
)
async def test_a_seed_that_fails_without_the_bug_is_skipped(
    tmp_path: Path, failing: set[int], verdict: str, seed: int | None
) -> None:
    searcher = Searcher(put_simulation(tmp_path / "plain", {3}))
    patched = put_simulation(tmp_path / "patched", failing)
    finding = await searcher.look(simulation("crashes"), patched)
    assert (finding.verdict, finding.seed) == (verdict, seed)


async def test_a_command_ends_with_its_time(tmp_path: Path) -> None:
    done = await run_command(["-c", "print('begun', flush=True); input()"], tmp_path, 20.0)
    assert done.status == 1, "it has no standard input"
    done = await run_command(["-c", "import time; time.sleep(1000)"], tmp_path, 0.05)
    assert done.status is None
    endless = "print('a'); print('violated: b', flush=True); import time"
    endless += "; time.sleep(1000)"
    done = await run_command(["-c", endless], tmp_path, 20.0, enough="violated: ")
    assert done.status == 1
    assert "violated: b" in done.output


def test_the_seed_chooses_the_order_and_touched_files_come_first() -> None:
    order = ordered(BUGS, "a commit", ())
    assert sorted(order, key=BUGS.index) == list(BUGS)
    assert order == ordered(BUGS, "a commit", ())
    assert order != ordered(BUGS, "another commit", ())
    touched = BUGS[-1].paths[:1]
    first = [bug for bug in order if touched[0] in bug.paths]
    rest = [bug for bug in order if touched[0] not in bug.paths]
    assert first
    assert ordered(BUGS, "a commit", touched) == [*first, *rest]


@pytest.mark.parametrize(
    ("for_s", "begun", "ended"), [(None, 6, 6), (0.0, 0, 0), (250.0, 6, 5), (90.0, 2, 2)]
)
def test_no_search_begins_after_the_end_and_all_are_stopped_later(
    for_s: float | None, begun: int, ended: int
) -> None:
    assert OVERRUN_S_MAX == 120.0
    seconds = dict(zip(BUGS[:6], (100.0, 100.0, 100.0, 100.0, 100.0, 1_000.0), strict=True))
    log: list[tuple[str, SeededBug]] = []

    async def look(bug: SeededBug) -> None:
        log.append(("began", bug))
        await asyncio.sleep(seconds[bug])
        log.append(("ended", bug))

    async def main() -> None:
        await look_until(for_s, BUGS[:6], look, 2)
        assert for_s is None or simulation_loop().time() <= for_s + OVERRUN_S_MAX

    run_simulation(main, seed=0)
    assert [bug for what, bug in log if what == "began"] == list(BUGS[:begun])
    assert len([bug for what, bug in log if what == "ended"]) == ended


def test_a_bug_is_found_if_each_of_its_searches_finds_it() -> None:
    bug = replace(BUGS[0], searches=(model("pair, recovery"), simulation("changes")))
    found = Finding(bug.searches[1], Verdict.FOUND, 107, 2.0, ("entry 7 was lost",))
    missed = Finding(bug.searches[0], Verdict.MISSED, seconds=9.0)
    assert Result(bug, (found,)).is_found
    assert not Result(bug, (found, missed)).is_found
    assert report(Result(bug, (found, missed))) == (
        f"{bug.name}: simulation (changes): found at seed 107 in 2 s: entry 7 was lost\n"
        f"{bug.name}: model (pair, recovery): missed in 9 s"
    )
