"""Choice of the runs beyond the budget in which all disks become copies of an earlier time.

Leaves the fault to `restoring`, and the rest of a plan to `tests.simulation.plan`.
"""

import random
from typing import Final

KIND: Final = "restore_all"
THEME: Final = "damage"
SHARE: Final = 0.5
"""Share of the runs of this theme in which it happens."""
RESTORES: Final = 2.0
"""Mean number of times."""
REPLACED: Final = "wipe_disk"
"""Does not happen in such a run: an empty disk gets another id, and the former id never answers."""


def with_restores(
    every_s: dict[str, float], seed: int, theme: str, duration_s: float, *, is_beyond: bool
) -> dict[str, float]:
    """Return the rates of faults. A generator of its own draws whether disks are restored."""
    draw = random.Random(f"restoring {seed}").random()
    if not is_beyond or theme != THEME or draw >= SHARE:
        return every_s
    kept = {kind: rate_s for kind, rate_s in every_s.items() if kind != REPLACED}
    return {**kept, KIND: duration_s / RESTORES}
