"""Drains in a simulated cluster: as a fault while clients work, and the removal of one bookie at
the end.

Leaves moving the copies to the processes of repair, and their correctness to the checkers of all
ledgers.

Invariants checked here: a bookie that drains is empty within a stated time, if others have room for
its copies (drain); no ledger names it then, and without it every ledger is read to its end.

Source: protocol rules 9.5, 9.8 and 9.13.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.paths import lifecycle_path
from metadata.repair.lifecycle import UNCHANGED, Lifecycle, unpack_lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.store.memory import MemoryMetadataStore
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import BookieNode

NAME: Final = "drain"
DRAINED_S: Final = 900.0
"""Time in which a bookie is emptied: that of full replication, for the same reasons."""
STOPPED_S: Final = 60.0
AGAIN_S: Final = 1.0
"""Pause of an operator whose change was refused."""
USED_AGAIN: Final = (Lifecycle.DRAINING, Lifecycle.DRAINED)
"""States that an operator ends with `quire bookie undrain`."""


class Drains:
    """Fault: an operator drains a bookie, or uses one again. At most one drains at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"drains {cluster.plan.seed}")

    async def change(self) -> None:
        """Use the bookie that drains again, or drain one."""
        if await self.heal():
            return
        bookie_id = self._rng.choice(self._cluster.bookies).bookie_id
        if bookie_id is not None:
            await _change(self._cluster, bookie_id, Lifecycle.DRAINING)

    async def heal(self) -> bool:
        """Use the bookies that drain again; return whether there were any. What the metadata
        service refuses is tried again: other bookies need these as targets.
        """
        cluster = self._cluster
        drain = [each for each in _known(cluster) if _is_in(cluster, each, *USED_AGAIN)]
        for bookie_id in drain:
            await _change(cluster, bookie_id, Lifecycle.ACTIVE)
            while _is_in(cluster, bookie_id, *USED_AGAIN):
                await asyncio.sleep(AGAIN_S)
                await _change(cluster, bookie_id, Lifecycle.ACTIVE)
        return bool(drain)


async def check_removal(cluster: Cluster, read: Callable[[], Awaitable[None]]) -> None:
    """Drain a bookie, remove it and read without it, if the plan says so and others have room."""
    bookie = _chosen(cluster)
    if bookie is None or bookie.bookie_id is None:
        return
    for node in cluster.repairers:
        node.start()
    if await _is_removed(cluster, bookie, bookie.bookie_id):
        await read()
    for node in cluster.repairers:
        node.kill(power_off=False)


def _chosen(cluster: Cluster) -> BookieNode | None:
    work = cluster.plan.repair
    if work is None or not work.removes_bookie or cluster.plan.beyond_budget:
        return None
    chosen = random.Random(f"removal {cluster.plan.seed}").choice(cluster.bookies)
    sound = [each for each in cluster.bookies if each.host not in cluster.damaged]
    targets = sum(each.is_registered and each is not chosen for each in sound)
    may_be_removed = chosen in sound and not _keeps_given_up(cluster, chosen.bookie_id)
    return chosen if may_be_removed and targets >= _widest(cluster) else None


async def _is_removed(cluster: Cluster, bookie: BookieNode, bookie_id: str) -> bool:
    """Drain and remove a bookie; return whether that worked."""
    await _change(cluster, bookie_id, Lifecycle.DRAINING)
    is_drained = partial(_is_in, cluster, bookie_id, Lifecycle.DRAINED)
    if not await cluster.wait_until(is_drained, DRAINED_S):
        text = f"{bookie_id} is not empty after {DRAINED_S} s: {_naming(cluster, bookie_id)}"
        cluster.model.report(NAME, text)
        return False
    if left := _naming(cluster, bookie_id):
        cluster.model.report(NAME, f"{bookie_id} counts as drained: {left}")
        return False
    bookie.is_wanted = False
    await _change(cluster, bookie_id, Lifecycle.REMOVED)
    is_stopped = await cluster.wait_until(lambda: not bookie.is_running, STOPPED_S)
    if not is_stopped:
        cluster.model.report(NAME, f"{bookie_id} serves although it is removed")
    return is_stopped


def _known(cluster: Cluster) -> list[str]:
    return [each.bookie_id for each in cluster.bookies if each.bookie_id is not None]


def _is_in(cluster: Cluster, bookie_id: str, *states: Lifecycle) -> bool:
    path = lifecycle_path(BookieId(bookie_id))
    tree = cluster.metadata.tree
    record = unpack_lifecycle(path, tree.get(path).value) if tree.exists(path) else UNCHANGED
    return record.state in states


async def _change(cluster: Cluster, bookie_id: str, to: Lifecycle) -> None:
    """Set the state of a bookie as an operator's command does; a refusal changes nothing."""
    store = MemoryMetadataStore(cluster.metadata)
    states = LifecycleStore(store, random.Random(f"operator {cluster.plan.seed}"))
    try:
        with contextlib.suppress(MetadataError):
            await states.change(
                BookieId(bookie_id), to, "simulated", int(cluster.loop.now_s * 1000)
            )
            cluster.model.note("operator", f"{bookie_id} is {to}")
    finally:
        await store.aclose()


def _widest(cluster: Cluster) -> int:
    """Return the number of bookies that the widest fragment needs."""
    ledgers = [each.metadata for each in cluster.model.ledgers.values() if each.metadata]
    return max((len(f.ensemble) for each in ledgers for f in each.fragments), default=0)


def _keeps_given_up(cluster: Cluster, bookie_id: str | None) -> bool:
    """Return whether a bookie holds what an unclean recovery gave up, so that it stays."""
    ledgers = [each.metadata for each in cluster.model.ledgers.values() if each.metadata]
    return any(bookie_id in fragment.ensemble for each in ledgers for fragment in each.given_up)


def _naming(cluster: Cluster, bookie_id: str) -> str:
    found = []
    for model in cluster.model.ledgers.values():
        ledger = model.metadata
        if ledger is None or not any(bookie_id in f.ensemble for f in ledger.fragments):
            continue
        kind = "closed" if ledger.state is LedgerState.CLOSED else "open"
        found.append(f"{kind} ledger {ledger.ledger_id} names it")
    return "; ".join(found[:3])
