"""Pytest session that judges mutants: collects tests once, then forks a process for each mutant.

Leaves mutants to `mutants`, and the choice of modules and tests to `targets`.

The first child runs every test with functions that note which statements it reaches, also where an
earlier test has cached the result. A mutant's
child runs the tests that reach its statement, the quickest first, until one fails. Limits of time
are of processor time, so that a busy machine kills nothing; a generous one of real time is for
tests that wait for ever.
"""

import gc
import math
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any

import pytest

from tests.mutation.forks import Outcome, run_forked
from tests.mutation.mutants import Module, Mutant
from tests.mutation.places import Spot
from tests.mutation.swapping import LiveModules, Reached, UnfitMutantError

PROFILE = "mutation"
BASELINE_S = 1800
"""Limit for all tests together, without any mutant."""
TIMES_MAX, SPARE_CPU_S, SPARE_S = 5, 1.0, 20
"""A test may take so many times as long as it took without a mutant, and so many seconds more."""
SLOW_CPU_S = 0.05
NOT_OF_THE_CODE = "not seeded"
"""Tests that break the code themselves say nothing of a mutant."""


class Verdict(StrEnum):
    """What the tests say of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNREACHED = "unreached"
    """No test reaches its statement."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A mutant and its verdict; `test` is the one that failed, or hung if `is_slow`."""

    mutant: Mutant
    verdict: Verdict
    test: str = ""
    is_slow: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Test:
    index: int
    seconds: float
    cpu_seconds: float


class BaselineError(Exception):
    """A test fails without any mutant."""


