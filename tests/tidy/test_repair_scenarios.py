"""docs/repair.md names a test for each scenario of BookKeeper's auto-recovery: all of them exist.

Leaves what the tests show to them.
"""

import ast
import re
from typing import Final

import pytest

from tests.tidy.test_tidy import MODULES, ROOT

FOLDER: Final = "tests/unit/quire/repair/"
"""Folder of files that are named without theirs."""
SECTION: Final = re.compile(r"^## BookKeeper's scenarios\n(.*?)^## ", re.MULTILINE | re.DOTALL)
ROW: Final = re.compile(r"^\| ?(.*?) \| (.*) \|$", re.MULTILINE)
NAMED: Final = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
CLASSES: Final = (
    "AuditorLedgerCheckerTest",
    "TestReplicationWorker",
    "BookieAutoRecoveryTest",
    "FullEnsembleDecommissionedTest",
    "BookieDecommissionTest",
    "AuditorPeriodicCheckTest",
    "AuditorReplicasCheckTest",
    "AuthAutoRecoveryTest",
    "AuditorCheckAllLedgersTaskTest",
)
"""BookKeeper's test classes with scenarios of repair."""


def rows() -> list[tuple[str, str]]:
    """Return the scenario and the test of each row."""
    section = SECTION.search((ROOT / "docs/repair.md").read_text())
    assert section is not None
    return ROW.findall(section[1])[1:]


def functions(path: str) -> frozenset[str]:
    """Return the functions of a module; none if there is no such module."""
    nodes = MODULES[path].tree.body if path in MODULES else []
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in nodes if isinstance(node, defined))


def missing(cell: str) -> list[str]:
    """Return the tests of a cell that do not exist."""
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(cell)
        if name not in functions(path) and name not in functions(FOLDER + path)
    ]


def test_each_row_names_one_test_and_it_exists() -> None:
    assert [scenario for scenario, cell in rows() if len(NAMED.findall(cell)) != 1] == []
    assert [each for _, cell in rows() for each in missing(cell)] == []


@pytest.mark.parametrize("name", CLASSES)
def test_each_test_class_of_bookkeeper_has_a_row(name: str) -> None:
    assert [scenario for scenario, _ in rows() if f"**{name}**" in scenario]


def test_a_wrong_name_is_found() -> None:
    cell = (
        "`test_needs.py::test_fewer`, `tests/tidy/test_links.py::test_links_and_anchors_are_read`"
    )
    assert missing(cell) == ["test_needs.py::test_fewer"]
