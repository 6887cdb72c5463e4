"""Fault of a bookie's medium that its process meets while it runs: sectors that cannot be read.

Leaves the rate of the fault to `tests.simulation.plan`, and other damage to
`tests.simulation.faults`.

Invariant: only bytes that are known to be synced are lost, of a bookie within the budget.
Source: protocol rule 2.4; reliability design.
"""

import random
from collections.abc import Callable

from tests.simulation.damage import draw_known_synced
from tests.simulation.file_content import SECTOR_BYTES
from tests.simulation.nodes import BookieNode


class BadMedia:
    """Bad media of one run."""

    def __init__(
        self, rng: random.Random, victim: Callable[[random.Random], BookieNode | None]
    ) -> None:
        """`victim` returns a bookie that may be damaged."""
        self._rng = rng
        self._victim = victim

    async def lose_sector(self) -> None:
        """Let no read of one synced sector of the log succeed from now on."""
        bookie = self._victim(self._rng)
        place = None if bookie is None else draw_known_synced(bookie.platter, self._rng)
        if bookie is not None and place is not None:
            name, offset = place
            first = offset - offset % SECTOR_BYTES
            bookie.platter.names[name].unreadable.append((first, first + SECTOR_BYTES))
