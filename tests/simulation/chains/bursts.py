"""Pauses of the clients of chains and claims, between which all of them work at the same time."""

import asyncio
import random

from tests.simulation.cluster import Cluster


async def rest(cluster: Cluster, rng: random.Random) -> None:
    """Wait until a client's next step."""
    work, now_s = cluster.plan.chains, cluster.loop.now_s
    assert work is not None
    await asyncio.sleep(work.next_step_s(now_s, rng) - now_s)
