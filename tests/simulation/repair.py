"""Repair in a simulated cluster: its processes, their deaths, and drains of bookies."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from typing_extensions import override

from metadata.errors import MetadataError, StoreUnavailableError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.repair.lifecycle import LIFECYCLE_CODEC, UNCHANGED, Lifecycle
from metadata.repair.lifecycle_store import LIFECYCLE_KIND, LifecycleStore
from metadata.repair.settings_store import RepairSettingsStore
from metadata.store.memory import MemoryMetadataStore
from quire.repair.repair_process import RepairProcess, RepairRoles
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import BookieNode, Node
from tests.simulation.store import NodeStore


class RepairNode(Node):
    """Processes of repair in a simulated cluster.

    Source: protocol section 9.
    """

    def __init__(self, cluster: Cluster, number: int, roles: RepairRoles | None = None) -> None:
        super().__init__(cluster, f"repair-{number}")
        self._roles = roles or RepairRoles()
        self.process: RepairProcess | None = None

    @override
    async def _main(self) -> None:
        cluster, rng = self.cluster, self.draw()
        timeout_s = cluster.plan.session_timeout_s
        self.store = store = NodeStore(
            cluster.metadata, cluster.store_faults, session_timeout_s=timeout_s
        )
        self.process = process = RepairProcess(
            store,
            process_id=f"{self.host}-{self.starts}",
            rng=rng,
            secret_rng=rng,
            wall_clock_ms=self.wall_clock_ms,
            config=replace(cluster.plan.config, session_timeout_s=timeout_s),
            roles=self._roles,
        )
        try:
            await process.start()
            await asyncio.Event().wait()
        except (Exception, asyncio.CancelledError):
            await process.aclose()
            raise


NAME: Final = "repair"
REPAIRED_S: Final = 600.0
"""Time after which every closed ledger is on bookies that are up, once nothing is written."""
FEWER_S: Final = 240.0
"""Time in which at least one more ledger is repaired: 120 s, the longest delay until a bookie is
lost, and the longest pause before a job is tried again.
"""
DOWN_S: Final = 20.0


async def start_repair(cluster: Cluster) -> None:
    """Store the delays, and start the processes."""
    work = cluster.plan.repair
    if work is None:
        return
    store = MemoryMetadataStore(cluster.metadata)
    settings = RepairSettingsStore(store, random.Random(f"settings {cluster.plan.seed}"))
    is_stored = False
    while not is_stored:
        with contextlib.suppress(StoreUnavailableError):  # an answer may take longer than its limit
            await settings.change(
                lost_after_s=work.lost_after_s, urgent_after_s=work.urgent_after_s
            )
            is_stored = True
    await store.aclose()
    cluster.repairers += [RepairNode(cluster, number) for number in range(work.processes)]
    for node in cluster.repairers:
        node.start()


class RepairDeaths:
    """Repair in a simulated cluster: its start, its deaths, and what must be true after the
    faults.

    Source: protocol rules 9.1, 9.2 and 9.5; invariant "every ledger back at WQ".
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"repair deaths {cluster.plan.seed}")

    async def kill(self) -> None:
        """Kill one process, in the middle of what it does."""
        node = self._rng.choice(self._cluster.repairers)
        if node.is_running:
            node.kill(power_off=self._rng.random() < 0.5)
            after_s = DOWN_S * self._rng.random()
            context = self._cluster.context
            self._cluster.loop.call_later(after_s, node.start, context=context)


async def check_repaired(cluster: Cluster) -> None:
    """Check that no closed ledger names a bookie that is gone, unless nothing can be done."""
    if cluster.plan.repair is None or cluster.plan.beyond_budget:
        return
    until_s = cluster.loop.now_s + REPAIRED_S
    left = _unrepaired(cluster)
    while left:
        fewer = await _get_fewer(cluster, len(left))
        left = _unrepaired(cluster)
        if not fewer or cluster.loop.now_s > until_s:
            why = f"no fewer for {FEWER_S} s" if not fewer else f"not all within {REPAIRED_S} s"
            cluster.model.report(NAME, f"after the healing, {why}: " + "; ".join(left[:3]))
            return


async def _get_fewer(cluster: Cluster, count: int) -> bool:
    """Wait until fewer ledgers than this are left; return whether that was in time."""
    return await cluster.wait_until(lambda: len(_unrepaired(cluster)) < count, FEWER_S)