class MutationPlugin:
    """Runs mutants instead of the collected tests."""

    def __init__(
        self,
        modules: Sequence[Module],
        chosen: Sequence[Mutant],
        tell: Callable[[Judgement], None],
        cpu_s_max: float,
        end_s: float,
    ) -> None:
        self._modules = {module.path: module for module in modules}
        self._chosen = chosen
        self._tell = tell
        self._cpu_s_max = cpu_s_max
        self._end_s = end_s
        self._has_failed = False
        self.problem = ""
        """Why no mutant was judged, if none was."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        """Use the same examples in every run; one that fails is enough."""
        from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 - pytest imports it first

        settings.register_profile(
            PROFILE,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge every mutant."""
        if session.testsfailed or not session.items:
            self.problem = "the tests cannot be collected"
            return True
        gc.unfreeze()  # tests/conftest.py froze what was collected, and `gc.get_objects` omits it
        live = LiveModules(self._modules)
        gc.collect()
        gc.freeze()
        try:
            tests = self._baseline(session.items, live)
        except BaselineError as error:
            self.problem = str(error)
            return True
        for mutant in self._chosen:
            if time.monotonic() > self._end_s:
                break
            if (judged := self._judge(mutant, session.items, tests, live)) is not None:
                self._tell(judged)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport | None:
        """Report a failure without its text, which takes longer than most tests."""
        excinfo = call.excinfo
        if (
            excinfo is None
            or call.when == "collect"
            or excinfo.errisinstance(pytest.skip.Exception)
        ):
            return None
        self._has_failed = True
        return pytest.TestReport(
            item.nodeid, item.location, {}, "failed", None, call.when, duration=call.duration
        )

    def _baseline(
        self, items: Sequence[pytest.Item], live: LiveModules
    ) -> dict[tuple[str, Spot], list[_Test]]:
        """Return the tests that reach each statement, the quickest first."""

        def run() -> list[Any]:
            reached: Reached = set()
            live.mark(reached)
            found: list[Any] = []
            for item in items:
                live.clear_caches()
                reached.clear()
                began, began_cpu = time.perf_counter(), time.process_time()
                self._run_test(item)
                if self._has_failed:
                    return [item.nodeid]
                taken = time.perf_counter() - began, time.process_time() - began_cpu
                found.append([*taken, sorted(reached)])
            return found

        outcome = run_forked(run, BASELINE_S)
        if not outcome.is_done:
            raise BaselineError(f"the tests end their process: {outcome.text}")
        if len(outcome.result) != len(items) or isinstance(outcome.result[0], str):
            raise BaselineError(f"fails without any mutant: {outcome.result[0]}")
        tests: dict[tuple[str, Spot], list[_Test]] = defaultdict(list)
        for index, (seconds, cpu_seconds, reached) in enumerate(outcome.result):
            for path, (line, column) in reached:
                tests[path, (line, column)].append(_Test(index, seconds, cpu_seconds))
        return {
            statement: self._affordable([(items[test.index].nodeid, test) for test in each])
            for statement, each in tests.items()
        }

    def _affordable(self, tests: list[tuple[str, _Test]]) -> list[_Test]:
        """Return the quickest tests, as many as the limit of processor time allows.

        Of slow ones that differ only by their parameters, one of each comes before all second ones.
        """
        seen: Counter[str] = Counter()
        ranked: list[tuple[int, _Test]] = []
        for name, test in sorted(tests, key=lambda each: each[1].cpu_seconds):
            function = name.partition("[")[0]
            ranked.append((seen[function], test))
            seen[function] += test.cpu_seconds > SLOW_CPU_S
        ranked.sort(key=lambda each: each[0])  # stable: the quickest of each rank first
        sums = accumulate(test.cpu_seconds for _, test in ranked)
        pairs = zip(ranked, sums, strict=True)
        return [test for (_, test), total in pairs if total - test.cpu_seconds < self._cpu_s_max]

    def _judge(
        self,
        mutant: Mutant,
        items: Sequence[pytest.Item],
        tests: dict[tuple[str, Spot], list[_Test]],
        live: LiveModules,
    ) -> Judgement | None:
        """Run the tests of one mutant; return None if the mutant cannot be put into the code."""
        reaching = tests.get((mutant.path, mutant.statement), [])
        if not reaching:
            return Judgement(mutant, Verdict.UNREACHED)

        def run() -> list[str]:
            try:
                live.apply(mutant)
            except UnfitMutantError:
                return ["unfit"]
            for test in reaching:
                with _limited(test):
                    self._run_test(items[test.index])
                if self._has_failed:
                    return ["killed", items[test.index].nodeid]
            return ["survived"]

        began = time.perf_counter()
        outcome = run_forked(run, sum(TIMES_MAX * test.seconds + SPARE_S for test in reaching))
        seconds = time.perf_counter() - began
        if not outcome.is_done:
            is_slow = not outcome.text
            return Judgement(mutant, Verdict.KILLED, _last_line(outcome), is_slow, seconds)
        match outcome.result:
            case ["killed", test]:
                return Judgement(mutant, Verdict.KILLED, test, seconds=seconds)
            case ["survived"]:
                return Judgement(mutant, Verdict.SURVIVED, seconds=seconds)
            case _:
                return None

    def _run_test(self, item: pytest.Item) -> None:
        """Run one test with all its fixtures."""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


@contextmanager
def _limited(test: _Test) -> Iterator[None]:
    """End the process if a test takes far longer than without a mutant."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, TIMES_MAX * test.cpu_seconds + SPARE_CPU_S)
    signal.setitimer(signal.ITIMER_REAL, TIMES_MAX * test.seconds + SPARE_S)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _last_line(outcome: Outcome) -> str:
    lines = outcome.text.strip().splitlines()
    return lines[-1] if lines else ""


def run_session(
    modules: Sequence[Module],
    chosen: Sequence[Mutant],
    tests: Sequence[str],
    tell: Callable[[Judgement], None],
    cpu_s_max: float,
    end_s: float = math.inf,
) -> str:
    """Judge mutants with the tests at some paths; return why that failed, or an empty string. No
    mutant is begun after `end_s` of the monotonic clock.

    The tests of one mutant take at most `cpu_s_max` of processor time, if it changes nothing.
    """
    plugin = MutationPlugin(modules, chosen, tell, cpu_s_max, end_s)
    given = ["-q", "--capture=no", "--no-header", "--no-summary", "--timeout=0", "--tb=no"]
    given += [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-k",
        NOT_OF_THE_CODE,
        f"--hypothesis-profile={PROFILE}",
    ]
    status = pytest.main([*given, *tests], plugins=[plugin])
    if not plugin.problem and status not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        return f"pytest ended with {status}"
    return plugin.problem
