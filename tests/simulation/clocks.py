"""Clocks of simulated machines: each has a rate, an origin and a time of day of its own.

Leaves the scheduling to `tests.simulation.loop`, and true time to its `now_s`.

Invariants: a clock never goes backwards. A timer that is due by the clock of its process is due in
true time, and the other way round.
Source: assurance design, "Deterministic simulation".
"""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

RATE_ERROR_MAX: Final = 0.01
"""Greatest share by which a clock runs fast or slow: 20 times what time services slew."""
ORIGIN_S_MAX: Final = 1e5
SKEW_S_MAX: Final = 120.0
WRONG_SKEW_S_MAX: Final = 7_200.0
WRONG_SHARE: Final = 0.1
"""Share of machines whose time of day nothing sets."""
START_S: Final = 1_700_000_000.0
"""Time of day at the beginning of a run, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class HostClock:
    """Clock of one machine."""

    rate: float = 1.0
    """Seconds of this clock per true second."""
    origin_s: float = 0.0
    """Its monotonic time at the beginning of the run."""
    skew_s: float = 0.0
    """How far its time of day is ahead of the true one at the beginning of the run."""

    def monotonic_s(self, true_s: float) -> float:
        """Return the monotonic time of the machine."""
        return self.origin_s + true_s * self.rate

    def true_s(self, monotonic_s: float) -> float:
        """Return the earliest true time at which the machine's monotonic time is reached."""
        true_s = (monotonic_s - self.origin_s) / self.rate
        while self.monotonic_s(true_s) < monotonic_s:
            true_s = math.nextafter(true_s, math.inf)
        return true_s

    def wall_clock_ms(self, true_s: float) -> int:
        """Return the machine's time of day, in milliseconds since 1970."""
        return int((START_S + self.skew_s + true_s * self.rate) * 1000)


TRUE_CLOCK: Final = HostClock()

CLOCK: Final = ContextVar("CLOCK", default=TRUE_CLOCK)
"""Clock of the machine that a callback runs on."""


@contextmanager
def on_clock(clock: HostClock) -> Iterator[None]:
    """Read a process's state as the process itself does: by the clock of its machine."""
    token = CLOCK.set(clock)
    try:
        yield
    finally:
        CLOCK.reset(token)


def draw_clock(seed: int, host: str) -> HostClock:
    """Draw the clock of a machine."""
    rng = random.Random(f"clock {host} {seed}")
    skew_s_max = WRONG_SKEW_S_MAX if rng.random() < WRONG_SHARE else SKEW_S_MAX
    return HostClock(
        rate=1 + rng.uniform(-RATE_ERROR_MAX, RATE_ERROR_MAX),
        origin_s=rng.random() * ORIGIN_S_MAX,
        skew_s=rng.uniform(-skew_s_max, skew_s_max),
    )
