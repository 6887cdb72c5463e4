"""Pytest plugin that writes the result of a run as JSON.

Leaves judging it to `detectors`. It is loaded by `-p tests.seeded_bugs.reporter`.

Format: the file named by SEEDED_BUGS_REPORT holds `passed`, the node ids of the tests that passed,
and of the first failure `test` (its node id), `kinds` (the exception's class and its base classes)
and `text`. SEEDED_BUGS_MODULES names modules, separated by spaces, that must be importable from the
current directory; otherwise no test runs and no file is written.
"""

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

TEXT_LINES_MAX = 40


class Reporter:
    """Keeps the names of passed tests, and the first failure."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._result: dict[str, Any] = {"passed": []}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the name of a test that passed."""
        if report.when == "call" and report.passed:
            self._result["passed"].append(report.nodeid)

    def pytest_exception_interact(
        self, node: pytest.Item, call: pytest.CallInfo[object], report: pytest.TestReport
    ) -> None:
        """Keep the first failure; a failure of the collection has no test."""
        if "test" in self._result or call.excinfo is None:
            return
        self._result["test"] = node.nodeid if isinstance(report, pytest.TestReport) else ""
        self._result["kinds"] = [each.__name__ for each in call.excinfo.type.__mro__]
        lines = [*call.excinfo.exconly().splitlines(), *str(report.longrepr).splitlines()]
        self._result["text"] = lines[:TEXT_LINES_MAX]

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        self._path.write_text(json.dumps(self._result))


def pytest_configure(config: pytest.Config) -> None:
    """Import the required modules; activate the report if one is requested."""
    for name in os.environ.get("SEEDED_BUGS_MODULES", "").split():
        _check_module(name)
    path = os.environ.get("SEEDED_BUGS_REPORT")
    if path is not None:
        config.pluginmanager.register(Reporter(Path(path)))


def _check_module(name: str) -> None:
    try:
        found = importlib.import_module(name).__file__
    except Exception as error:
        raise pytest.UsageError(f"{name} cannot be imported: {error!r}") from error
    if found is None or not Path(found).is_relative_to(Path.cwd()):
        raise pytest.UsageError(f"{found} is not the copy")
