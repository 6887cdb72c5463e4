"""Campaign: a process that works on one storage is killed, at named places and at any time.

Leaves the places to `crash_points`, the work to `storage_writer`, and judging to `examining`. After
every death, a copy of the directory is opened and all promises are checked. The next process starts
on the directory as the death left it.
"""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from bookie.files import disk_calls
from tests.faults import crash_points, storage_writer
from tests.faults.budget import Budget, Summary
from tests.faults.children import Child, ChildEnd, make_directory
from tests.faults.crash_points import POINTS, wrap
from tests.faults.examining import examine_copy
from tests.faults.promises import Promises

CYCLES_SMALL: Final = 44
CYCLES_FULL: Final = 3_000
LIVES_OF_A_DIRECTORY: Final = 12
ANY_TIME_SHARE: Final = 0.2
CLOSED_SHARE: Final = 0.04
ANY_TIME_S: Final = (0.0, 0.4)
LIFE_S_MAX: Final = 1.5
TEAR: Final = "write.half"
_KILLED: Final = (-signal.SIGKILL, -signal.SIGALRM)


class SingleLog:
    """One campaign that runs."""

    def __init__(self, budget: Budget) -> None:
        wanted = budget.cycles(small=CYCLES_SMALL, full=CYCLES_FULL)
        self.summary = Summary("single_log", budget, wanted)
        self._rng = Random(f"single log {budget.seed}")
        self._names = list(POINTS)
        self._directory = Path()
        self._promises = Promises()
        self._preallocates = False

    def run(self) -> Summary:
        """Run all cycles."""
        while self.summary.is_wanting():
            self._directory = make_directory("single-log", in_memory=False)
            self._promises = Promises()
            self._preallocates = self._rng.random() < 0.3
            try:
                self._live_on()
            finally:
                shutil.rmtree(self._directory, ignore_errors=True)
            self.summary.counts["promised entries"] += self._promises.added_count
        return self.summary

    def _live_on(self) -> None:
        """Run the cycles of one directory; stop at a violation, which every later cycle would
        repeat.
        """
        before = len(self.summary.violations)
        for _ in range(LIVES_OF_A_DIRECTORY):
            if self.summary.is_wanting() and len(self.summary.violations) == before:
                self._do_cycle()

    def _do_cycle(self) -> None:
        cycle, counts = self.summary.cycles, self.summary.counts
        draw = self._rng.random()
        if draw < CLOSED_SHARE:
            end = self._live("", "--close", "--seconds", "0.1")
            counts["closed in order"] += 1
            self._expect(end.status == 0, f"closing ended with status {end.status}")
        elif draw < CLOSED_SHARE + ANY_TIME_SHARE:
            end = self._live("", life_s=self._rng.uniform(*ANY_TIME_S))
            counts["killed at any time"] += 1
            self._expect(end.was_late, f"ended by itself with status {end.status}")
        else:
            # Every place occurs equally often, in an order that the seed gives.
            if cycle % len(self._names) == 0:
                self._rng.shuffle(self._names)
            self._crash_at(self._names[cycle % len(self._names)])
        verdict = examine_copy(self._directory, self._promises)
        counts["entries served"] += verdict.served
        for text in verdict.shortcomings:
            self._expect(False, text)
        self.summary.cycles += 1

    def _crash_at(self, name: str) -> None:
        if name.startswith("truncate") and not self._preallocates:
            self._live(f"{TEAR}:{self._rng.randint(1, POINTS[TEAR])}")
        end = self._live(f"{name}:{self._rng.randint(1, POINTS[name])}")
        is_reached = not end.was_late
        self.summary.counts[f"killed at {name}" if is_reached else "killed before the place"] += 1
        self._expect(end.status in _KILLED, f"{name}: ended by itself with status {end.status}")

    def _live(self, crash: str, *words: str, life_s: float = LIFE_S_MAX) -> ChildEnd:
        """Run a writer on the directory until it dies; add its promises."""
        seed = str(self._rng.random())
        preallocates = self._preallocates

        def work() -> None:
            wrap(disk_calls, "preallocation_pays", always(answer=preallocates))
            storage_writer.main([str(self._directory), "--seed", seed, *words])

        end = Child(work, {crash_points.VARIABLE: crash}).wait(life_s)
        self._promises.take(end.output)
        return end

    def _expect(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self.summary.violations.append(f"cycle {self.summary.cycles}: {otherwise}")


def always(*, answer: bool) -> Callable[[Callable[..., object]], object]:
    def make(_: Callable[..., object]) -> object:
        def pays(_: Path) -> bool:
            return answer

        return pays

    return make


def run(budget: Budget) -> Summary:
    """Run the campaign."""
    return SingleLog(budget).run()
