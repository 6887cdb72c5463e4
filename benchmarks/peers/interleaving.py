"""Order of turns: every system has one turn in each repetition, and none is always first.

Leaves running the turns to `benchmarks.peers.__main__`.

Invariants: pure; a system that is not available, or that failed, has no turn and does not change
the order of the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from benchmarks.measures import interleaved

Item = TypeVar("Item")


class System(StrEnum):
    """Unit that is started and stopped."""

    QUIRE = "quire"
    BOOKKEEPER = "bookkeeper"
    KAFKA = "kafka"


class Part(StrEnum):
    """Purpose for which a system is started."""

    LOAD = "load on three servers"
    PAUSE = "pause of one of five"


@dataclass(frozen=True, slots=True)
class Turn:
    """One fresh start of a system, for one part."""

    system: System
    part: Part


TURNS = (
    Turn(System.QUIRE, Part.LOAD),
    Turn(System.BOOKKEEPER, Part.LOAD),
    Turn(System.KAFKA, Part.LOAD),
    Turn(System.QUIRE, Part.PAUSE),
    Turn(System.BOOKKEEPER, Part.PAUSE),
)


def turns(available: Sequence[System], repetitions: int) -> Iterator[tuple[int, Turn]]:
    """Yield (repetition, turn): A B C, B C A, ..., without unavailable systems."""
    for repetition, turn in interleaved(TURNS, repetitions):
        if turn.system in available:
            yield repetition, turn


def rotated(items: Sequence[Item], by: int) -> list[Item]:
    """Return the items in order, rotated by `by`."""
    start = by % len(items)
    return [*items[start:], *items[:start]]
