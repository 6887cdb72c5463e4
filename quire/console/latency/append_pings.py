"""Asks all bookies for the latency of their appends, while the console runs.

Leaves the samples to `append_ring`, and measuring to the bookies: the answer to a ping has the p99
of the last five to ten seconds, as repair uses it.

Invariant: one look runs at a time; each bookie is asked once per look, for at most PING_S_MAX.

Source: docs/console.md, "Latency of appends".
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import Cluster
from metadata.ids import BookieId
from quire.console.latency.append_ring import BOOKIES_MAX, AppendRing, Sample

LOOK_EVERY_S: Final = 10.0
PING_S_MAX: Final = 2.0


class AppendPings:
    """Looks at the bookies that are up."""

    def __init__(self, cluster: Cluster, wall_clock_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._wall_clock_ms = wall_clock_ms
        self.ring = AppendRing()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        pool = self._cluster.open_pool()
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                await self._look(pool)
        finally:
            await pool.aclose()

    async def _look(self, pool: BookiePool) -> None:
        bookies = list(islice(self._cluster.directory.bookies, BOOKIES_MAX))
        answers = await asyncio.gather(*[_p99_us(pool, each) for each in bookies])
        at_ms = self._wall_clock_ms()
        for bookie_id, p99_us in zip(bookies, answers, strict=True):
            self.ring.note(bookie_id, Sample(at_ms, p99_us))


async def _p99_us(pool: BookiePool, bookie_id: BookieId) -> int | None:
    try:
        return (await pool.ping(bookie_id, timeout_s=PING_S_MAX)).append_p99_us
    except BookieCallError:
        return None
