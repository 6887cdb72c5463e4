"""Due times of the appends of an open-loop load, fixed before the run.

Leaves sending them to `quire.bench.compare.open_load`.

Invariants: pure; numbers ascend from 0 with the times; a stall changes no due time, so it counts
for every append that it held up (no coordinated omission).
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Burst:
    """Many appends that are due at one moment."""

    at_s: float
    count: int


def due_times(rate: float, seconds: float, bursts: Sequence[Burst] = ()) -> list[float]:
    """Return when each append is due, in seconds from the start, ascending."""
    assert rate > 0
    steady = [number / rate for number in range(round(rate * seconds))]
    extra = [burst.at_s for burst in bursts for _ in range(burst.count) if burst.at_s < seconds]
    return sorted([*steady, *extra])
