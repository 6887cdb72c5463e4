"""Repair in a simulated cluster: its start, its deaths, and what must be true after the faults.

Leaves the processes to `repair_nodes`, and correctness of copies to the checkers of all ledgers.

Source: protocol rules 9.1, 9.2 and 9.5; invariant "every ledger back at WQ".
"""

import contextlib
import random
from typing import Final

from metadata.errors import StoreUnavailableError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.repair.settings_store import RepairSettingsStore
from metadata.store.memory import MemoryMetadataStore
from tests.simulation.cluster import Cluster
from tests.simulation.repairing.repair_nodes import RepairNode

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
    """Fault: a process of repair is killed, and started again."""

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
