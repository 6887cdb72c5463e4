"""Check after healing: every entry of a closed ledger is on all bookies of its write set.

Leaves ledgers that name bookies that are gone to `repairs`.

Excepted, exactly: a bookie that is not registered or was damaged, since it may be in limbo; and an
entry that no other registered, sound bookie of its write set ever acknowledged. A bookie that lists
an entry acknowledges it.

Source: protocol rules 4.6, 6.3 and 9.16; invariant "every ledger back at WQ".
"""

import asyncio
from typing import Final

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.reading.replica_reading import ReplicaReading
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.lost_entries import range_of
from tests.simulation.checkers.replicas import direct_pool
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel, fragment_of, write_set

NAME: Final = "full replication"
LOOK_EVERY_S: Final = 5.0
REPLICATED_S: Final = 900.0
"""The time between two passes of the auditor, the pauses of a bookie that did not answer and of a
job that failed, and the copies.
"""


async def check_replicated(cluster: Cluster) -> None:
    """Check that no closed ledger lacks a copy, unless it cannot be made."""
    if cluster.plan.repair is None or cluster.plan.beyond_budget:
        return
    deadline_s = cluster.loop.now_s + REPLICATED_S
    async with direct_pool(cluster) as pool:
        while short := await _short(cluster, pool):
            if cluster.loop.now_s >= deadline_s:
                text = f"{REPLICATED_S} s after the healing: " + "; ".join(short[:3])
                cluster.model.report(NAME, text)
                return
            await asyncio.sleep(LOOK_EVERY_S)


async def _short(cluster: Cluster, pool: BookiePool) -> list[str]:
    """Return what is missing, for each ledger and bookie."""
    sound = {
        str(each.bookie_id)
        for each in cluster.bookies
        if each.is_registered and cluster.is_sound(str(each.bookie_id))
    }
    found: list[str] = []
    for model in list(cluster.model.ledgers.values()):
        ledger = model.metadata
        if ledger is None or ledger.state is not LedgerState.CLOSED:
            continue
        for bookie_id, entries in _missing(cluster, model, ledger, sound).items():
            await _note_listed(cluster, pool, ledger, bookie_id)
            held = cluster.model.held.get((bookie_id, ledger.ledger_id), {})
            if lacking := [each for each in entries if each not in held]:
                found.append(f"{bookie_id} lacks {lacking} of ledger {ledger.ledger_id}")
    return found


async def _note_listed(
    cluster: Cluster, pool: BookiePool, ledger: LedgerMetadata, bookie_id: BookieId
) -> None:
    """Count the entries that a bookie lists as acknowledged: it may have stored an entry and lost
    the connection before its answer.
    """
    keys = LedgerKeys.of(ledger, cluster.plan.workload.password)
    held = cluster.model.held.setdefault((bookie_id, ledger.ledger_id), {})
    pool.attach(ledger.ledger_id, keys.master_key)
    try:
        async for first, last in ReplicaReading(pool, bookie_id, keys).stored_ranges():
            for entry_id in range(first, last + 1):
                held.setdefault(entry_id, cluster.loop.now_s)
    except BookieCallError:
        return  # unknown: asked again
    finally:
        pool.detach(ledger.ledger_id)


def _missing(
    cluster: Cluster, model: LedgerModel, ledger: LedgerMetadata, sound: set[str]
) -> dict[BookieId, list[int]]:
    assert ledger.last_entry_id is not None
    missing: dict[BookieId, list[int]] = {}
    for entry_id in range(ledger.last_entry_id + 1):
        if range_of(ledger.lost, EntryId(entry_id)) is not None:
            continue
        holders = cluster.model.copies(model, ledger, entry_id)
        if not any(each in sound for each in holders):
            continue
        for bookie_id in write_set(ledger, fragment_of(ledger, entry_id), entry_id):
            if bookie_id in sound and bookie_id not in holders:
                missing.setdefault(BookieId(bookie_id), []).append(entry_id)
    return missing
