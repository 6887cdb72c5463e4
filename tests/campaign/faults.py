"""Hurts the processes of a cluster at random, and heals them: kills, pauses, polite restarts.

Leaves the processes to `quire.local_cluster`, and the consequences to the other processes of a
campaign.

Invariants: never more than `down_max` bookies are hurt at a time, so there are always spares; what
was hurt is healed when `settle` returns; the seed decides the plan (not how long processes take).
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from quire.errors import LocalClusterError
from quire.local_bookie import LocalBookie
from quire.local_cluster import LocalCluster

PAUSE_S: Final = (0.1, 8.0)
DOWN_S_MAX: Final = 4.0
GAP_S: Final = (0.2, 2.5)
ZOOKEEPER_PAUSE_S: Final = (0.1, 3.0)
TWO_AT_ONCE: Final = 0.25
ZOOKEEPER_SHARE: Final = 0.05
WRITER_SHARE: Final = 0.04


class FaultInjector:
    """Does one campaign's faults."""

    def __init__(
        self,
        cluster: LocalCluster,
        rng: Random,
        down_max: int,
        replace_writer: Callable[[], Awaitable[None]],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self._cluster = cluster
        self._rng = rng
        self._down_max = down_max
        self._replace_writer = replace_writer
        self._hurt: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Hurt until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            self._hurt = {name: task for name, task in self._hurt.items() if not task.done()}
            self._look_for_dead()
            draw = self._rng.random()
            if draw < ZOOKEEPER_SHARE:
                await self._pause_zookeeper()
            elif draw < ZOOKEEPER_SHARE + WRITER_SHARE:
                self.counts["writer killed"] += 1
                await self._replace_writer()
            else:
                self._hurt_bookies()

    async def settle(self) -> None:
        """Wait until everything is healed."""
        await asyncio.gather(*self._hurt.values())
        self._hurt = {}
        self._look_for_dead()

    def _hurt_bookies(self) -> None:
        count = 2 if self._rng.random() < TWO_AT_ONCE else 1
        count = min(count, self._down_max - len(self._hurt))
        well = [bookie for bookie in self._cluster.bookies if bookie.name not in self._hurt]
        for bookie in self._rng.sample(well, max(0, count)):
            kind = self._rng.choice((self._kill, self._pause, self._restart))
            self.counts[kind.__name__.strip("_") + "ed" if kind != self._pause else "paused"] += 1
            self._hurt[bookie.name] = asyncio.create_task(self._guarded(kind, bookie))
        if count > 1:
            self.counts["two at once"] += 1

    async def _guarded(
        self, hurt: Callable[[LocalBookie], Awaitable[None]], bookie: LocalBookie
    ) -> None:
        try:
            await hurt(bookie)
        except LocalClusterError as error:
            self.complaints.append(str(error))

    async def _kill(self, bookie: LocalBookie) -> None:
        down_s = self._rng.uniform(0, DOWN_S_MAX)
        bookie.kill()
        await asyncio.sleep(down_s)
        await bookie.restart()

    async def _restart(self, bookie: LocalBookie) -> None:
        down_s = self._rng.uniform(0, DOWN_S_MAX)
        await bookie.stop()
        await asyncio.sleep(down_s)
        await bookie.start()

    async def _pause(self, bookie: LocalBookie) -> None:
        low, high = map(math.log, PAUSE_S)
        paused_s = math.exp(self._rng.uniform(low, high))
        bookie.pause()
        await asyncio.sleep(paused_s)
        bookie.resume()

    async def _pause_zookeeper(self) -> None:
        self.counts["zookeeper paused"] += 1
        paused_s = self._rng.uniform(*ZOOKEEPER_PAUSE_S)
        self._cluster.zookeeper.pause()
        await asyncio.sleep(paused_s)
        self._cluster.zookeeper.resume()

    def _look_for_dead(self) -> None:
        """Note each bookie that ended without having been hurt."""
        for bookie in self._cluster.bookies:
            is_hurt = bookie.name in self._hurt
            if not is_hurt and not bookie.is_running and bookie.name not in str(self.complaints):
                self.complaints.append(f"{bookie.name} ended by itself:\n{bookie.log_tail()}")
