"""Checks after healing that read bookies directly: every copy is right, and none is missing."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from bookie.wire.batch import BatchView
from bookie.wire.messages import ReadEntries, Status
from ledger_client import ClientConfig
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.client_services import DirectoryAddresses
from ledger_client.digest import LedgerKeys
from ledger_client.reading.replica_reading import ReplicaReading
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.lost_entries import range_of
from metadata.registry.directory import BookieDirectory
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel, fragment_of, write_set
from tests.simulation.store import NodeStore

NAME: Final = "replicas"
CALL_TIMEOUT_S: Final = 10.0
READ_BYTES: Final = 2**20
REGISTERED_S: Final = 60.0
"""More than the metadata calls that a stall before the healing may still delay."""


async def read_replicas(cluster: Cluster, excused: list[str]) -> int:
    """Compare every copy of every closed ledger; return the number of entries read.

    Bookies in `excused` were damaged: they may answer UNKNOWN, but nothing false. The other bookies
    must register first, since only registered bookies can be read.

    Source: protocol rules 2.4, 4.3, 9.4, 10.1; invariants "replicas with valid digests agree", "no
    such entry only from a bookie that never acked it".
    """
    asked = [bookie for bookie in cluster.bookies if bookie.host not in excused]
    await cluster.wait_until(lambda: all(node.is_registered for node in asked), REGISTERED_S)
    missing = [node.host for node in asked if not node.is_registered]
    if missing:
        text = f"{missing} did not register within {REGISTERED_S} s of the end of the work"
        cluster.model.report("liveness", text)
        return 0
    count = 0
    async with direct_pool(cluster) as pool:
        for ledger_id in cluster.ledger_ids():
            count += await _read_ledger(cluster, pool, cluster.model.ledgers[ledger_id], excused)
    return count


@asynccontextmanager
async def direct_pool(cluster: Cluster) -> AsyncIterator[BookiePool]:
    """Make connections to the registered bookies, for requests to one replica each."""
    rng = random.Random(f"replicas {cluster.plan.seed}")
    store = NodeStore(
        cluster.metadata, cluster.store_faults, session_timeout_s=cluster.plan.session_timeout_s
    )
    directory = BookieDirectory(store, rng)
    await directory.start()
    pool = BookiePool(DirectoryAddresses(directory, store), config=ClientConfig(), rng=rng)
    try:
        yield pool
    finally:
        await pool.aclose()
        await directory.aclose()
        await store.aclose()


async def _read_ledger(
    cluster: Cluster, pool: BookiePool, ledger: LedgerModel, excused: list[str]
) -> int:
    metadata = ledger.metadata
    if metadata is None or metadata.last_entry_id is None:
        return 0
    keys = LedgerKeys.of(metadata, cluster.plan.workload.password)
    pool.attach(metadata.ledger_id, keys.master_key)
    wanted: dict[str, list[int]] = {}
    for entry_id in range(metadata.last_entry_id + 1):
        fragment = metadata.fragment_of(EntryId(entry_id))
        for bookie_id in write_set(metadata, fragment, entry_id):
            wanted.setdefault(bookie_id, []).append(entry_id)
    up = {
        bookie.bookie_id: bookie.host for bookie in cluster.bookies if bookie.bookie_id is not None
    }
    count = 0
    for bookie_id, entry_ids in wanted.items():
        host = up.get(bookie_id)
        if host is not None:
            is_excused = host in excused
            count += await _read_bookie(
                cluster, pool, ledger, bookie_id, entry_ids, is_excused=is_excused
            )
    pool.detach(metadata.ledger_id)
    return count


async def _read_bookie(
    cluster: Cluster,
    pool: BookiePool,
    ledger: LedgerModel,
    bookie_id: str,
    entry_ids: list[int],
    *,
    is_excused: bool,
) -> int:
    held = cluster.model.held.get((bookie_id, ledger.ledger_id), {})
    found: dict[int, bytes] = {}
    at, last = entry_ids[0], entry_ids[-1]
    wanted = frozenset(entry_ids)
    assert ledger.metadata is not None
    while at <= last:
        request = ReadEntries(
            ledger.metadata.ledger_id, EntryId(at), EntryId(last), READ_BYTES, fence=False
        )
        try:
            answer = await pool.read_entries(BookieId(bookie_id), request, timeout_s=CALL_TIMEOUT_S)
        except BookieCallError as error:
            if not is_excused:
                text = f"{bookie_id} cannot be asked for ledger {ledger.ledger_id}: {error}"
                cluster.model.report("liveness", text)
            break
        for batch in answer.batches:
            _take(batch, found)
        following = int(answer.next_entry_id)
        if following > last or (answer.status is Status.OK and following > at):
            at = following
            continue
        if at in held and answer.status is not Status.OK and following == at:
            lies = answer.status in (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER, Status.DELETED)
            # A bookie that left the ledger and came back holds the entries of its new position.
            is_released = at not in wanted and ledger.may_be_released(bookie_id, held[at])
            if lies or not (is_excused or is_released):
                cluster.model.report(
                    NAME,
                    f"{bookie_id} acknowledged entry {at} of ledger {ledger.ledger_id} and now "
                    f"answers {answer.status.name}",
                )
                break
        at = max(at, following) + (following <= at or answer.status is not Status.OK)
    for entry_id, data in found.items():
        if ledger.payloads.get(entry_id) != data:
            text = f"{bookie_id} holds other bytes at entry {entry_id} of {ledger.ledger_id}"
            cluster.model.report(NAME, text)
    return len(found)


def _take(batch: BatchView, found: dict[int, bytes]) -> None:
    header = batch.header
    for index in range(header.count):
        found[header.first_entry_id + index] = batch.entry(index)


FULL_REPLICATION: Final = "full replication"
LOOK_EVERY_S: Final = 5.0
REPLICATED_S: Final = 900.0
"""The time between two passes of the auditor, the pauses of a bookie that did not answer and of a
job that failed, and the copies.
"""


async def check_replicated(cluster: Cluster) -> None:
    """Check that no closed ledger lacks a copy, unless it cannot be made.

    Every entry of a closed ledger is on all bookies of its write set.

    Excepted, exactly: a bookie that is not registered or was damaged, since it may be in limbo;
    and an entry that no other registered, sound bookie of its write set ever acknowledged. A
    bookie that lists an entry acknowledges it.

    Source: protocol rules 4.6, 6.3 and 9.16; invariant "every ledger back at WQ".
    """
    if cluster.plan.repair is None or cluster.plan.beyond_budget:
        return
    deadline_s = cluster.loop.now_s + REPLICATED_S
    async with direct_pool(cluster) as pool:
        while short := await _short(cluster, pool):
            if cluster.loop.now_s >= deadline_s:
                text = f"{REPLICATED_S} s after the healing: " + "; ".join(short[:3])
                cluster.model.report(FULL_REPLICATION, text)
                return
            await asyncio.sleep(LOOK_EVERY_S)


async def _short(cluster: Cluster, pool: BookiePool) -> list[str]:
    """Return what is missing, for each ledger and bookie."""
    sound = {
        str(bookie.bookie_id)
        for bookie in cluster.bookies
        if bookie.is_registered and cluster.is_sound(str(bookie.bookie_id))
    }
    found: list[str] = []
    for model in list(cluster.model.ledgers.values()):
        ledger = model.metadata
        if ledger is None or ledger.state is not LedgerState.CLOSED:
            continue
        for bookie_id, entries in _missing(cluster, model, ledger, sound).items():
            await _note_listed(cluster, pool, ledger, bookie_id)
            held = cluster.model.held.get((bookie_id, ledger.ledger_id), {})
            if lacking := [entry for entry in entries if entry not in held]:
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
        if not any(holder in sound for holder in holders):
            continue
        for bookie_id in write_set(ledger, fragment_of(ledger, entry_id), entry_id):
            if bookie_id in sound and bookie_id not in holders:
                missing.setdefault(BookieId(bookie_id), []).append(entry_id)
    return missing
