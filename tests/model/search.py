"""Explores all worlds of a scope, breadth first, and writes down the shortest way to a violation.

Leaves the steps to `steps`, and the judgement to `checks`. Of a world that was seen only the hash
is kept (64 bits), with that of the one before it: two worlds in millions that share a hash would
hide one of them, with a chance of less than one in a million. The way to a violation is found by
taking the steps again from the start.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from metadata.errors import InvalidTransitionError
from tests.model.checks import Checks
from tests.model.scopes import first_parts
from tests.model.steps import Label, Steps
from tests.model.words import Scope, ViolationError
from tests.model.world import Pools, World, show_world

WRONG = (AssertionError, InvalidTransitionError)
"""What the production code raises, or the model, when a rule is broken."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong, and the steps to it."""

    what: str
    transcript: tuple[str, ...]


@dataclass(slots=True)
class Exploration:
    """What was seen of a scope."""

    scope: Scope
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    resting: int = 0
    """States in which nothing more happens by itself."""
    is_complete: bool = True
    violation: Violation | None = None

    def line(self) -> str:
        """Write the figures."""
        how = "complete" if self.is_complete else "CUT"
        if self.violation is not None:
            how = f"VIOLATION: {self.violation.what}"
        return (
            f"{self.scope.name:<34} {self.states:>10,} {self.transitions:>11,} {self.depth:>5} "
            f"{self.resting:>8,} {self.seconds:>7.1f}  {how}"
        )


HEADING = (
    f"{'configuration':<34} {'states':>10} {'transitions':>11} {'depth':>5} "
    f"{'resting':>8} {'seconds':>7}"
)


class Search:
    """One exploration."""

    def __init__(self, scope: Scope, clock: Callable[[], float] = time.process_time) -> None:
        self._pools = Pools(scope, first_parts(scope))
        self._steps = Steps(self._pools)
        self._checks = Checks(self._pools, self._steps)
        self._clock = clock
        self._before: dict[int, int] = {}
        self._found = Exploration(scope)

    def run(self, *, seconds_max: float = float("inf")) -> Exploration:
        """Explore until all is seen, a rule is broken, or a limit is reached."""
        found, begun = self._found, self._clock()
        start = self._pools.start
        level = [start]
        self._before[hash(start)] = 0
        while level:
            following: list[World] = []
            for world in level:
                try:
                    self._expand(world, following)
                except WRONG as error:
                    found.violation = self._explain(world, error)
                    following = []
                    break
                if found.transitions & 1023 == 0 and self._clock() - begun > seconds_max:
                    found.is_complete, following = False, []
                    break
                if len(self._before) > found.scope.states_max:
                    found.is_complete, following = False, []
                    break
            found.depth += bool(following)
            level = following
        found.states, found.seconds = len(self._before), self._clock() - begun
        return found

    def _expand(self, world: World, following: list[World]) -> None:
        before, found = self._before, self._found
        origin = hash(world)
        is_resting = True
        for label, after in self._steps.after(world):
            found.transitions += 1
            is_resting = is_resting and label.is_fault
            key = hash(after)
            if key in before:
                continue
            self._checks.check(after)
            before[key] = origin
            following.append(after)
        if is_resting:
            found.resting += 1
            self._steps.label = Label("then nothing more happens")
            self._checks.check_rest(world)

    def _explain(self, world: World, error: BaseException) -> Violation:
        """Take the steps to a world again, for their names."""
        last = self._steps.label.text
        way = [hash(world)]
        while (earlier := self._before[way[-1]]) != 0:
            way.append(earlier)
        now, lines = self._pools.start, [show_world(self._pools.start, self._pools)]
        for key in reversed(way[:-1]):
            for label, after in self._steps.after(now):
                if hash(after) == key:
                    lines.append(f"{label.text}\n      {show_world(after, self._pools)}")
                    now = after
                    break
        lines.append(last)
        what = f"{type(error).__name__}: {error}" if str(error) else _where(error)
        if isinstance(error, ViolationError):
            what = str(error)
        return Violation(what, tuple(lines))


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {trace.tb_frame.f_code.co_qualname}"
