"""Breadth-first exploration of all worlds of a scope, with the shortest way to a violation.

Leaves the steps and the rules to `ledger_worlds` and `repairing.worlds`. If a scope is too large,
all worlds up to some depth are seen, and those along random ways to the end.

Only the hash (64 bits) of a seen world is kept, with that of its predecessor. Two worlds with the
same hash would hide one of them; among millions, the chance is less than one in a million. The way
to a violation is found by repeating the steps from the start. Where worlds are merged with their
mirror images, b and c may exchange names from one line to the next.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from metadata.errors import InvalidTransitionError
from tests.model.labels import Label
from tests.model.ledger_worlds import LedgerWorlds
from tests.model.repairing.words import RepairScope
from tests.model.repairing.worlds import RepairWorlds
from tests.model.words import Scope, ViolationError

WALKS_SEED: Final = 1
FAULT_ODDS: Final = 0.08
"""Chance that a step of a random way is a fault, where possible; most faults then come early."""
WRONG = (AssertionError, InvalidTransitionError)
"""Exceptions of the production code or of the model when a rule is broken."""


World = Any
"""A hashable value, of the type that the scope's worlds have."""
AnyScope = Scope | RepairScope


class Worlds(Protocol):
    """Worlds of one scope: where they start, what follows, and what must be true."""

    start: World

    @property
    def label(self) -> Label:
        """Name of the latest step."""

    def after(self, world: World, /) -> Iterator[tuple[Label, World]]:
        """Take every possible step of a world."""

    def check(self, world: World, /) -> None:
        """Raise ViolationError unless the rules are true in a world."""

    def check_rest(self, world: World, /) -> None:
        """Raise ViolationError unless a world may stay as it is without a fault."""

    def show(self, world: World, /) -> str:
        """Format a world as one line."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The broken rule, and the steps to it."""

    what: str
    transcript: tuple[str, ...]


@dataclass(slots=True)
class Exploration:
    """Results of the exploration of a scope."""

    scope: AnyScope
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    resting: int = 0
    """Number of states without steps left."""
    is_complete: bool = True
    whole_depth: int = 0
    """For a cut exploration: all states at most this many steps from the start were seen."""
    walks: int = 0
    """Number of random ways to the end, the longest with `walk_depth` steps."""
    walk_depth: int = 0
    violation: Violation | None = None

    def line(self) -> str:
        """Return the figures as one line."""
        how = "complete" if self.is_complete else "bounded"
        if self.whole_depth:
            how = f"bounded: {self.states:,} states, all of depth {self.whole_depth} reached"
        if self.walks:
            how += f"; {self.walks:,} random ways to the end, up to {self.walk_depth} steps"
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


class _WrongError(Exception):
    """A rule is broken in a world, or by a step from it."""

    def __init__(self, world: World, error: BaseException) -> None:
        super().__init__(error)
        self.world = world
        self.error = error


class Search:
    """One exploration."""

    def __init__(self, scope: AnyScope, clock: Callable[[], float] = time.process_time) -> None:
        self._worlds: Worlds = (
            RepairWorlds(scope) if isinstance(scope, RepairScope) else LedgerWorlds(scope)
        )
        self._clock = clock
        self._before: dict[int, int] = {}
        self._found = Exploration(scope)

    def run(self) -> Exploration:
        """Explore until all worlds are seen, a rule is broken, or the limits of the scope are
        reached.
        """
        found, begun = self._found, self._clock()
        start = self._worlds.start
        self._before[hash(start)] = 0
        try:
            self._explore(start)
            if not found.is_complete:
                found.whole_depth = found.depth
                self._draw_walks(start)
        except _WrongError as wrong:
            found.violation = self._explain(wrong.world, wrong.error)
        found.states, found.seconds = len(self._before), self._clock() - begun
        return found

    def _explore(self, start: World) -> None:
        """Explore level by level."""
        found, level = self._found, [start]
        while level:
            following: list[World] = []
            for world in level:
                try:
                    self._expand(world, following)
                except WRONG as error:
                    raise _WrongError(world, error) from error
                if len(self._before) > found.scope.states_max:
                    found.is_complete = False
                    return
            found.depth += bool(following)
            level = following

    def _draw_walks(self, start: World) -> None:
        """Draw ways to the end; check the worlds along them like any other."""
        found = self._found
        for number in range(found.scope.walks):
            rng = Random(WALKS_SEED + number)
            world, depth = start, 0
            while (following := self._drawn(world, rng)) is not None:
                world, depth = following, depth + 1
            found.walks += 1
            found.walk_depth = max(found.walk_depth, depth)

    def _drawn(self, world: World, rng: Random) -> World | None:
        """Take every step of a world; return one of the results, or None at the end."""
        before, origin = self._before, hash(world)
        faults: list[World] = []
        others: list[World] = []
        try:
            for label, after in self._worlds.after(world):
                self._found.transitions += 1
                (faults if label.is_fault else others).append(after)
                key = hash(after)
                if key not in before:
                    self._worlds.check(after)
                    before[key] = origin
            if not others:
                self._worlds.check_rest(world)
        except WRONG as error:
            raise _WrongError(world, error) from error
        if faults and (not others or rng.random() < FAULT_ODDS):
            return rng.choice(faults)
        return rng.choice(others) if others else None

    def _expand(self, world: World, following: list[World]) -> None:
        before, found = self._before, self._found
        origin = hash(world)
        is_resting = True
        for label, after in self._worlds.after(world):
            found.transitions += 1
            is_resting = is_resting and label.is_fault
            key = hash(after)
            if key in before:
                continue
            self._worlds.check(after)
            before[key] = origin
            following.append(after)
        if is_resting:
            found.resting += 1
            self._worlds.check_rest(world)

    def _explain(self, world: World, error: BaseException) -> Violation:
        """Repeat the steps to a world, to get their names."""
        last = self._worlds.label.text
        way = [hash(world)]
        while (earlier := self._before[way[-1]]) != 0:
            way.append(earlier)
        worlds = self._worlds
        now, lines = worlds.start, [worlds.show(worlds.start)]
        for key in reversed(way[:-1]):
            for label, after in worlds.after(now):
                if hash(after) == key:
                    lines.append(f"{label.text}\n      {worlds.show(after)}")
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
