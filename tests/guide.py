"""What a run of tests covered and cost, what it left to other commands, and how to run one test.

Leaves the choice of tests to the Makefile.

Invariant: the workers of a run send the processor time of each test, that of its child processes
included, with its last report; only the process that prints adds them up.
"""

import resource
from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Final

import pytest

PROPERTY: Final = "processor_s"
ONE_TEST: Final = """\
One file, and one test of it:
  .venv/bin/python -m pytest tests/unit/bookie/log/test_replay.py
  .venv/bin/python -m pytest -m '' tests/tour/test_tour.py::test_a_topic_by_commands
"""
FAILED: Final = """\
Something failed; the text above says where and why. Run what failed alone: make test-failed
If it passes then, it depends on the load of this machine: a defect of the test, worth a report.
"""
GUIDES: Final = {
    "test": """\
Covered: unit tests of every package, contracts of interfaces, transcripts of the protocol, a few
simulated clusters with faults, and every capability once on a real cluster (tests/tour).
Left to make test-all, which takes longer: tests/integration, and what is marked `long`: faults on
real processes, every command, every login. Left to other targets (make help): Spark, stock Kafka
clients, browsers, long searches.
""",
    "test-all": """\
Covered: all tests that need no more than Python and Java.
Left to make test-spark, test-kafka, test-browser and test-packages: what fetches more. Left to
make sim, model, faults, fuzz, campaign, seeded-bugs and mutation: searches, as long as wanted.
""",
}
"""Texts by the target of the Makefile."""
DEPTHS: Final = {"unit": 3, "integration": 3}
"""Number of folders that a row of the table names."""


class Guide:
    """Plugin of pytest. `name` is one of GUIDES, or empty: then it prints nothing."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began_s = 0.0
        self._counts: Counter[str] = Counter()
        self._wall_s = defaultdict[str, float](float)
        self._processor_s = defaultdict[str, float](float)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Note the processor time before a test."""
        self._began_s = _processor_s()
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Send the processor time of a test with its last report."""
        yield
        item.user_properties.append((PROPERTY, str(_processor_s() - self._began_s)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one report to the sums of its folder."""
        folder = _folder_of(report.nodeid)
        self._wall_s[folder] += report.duration
        if report.when == "teardown":
            self._counts[folder] += 1
            spent = [
                float(str(value)) for name, value in report.user_properties if name == PROPERTY
            ]
            self._processor_s[folder] += sum(spent)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the text of the guide, and the costs of each folder."""
        if not self._name:
            return
        write = terminalreporter.write_line
        terminalreporter.section("what ran")
        write(f"{'tests':>7} {'seconds':>9} {'processor':>9}  folder")
        for folder, processor_s in sorted(self._processor_s.items(), key=_cost, reverse=True):
            row = f"{self._counts[folder]:7,} {self._wall_s[folder]:9.1f} {processor_s:9.1f}"
            write(f"{row}  {folder}")
        total = f"{self._counts.total():7,} {sum(self._wall_s.values()):9.1f}"
        write(f"{total} {sum(self._processor_s.values()):9.1f}  in all, of all workers")
        write("")
        write(GUIDES[self._name] + ONE_TEST, flush=True)
        if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
            write(FAILED)


def _cost(row: tuple[str, float]) -> float:
    return row[1]


def _folder_of(test: str) -> str:
    parts = test.partition("::")[0].split("/")
    kind = parts[1] if len(parts) > 1 else ""
    return "/".join(parts[: DEPTHS.get(kind, 2)])


def _processor_s() -> float:
    own, children = (
        resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
