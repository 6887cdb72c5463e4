"""Choice of the runs beyond the budget in which all disks become copies of an earlier time.

Leaves the fault to `restoring`, and the rest of a plan to `tests.simulation.plan`.
"""

import random
from typing import Final

KIND: Final = "restore_all"
THEME: Final = "damage"
SHARE: Final = 0.5
"""Share of the runs of this theme in which it happens, about once."""


def rates(seed: int, theme: str, duration_s: float, *, beyond_budget: bool) -> dict[str, float]:
    """Return the rate of the fault, drawn by a generator of its own."""
    draw = random.Random(f"restoring {seed}").random()
    return {KIND: duration_s} if beyond_budget and theme == THEME and draw < SHARE else {}
