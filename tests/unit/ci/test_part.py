"""A part of the tests: the order of a seed, one long test first, and how many were left out."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ci.__main__ import ROOT
from tests.part import Part

CONFTEST = """
from tests.part import Part

def pytest_configure(config):
    config.pluginmanager.register(Part(0.0, "one"))
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(8))
def test_sample(number): pass
"""


@dataclass(frozen=True)
class Item:
    """What the plugin sees of a test."""

    path: Path
    number: int
    is_long: bool

    def get_closest_marker(self, name: str) -> object | None:
        assert name == "long"
        return self if self.is_long else None


def ordered(seed: str) -> list[Item]:
    items: list[Any] = [
        Item(Path(file), number, number < 3) for file in ("a", "b") for number in range(8)
    ]
    Part(0.0, seed).pytest_collection_modifyitems(items)
    return items


def test_one_long_test_is_first_and_the_others_last() -> None:
    for seed in map(str, range(20)):
        found = ordered(seed)
        assert [item.is_long for item in found] == [True, *[False] * 10, *[True] * 5]
        assert [str(item.path) for item in found[1:11]] in (list("aaaaabbbbb"), list("bbbbbaaaaa"))
        assert found == ordered(seed)
    assert len({ordered(str(seed))[0] for seed in range(20)}) > 3


def test_it_says_how_many_each_worker_left_out(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_sample.py").write_text(TESTS)
    program = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2")
    done = subprocess.run(
        [*program, "-c", "/dev/null", f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "8 tests were left out after 0 s, seed one" in done.stdout, done.stdout + done.stderr
