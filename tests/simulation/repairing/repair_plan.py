"""Part of a plan that lets a cluster repair itself: processes of repair, and their delays.

Leaves what they do to `repair`. Numbers come from a generator of their own, so that the rest of a
seed's plan is the same without them.
"""

import random
from dataclasses import dataclass
from typing import Final

SHARE: Final = 0.3
"""Share of the runs in which the cluster repairs itself."""
KILLS: Final = 4.0
"""Approximate number of times that a process of repair is killed."""


@dataclass(frozen=True, slots=True)
class RepairWork:
    """Processes of repair, and the delays until a bookie counts as gone, in seconds."""

    processes: int
    lost_after_s: int
    urgent_after_s: int


def draw_repair(seed: int) -> RepairWork | None:
    """Draw the part of a plan."""
    rng = random.Random(f"repair {seed}")
    if rng.random() >= SHARE:
        return None
    lost_after_s = rng.choice((5, 20, 60))
    return RepairWork(rng.choice((1, 2, 2)), lost_after_s, rng.choice((2, lost_after_s)))


def with_kills(
    faults: dict[str, float], work: RepairWork | None, duration_s: float
) -> dict[str, float]:
    """Add the rate at which processes of repair are killed."""
    return faults if work is None else faults | {"kill_repair": duration_s / KILLS}
