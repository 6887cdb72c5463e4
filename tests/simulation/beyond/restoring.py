"""Fault beyond the budget: all disks are replaced at once by copies of an earlier time.

As after a rollback of all machines to a snapshot, no bookie has what was written since. The bookies
must notice it: every answer about what they may have lost must be UNKNOWN, and every result built
on these answers an error.

Leaves damage of single bookies to `tests.simulation.faults`.

Source: protocol rules 2.4 and 2.6.
"""

import asyncio
import random
from typing import Final

from tests.simulation.cluster import Cluster

WRITTEN_S: Final = 20.0
DOWN_S: Final = 3.0


class Restores:
    """Restores of one run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"restores {cluster.plan.seed}")
        self._count = 0

    async def restore_all(self) -> None:
        """Copy all disks, and put the copies in their places some time later."""
        cluster = self._cluster
        self._count += 1
        chosen = [each for each in cluster.bookies if each.platter.is_formatted]
        old = [each.platter.copied(f"snapshot {self._count}") for each in chosen]
        formats = [each.wipes for each in chosen]
        await asyncio.sleep(WRITTEN_S * self._rng.random())
        for bookie, platter, wipes in zip(chosen, old, formats, strict=True):
            if bookie.wipes != wipes:
                continue
            cluster.damaged[bookie.host] = None
            bookie.kill(power_off=True)
            platter.crash(self._rng)
            bookie.platter = platter
            bookie.start_after(DOWN_S * self._rng.random())
