"""Tests that every planted bug still fits the code, and names tests that exist.

`python -m tests.planted_bugs` shows whether each is found.
"""

import pytest

from tests.planted_bugs.patches import BUGS, PlantedBug
from tests.seeded_bugs.trees import ROOT


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_patch_fits_the_code(bug: PlantedBug) -> None:
    bug.apply(ROOT, "--check")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_described(bug: PlantedBug) -> None:
    assert bug.wrong.endswith(".")
    assert bug.nearest
    assert all((ROOT / each).exists() for each in bug.nearest)
    assert bug.packages
    assert "tests" not in bug.packages


def test_there_are_twenty_seven() -> None:
    assert len(BUGS) == 27