def _unrepaired(cluster: Cluster) -> list[str]:
    up = {b.bookie_id for b in cluster.bookies if b.is_registered}
    targets = sum(b.is_registered and b.host not in cluster.damaged for b in cluster.bookies)
    found = []
    for model in cluster.model.ledgers.values():
        ledger = model.metadata
        if ledger is None or ledger.state is not LedgerState.CLOSED:
            continue
        gone = [b for f in ledger.fragments for b in f.ensemble if b not in up]
        if gone and _can_be_repaired(cluster, ledger, up, targets):
            found.append(f"ledger {ledger.ledger_id} still names {sorted(set(gone))}")
    return found


def _can_be_repaired(
    cluster: Cluster, ledger: LedgerMetadata, up: set[str | None], targets: int
) -> bool:
    """Return whether each fragment has a target, and a sound source for each entry."""
    for fragment in ledger.fragments:
        quorum = ledger.quorum_of(fragment)
        sound = [BookieId(b) for b in fragment.ensemble if b in up and cluster.is_sound(b)]
        lacking = len(fragment.ensemble) - len(sound)
        if targets < len(fragment.ensemble) or lacking >= quorum.ack_quorum:
            return False
    return True


DRAIN: Final = "drain"
DRAINED_S: Final = 900.0
"""Time in which a bookie is emptied: that of full replication, for the same reasons."""
STOPPED_S: Final = 60.0
AGAIN_S: Final = 1.0
"""Pause of an operator whose change was refused."""
USED_AGAIN: Final = (Lifecycle.DRAINING, Lifecycle.DRAINED)
"""States that an operator ends with `quire bookie undrain`."""


class Drains:
    """Drains in a simulated cluster: as a fault while clients work, and the removal of one bookie
    at the end.

    Invariants checked here: a bookie that drains is empty within a stated time, if others have
    room for its copies (drain); no ledger names it then, and without it every ledger is read to
    its end.

    Source: protocol rules 9.5, 9.8 and 9.13.
    """

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
    sound = [bookie for bookie in cluster.bookies if bookie.host not in cluster.damaged]
    targets = sum(node.is_registered and node is not chosen for node in sound)
    may_be_removed = chosen in sound and not _keeps_given_up(cluster, chosen.bookie_id)
    return chosen if may_be_removed and targets >= _widest(cluster) else None


async def _is_removed(cluster: Cluster, bookie: BookieNode, bookie_id: str) -> bool:
    """Drain and remove a bookie; return whether that worked."""
    await _change(cluster, bookie_id, Lifecycle.DRAINING)
    is_drained = partial(_is_in, cluster, bookie_id, Lifecycle.DRAINED)
    if not await cluster.wait_until(is_drained, DRAINED_S):
        text = f"{bookie_id} is not empty after {DRAINED_S} s: {_naming(cluster, bookie_id)}"
        cluster.model.report(DRAIN, text)
        return False
    if left := _naming(cluster, bookie_id):
        cluster.model.report(DRAIN, f"{bookie_id} counts as drained: {left}")
        return False
    bookie.is_wanted = False
    await _change(cluster, bookie_id, Lifecycle.REMOVED)
    is_stopped = await cluster.wait_until(lambda: not bookie.is_running, STOPPED_S)
    if not is_stopped:
        cluster.model.report(DRAIN, f"{bookie_id} serves although it is removed")
    return is_stopped


def _known(cluster: Cluster) -> list[str]:
    return [bookie.bookie_id for bookie in cluster.bookies if bookie.bookie_id is not None]


def _is_in(cluster: Cluster, bookie_id: str, *states: Lifecycle) -> bool:
    path = LIFECYCLE_KIND.path(BookieId(bookie_id))
    tree = cluster.metadata.tree
    record = LIFECYCLE_CODEC.unpack(path, tree.get(path).value) if tree.exists(path) else UNCHANGED
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
    ledgers = [ledger.metadata for ledger in cluster.model.ledgers.values() if ledger.metadata]
    return max((len(f.ensemble) for ledger in ledgers for f in ledger.fragments), default=0)


def _keeps_given_up(cluster: Cluster, bookie_id: str | None) -> bool:
    """Return whether a bookie holds what an unclean recovery gave up, so that it stays."""
    ledgers = [ledger.metadata for ledger in cluster.model.ledgers.values() if ledger.metadata]
    return any(bookie_id in fragment.ensemble for ledger in ledgers for fragment in ledger.given_up)


def _naming(cluster: Cluster, bookie_id: str) -> str:
    found = []
    for model in cluster.model.ledgers.values():
        ledger = model.metadata
        if ledger is None or not any(bookie_id in f.ensemble for f in ledger.fragments):
            continue
        kind = "closed" if ledger.state is LedgerState.CLOSED else "open"
        found.append(f"{kind} ledger {ledger.ledger_id} names it")
    return "; ".join(found[:3])
