"""Fault that fences a ledger while a checkpoint of a bookie stores what it took before.

Such a fence is not among the changes of the checkpoint. If the checkpoint's mark lies above it, the
next process does not know it.

Leaves the rate of the fault to `tests.simulation.plan`, and other faults to
`tests.simulation.faults`.

Invariant: no index hangs longer than a moment.
Source: protocol rule 7.2; storage design, "Index".
"""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.simulation.administration import post
from tests.simulation.cluster import Cluster
from tests.simulation.deaths import FENCE_S, UP_S, UnsyncedDeaths, all_serve
from tests.simulation.nodes import BookieNode

BEGUN_S: Final = 0.05
"""Time within which a checkpoint that was asked for has begun."""
FENCED_S: Final = 2.0
"""Time within which a recovery has fenced."""
LOOK_S: Final = 0.001
DOWN_S: Final = 0.2
ALONE_S: Final = 6.0
"""Time in which only the bookie with the checkpoint answers the writer, whose connection is to be
made again."""


class HeldCheckpoints:
    """Held checkpoints of one run."""

    def __init__(self, cluster: Cluster, rng: random.Random, deaths: UnsyncedDeaths) -> None:
        self._cluster = cluster
        self._rng = rng
        self._deaths = deaths

    def heal(self) -> None:
        """Let every index continue."""
        for bookie in self._cluster.bookies:
            self._release(bookie)

    async def fence_within(self) -> None:
        """Let a writer stand still, so that a checkpoint has all of its ledger, and clean, so that
        the next checkpoint stores first what was measured. Fence the ledger during that; a write
        back would be a change that is stored later. End the process with the checkpoint, and let
        the writer continue: this bookie answers first.
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
        members = [each for each in cluster.bookies if each.bookie_id in named and each.is_serving]
        open_at = [each for each in members if not self._is_fenced(each, ledger_id)]
        if not open_at:
            return
        bookie = rng.choice(open_at)
        others = [each for each in members if each is not bookie]
        async with self._deaths.writer_away(ledger_id, host) as is_away:
            if not is_away:
                return
            await self._ask(bookie, "checkpoint")
            await self._ask(bookie, "clean")
            with cluster.network.faults.lasting(bookie.host):
                await self._fence(bookie, ledger_id)
                if bookie.is_running:
                    bookie.kill(power_off=False)
                    bookie.start_after(DOWN_S * rng.random())
                await cluster.wait_until(lambda: all_serve([bookie]), UP_S)
            for each in others:
                each.pause()
                cluster.network.faults.add(each.host, ALONE_S)
            alone = asyncio.create_task(self._resume_soon(others))
        await alone
        taker = self._deaths.taker(ledger_id)
        taker.start()
        await cluster.wait_until(lambda: not taker.is_running, FENCE_S)

    async def _fence(self, bookie: BookieNode, ledger_id: int) -> None:
        """Fence a ledger at a bookie whose checkpoint has begun; return once that has ended."""
        bookie.disk_faults.index_held = asyncio.Event()
        checkpoint = asyncio.create_task(self._ask(bookie, "checkpoint"))
        await asyncio.sleep(BEGUN_S)
        taker = self._deaths.taker(ledger_id)
        taker.start()
        is_fenced = partial(self._is_fenced, bookie, ledger_id)
        await self._cluster.wait_until(is_fenced, FENCED_S, LOOK_S)
        taker.kill(power_off=False)
        self._release(bookie)
        await checkpoint

    async def _resume_soon(self, bookies: Sequence[BookieNode]) -> None:
        await asyncio.sleep(ALONE_S)
        for each in bookies:
            each.resume()

    def _is_fenced(self, bookie: BookieNode, ledger_id: int) -> bool:
        return (str(bookie.bookie_id), ledger_id) in self._cluster.model.fenced_at_s

    def _release(self, bookie: BookieNode) -> None:
        held, bookie.disk_faults.index_held = bookie.disk_faults.index_held, None
        if held is not None:
            held.set()

    async def _ask(self, bookie: BookieNode, what: str) -> None:
        addresses = bookie.addresses
        if addresses is not None:
            await post(addresses.admin_host, addresses.admin_port, f"/api/v1/{what}")
