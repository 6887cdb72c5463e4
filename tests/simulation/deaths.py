"""Faults that end bookies between a write and its sync, and cut their power after the next start.

Such a process leaves its writes in the page cache only. Its next start can read them, but must not
rely on them. Only the power cut shows whether it did.

Leaves the rates of these faults to `tests.simulation.plan`, and other faults to
`tests.simulation.faults`.

Invariants: no disk hangs longer than a moment; nothing that was synced is lost.
Source: protocol rule 2.5.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Final

from tests.simulation.cluster import Cluster
from tests.simulation.nodes import BookieNode, ClientNode
from tests.simulation.workloads import recover_one

HANG_S: Final = (0.05, 0.3, 1.0)
BEFORE_CUT_S: Final = (1.0, 4.0, 12.0)
DOWN_S: Final = 0.2
UP_S: Final = 30.0
"""More than the session time of a bookie whose power was cut."""
FENCE_S: Final = 15.0
FAILED_SYNC_SHARE: Final = 0.4


class UnsyncedDeaths:
    """Faults of one run that leave unsynced bytes to the next process."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._taker_count = 0

    def heal(self) -> None:
        """Let every disk continue."""
        for bookie in self._cluster.bookies:
            faults = bookie.disk_faults
            if faults.paused is not None:
                faults.paused.set()
            faults.paused = None

    async def die_unsynced(self) -> None:
        """Let some bookies write without a sync, or with a failed one; cut the power some time
        later.
        """
        rng, running = self._rng, self._running(self._cluster.bookies)
        share = rng.choice((0.3, 1.0, 1.0))
        chosen = [each for each in running if rng.random() < share]
        if rng.random() < FAILED_SYNC_SHARE:
            for bookie in chosen:
                bookie.disk_faults.failing_syncs = 1  # its process ends, and is restarted
        else:
            await self._die_writing(chosen, rng.choice(HANG_S) * rng.random())
        await asyncio.sleep(rng.choice(BEFORE_CUT_S) * rng.random())
        self._cut_power([each for each in chosen if rng.random() < share])

    async def fence_unsynced(self) -> None:
        """Kill the bookies of an open ledger between the write and the sync of a fence.

        Then fence the ledger again, cut the power, and let the writer continue. The writer receives
        no news during this.
        """
        cluster, rng = self._cluster, self._rng
        live = list(cluster.live_ledgers.items())
        if not live:
            return
        ledger_id, host = rng.choice(live)
        metadata = cluster.model.ledger(ledger_id).metadata
        if metadata is None:
            return
        named = metadata.last_fragment.ensemble
        members = self._running([each for each in cluster.bookies if each.bookie_id in named])
        async with self.writer_away(ledger_id, host) as is_away:
            if not is_away:
                return
            first = self.taker(ledger_id)
            first.start()
            await self._die_writing(members, 0.1 + rng.choice(HANG_S))
            first.kill(power_off=False)
            await cluster.wait_until(lambda: all_serve(members), UP_S)
            second = self.taker(ledger_id)
            second.start()
            await cluster.wait_until(lambda: not second.is_running, FENCE_S)
            self._cut_power(members)
            await cluster.wait_until(lambda: all_serve(members), UP_S)

    @contextlib.asynccontextmanager
    async def writer_away(self, ledger_id: int, host: str) -> AsyncIterator[bool]:
        """Let the writer of an open ledger stand still and receive no news, until some time later.
        Yields False if it has no session.
        """
        writer = next(each for each in self._cluster.clients if each.host == host)
        store = writer.store
        if store is None:
            yield False
            return
        store.suspend()
        writer.pause()
        yield True
        writer.resume()
        await asyncio.sleep(FENCE_S * self._rng.random())
        store.resume()

    def taker(self, ledger_id: int) -> ClientNode:
        """Return a client that recovers a ledger once; it is not started."""
        self._taker_count += 1
        name = f"second-taker-{self._taker_count}"
        taker = ClientNode(self._cluster, name, recover_one(ledger_id, FENCE_S))
        taker.is_on_purpose = True
        return taker

    async def _die_writing(self, chosen: Sequence[BookieNode], hang_s: float) -> None:
        """Let disks hang before each sync, and then end the processes."""
        hung = asyncio.Event()
        for bookie in chosen:
            bookie.disk_faults.paused = hung
            self._cluster.network.faults.add(bookie.host, hang_s)
        await asyncio.sleep(hang_s)
        for bookie in chosen:
            bookie.disk_faults.paused = None
            bookie.kill(power_off=False)
            bookie.start_after(DOWN_S * self._rng.random())
        hung.set()  # processes that other faults started in the meantime

    def _cut_power(self, chosen: Sequence[BookieNode]) -> None:
        for bookie in self._running(chosen):
            bookie.kill(power_off=True)
            bookie.start_after(DOWN_S * self._rng.random())

    def _running(self, bookies: Sequence[BookieNode]) -> list[BookieNode]:
        return [each for each in bookies if each.is_running]


def all_serve(bookies: Sequence[BookieNode]) -> bool:
    """Return whether all of some bookies serve."""
    return all(each.is_serving for each in bookies)
