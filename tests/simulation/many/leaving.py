"""Fault of a client with many ledgers: a bookie that is away for longer than its session lasts.

Leaves the rate to `many_plan`, and the return of the ledgers' members to the checkers.

Source: protocol rules 5.6 and 11.3.
"""

import random

from tests.simulation.cluster import Cluster

AWAY_S_MAX = 10.0
"""Maximum time between the end of the session and the return of the bookie."""


class Leaving:
    """Departures of one run, with random numbers of their own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"leaving {cluster.plan.seed}")

    async def leave(self) -> None:
        """End a bookie for longer than its session lasts."""
        bookie = self._rng.choice(self._cluster.bookies)
        if bookie.is_serving:
            bookie.kill(power_off=False)
            timeout_s = self._cluster.plan.session_timeout_s
            bookie.start_after(timeout_s + AWAY_S_MAX * self._rng.random())
