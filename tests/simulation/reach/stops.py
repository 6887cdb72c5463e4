"""Fault: a process stops between two awaits of one of its tasks.

Leaves the rate to `reach_plan`. A pause from outside stops a process only where the simulation's
own tasks run.

Source: protocol rules 4.7 and 9.2.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from tests.simulation.cluster import Cluster

STEPS_MAX: Final = 40
"""Maximum number of callbacks that the process runs before it stops."""


class Stops:
    """Stops of one run, with random numbers of their own."""

    def __init__(self, cluster: Cluster, lengths_s: Sequence[float]) -> None:
        self._cluster = cluster
        self._lengths_s = lengths_s
        self._rng = random.Random(f"stops {cluster.plan.seed}")

    async def stop_within(self) -> None:
        """Stop a process after some more callbacks, for some time."""
        rng = self._rng
        node = rng.choice((*self._cluster.bookies, *self._cluster.clients))
        node.pause_within(rng.randint(1, STEPS_MAX))
        await asyncio.sleep(rng.choice(self._lengths_s) * rng.random())
        node.resume()
