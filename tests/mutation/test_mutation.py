"""Mutants of a sample get the verdicts that they deserve; every explained mutant still exists."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.mutation import explained
from tests.mutation.mutants import Module
from tests.mutation.scores import Result, are_as_wanted
from tests.mutation.session import Judgement, Verdict
from tests.mutation.swapping import ROOT
from tests.mutation.targets import TARGETS, Target

SAMPLE = "tests/mutation/sample/ledger_of_sums.py"
JUDGE = """
import json, os
from tests.mutation.mutants import Module
from tests.mutation.session import run_session
from tests.mutation.swapping import ROOT
module = Module({path!r}, (ROOT / {path!r}).read_text())
found = []
problem = run_session([module], module.mutants, ["tests/mutation/sample"], found.append, 60)
results = [[each.mutant.line, each.mutant.change, each.verdict, each.is_slow] for each in found]
os.write(2, b"RESULT" + json.dumps([problem, results]).encode())
"""


def changes(text: str) -> list[str]:
    return [mutant.change for mutant in Module("a.py", text).mutants]


def test_decisions_are_changed() -> None:
    text = """
def decide(self, limit: int = 3) -> list[int]:
    if self.size >= limit and not self.closed:
        raise ValueError("full", 1)
    return [each for each in self.sizes if each]
"""
    assert changes(text) == [
        "3 becomes 4",
        "3 becomes 2",
        "always true: self.size >= limit and (not self.closed)",
        "always false: self.size >= limit and (not self.closed)",
        "and becomes or: self.size >= limit and (not self.closed)",
        "without self.size >= limit: self.size >= limit and (not self.closed)",
        "without not self.closed: self.size >= limit and (not self.closed)",
        ">= becomes >: self.size >= limit",
        "without not: not self.closed",
        "without: raise ValueError('full', 1)",
        "return [], not [each for each in self.sizes if each]",
        "always true: each",
        "always false: each",
    ]


def test_only_functions_are_changed_and_no_assertion_text_or_log_call() -> None:
    text = '''
LIMIT = 3

class A:
    size: int = 4

    def check(self) -> None:
        """Two are enough."""
        assert self.size == 2, "not 2"
        self._log.info("size %d", self.size + 1)
        ...
'''
    assert changes(text) == []


def test_equal_changes_of_one_line_are_numbered() -> None:
    text = "def f(a: list[int]) -> None:\n    a[0], b = a[1], a[1]\n    use(a[1])\n"
    assert [change for change in changes(text) if change.startswith("1 becomes 2")] == [
        "1 becomes 2",
        "1 becomes 2 (2)",
        "1 becomes 2",
    ]


def test_every_change_compiles_and_is_undone() -> None:
    for path in ("ledger_client/protocol/acks.py", "bookie/storage/cleaning.py"):
        module = Module(path, (ROOT / path).read_text())
        for mutant in module.mutants:
            module.compile(mutant, path)
        assert Module(path, (ROOT / path).read_text()).mutants == module.mutants


def test_verdicts_on_a_sample() -> None:
    """A process of its own: pytest refuses to run within pytest once Hypothesis is imported."""
    done = subprocess.run(
        [sys.executable, "-c", JUDGE.format(path=SAMPLE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
    )
    problem, results = json.loads(done.stderr.partition("RESULT")[2])
    assert problem == ""
    left = [(line, change) for line, change, verdict, _ in results if verdict == "survived"]
    assert left == [
        (14, "> becomes >=: self.total + number > 100"),
        (14, "100 becomes 101"),
        (14, "100 becomes 99"),
        (32, "1 becomes 2"),
        (32, "1 becomes 0"),
    ]
    assert {line for line, _, verdict, _ in results if verdict == "unreached"} == {22}
    endless = [change for _, change, verdict, is_slow in results if is_slow and verdict == "killed"]
    assert "without: number //= 2" in endless


# -- scores ---------------------------------------------------------------------------------------


def result(verdict: Verdict, reason: str = "") -> Result:
    mutant = Module("a.py", "def f() -> None:\n    g()\n").mutants[0]
    return Result(TARGETS[0], Judgement(mutant, verdict), reason)


def test_explained_mutants_count_as_known_and_killed_ones_need_no_reason() -> None:
    killed, left = result(Verdict.KILLED), result(Verdict.SURVIVED)
    explained_one = result(Verdict.UNREACHED, "no caller passes it")
    results = [killed, killed, explained_one, left]
    assert are_as_wanted(results, 75)
    assert not are_as_wanted(results, 76)
    assert not are_as_wanted([*results, result(Verdict.KILLED, "nothing changes")], 0)


# -- targets and explanations ---------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_targets_exist(target: Target) -> None:
    assert all((ROOT / path).is_file() for path in target.paths)
    assert all((ROOT / "tests" / test.partition("::")[0]).exists() for test in target.tests)


def test_no_module_has_two_targets() -> None:
    counts = Counter(path for target in TARGETS for path in target.paths)
    assert max(counts.values()) == 1
    assert len({target.name for target in TARGETS}) == len(TARGETS)


def test_explained_mutants_exist() -> None:
    """Fails when a line changed: then look whether the reason still holds, and adapt the entry."""
    every = explained.read_all()
    paths = {path for target in TARGETS for path in target.paths}
    assert not [each.module for each in every if each.module not in paths]
    known = {
        mutant.key
        for path in sorted({each.module for each in every})
        for mutant in Module(path, (ROOT / path).read_text()).mutants
    }
    keys = [key for each in every for key in each.keys]
    assert not [key for key in keys if key not in known]
    assert not [key for key, count in Counter(keys).items() if count > 1]
    assert not [each for each in every if len(each.reason.split()) < 3]
