"""Part of a plan that lets a cluster repair itself: processes of repair, and their delays.

Leaves what they do to `quire.repair`. Numbers come from a generator of their own, so that the rest
of a seed's plan is the same without them.
"""

import random
from dataclasses import dataclass
from typing import Final

SHARE: Final = 0.8
"""Share of the runs in which the cluster repairs itself; nothing else may depend on that."""
DELAYS_S: Final = (5, 20, 60)
KILLS: Final = 4.0
"""Approximate number of times that a process of repair is killed."""
DRAINS_SHARE: Final = 0.5
"""Share of these runs in which bookies are drained, and of those in which one is removed."""
DRAINS: Final = 5.0
"""Approximate number of times that a bookie is drained, or used again."""


@dataclass(frozen=True, slots=True)
class RepairWork:
    """Processes of repair, and the delays until a bookie counts as gone, in seconds."""

    processes: int
    lost_after_s: int
    urgent_after_s: int
    drains: bool
    """Whether bookies are drained, and used again, while clients work."""
    removes_bookie: bool
    """Whether one is drained and removed at the end."""


def draw_repair(seed: int, delays_s: tuple[int, ...] = DELAYS_S) -> RepairWork | None:
    """Draw the part of a plan; a bookie counts as lost after one of the delays."""
    rng = random.Random(f"repair {seed}")
    if rng.random() >= SHARE:
        return None
    lost_after_s = rng.choice(delays_s)
    return RepairWork(
        processes=rng.choice((1, 2, 2)),
        lost_after_s=lost_after_s,
        urgent_after_s=rng.choice((2, lost_after_s)),
        drains=rng.random() < DRAINS_SHARE,
        removes_bookie=rng.random() < DRAINS_SHARE,
    )


def with_faults(
    faults: dict[str, float], work: RepairWork | None, duration_s: float
) -> dict[str, float]:
    """Add the rates at which processes of repair are killed, and bookies are drained."""
    if work is None:
        return faults
    drains = {"drain_bookie": duration_s / DRAINS} if work.drains else {}
    return faults | {"kill_repair": duration_s / KILLS} | drains
