"""A part of the tests, as many as fit into some seconds, in an order that a seed chooses.

Invariants: tests of a file stay together, since they share fixtures; no test is begun after the
time; one that runs is not ended. Tests that are marked `long` come last, since many others run in
the time of one, except for one that the seed chooses: it is the first, so that each of them runs
for some seeds. Each worker of pytest-xdist has the same order, and leaves out tests by its own
clock; the process that prints adds up how many.
"""

import math
import random
import time
from typing import Any, Final

import pytest

LEFT_OUT: Final = "left_out"


class Part:
    """Plugin of pytest."""

    def __init__(self, seconds: float, seed: str) -> None:
        self._seconds = seconds
        self._seed = seed
        self._end_s = math.inf
        self._left_out = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put files, and the tests of each, into the order of the seed."""
        rng = random.Random(self._seed)
        files = list(dict.fromkeys(item.path for item in items))
        rng.shuffle(files)
        rng.shuffle(items)
        long = [item for item in items if item.get_closest_marker("long") is not None]
        first, last = long[:1], long[1:]
        items.sort(key=lambda item: (item not in first, item in last, files.index(item.path)))

    def pytest_collection_finish(self) -> None:
        """Let the time begin."""
        self._end_s = time.monotonic() + self._seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """Leave out a test once the time is over."""
        if time.monotonic() < self._end_s:
            return None
        self._left_out += 1
        return True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the number of a worker to the process that prints."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[LEFT_OUT] = self._left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the number of a worker; one that crashed sends none."""
        self._left_out += getattr(node, "workeroutput", {}).get(LEFT_OUT, 0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how much ran."""
        text = f"{self._left_out} tests were left out after {self._seconds:.0f} s"
        terminalreporter.write_line(f"{text}, seed {self._seed}")
