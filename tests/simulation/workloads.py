"""Clients that read, follow, recover and delete the ledgers of a run.

Leaves writing ledgers to `tests.simulation.writing`, and judging the results to the checkers.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing

from ledger_client import (
    EntryNotFoundError,
    LedgerClient,
    LedgerError,
    LedgerNotFoundError,
    LedgerReader,
)
from metadata.ledgers.chain import CHAIN_NAME
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel
from tests.simulation.nodes import ClientNode, Work
from tests.simulation.observing import note_error
from tests.simulation.writing import write_ledgers

TAIL_S_MAX = 30.0


def add_clients(cluster: Cluster) -> None:
    """Add the machines of all clients of the cluster."""
    work = cluster.plan.workload
    for kind, count, run in (
        ("writer", work.writers, write_ledgers),
        ("tailer", work.tailers, tail_ledgers),
        ("rereader", work.rereaders, reread_ledgers),
        ("recoverer", work.recoverers, recover_ledgers),
        ("deleter", work.deleters, delete_ledgers),
    ):
        for number in range(count):
            cluster.clients.append(ClientNode(cluster, f"{kind}-{number}", run))


async def tail_ledgers(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Follow one ledger after the other, preferring those that are being written."""
    cluster = node.cluster
    while not cluster.is_over:
        ledger = _choose(cluster, rng, newest=True)
        if ledger is not None:
            try:
                async with asyncio.timeout(TAIL_S_MAX * rng.random()):
                    await follow(cluster, client, ledger, first=0)
            except TimeoutError as error:
                if isinstance(error, LedgerError):
                    note_error(cluster, "tail", error)
            except LedgerError as error:
                note_error(cluster, "tail", error)
        await asyncio.sleep(cluster.plan.workload.pause_between_s * rng.random())


async def follow(
    cluster: Cluster,
    client: LedgerClient,
    ledger: LedgerModel,
    first: int,
    on_seen: Callable[[int], None] = lambda _: None,
) -> None:
    """Read a ledger to its end as it grows; call `on_seen` for each entry."""
    password = cluster.plan.workload.password
    async with client.open_ledger(ledger.ledger_id, password=password) as reader:
        handle = next(cluster.handle_numbers)
        expected = first
        async with aclosing(reader.tail(first)) as batches:
            async for batch in batches:
                for entry in batch:
                    if entry.id != expected:
                        text = f"ledger {ledger.ledger_id}: tail gave {entry.id} after {expected}"
                        cluster.model.report("reading", text)
                    expected = entry.id + 1
                    cluster.checkers.on_read(ledger, entry.id, entry.data)
                    on_seen(entry.id)
                if expected - 1 > reader.last_confirmed:
                    text = f"ledger {ledger.ledger_id}: tail gave {expected - 1}, beyond its LAC"
                    cluster.model.report("reading", text)
                _look_at_lac(cluster, ledger, handle, reader)
        has_end = ledger.closed_at is not None and ledger.closed_at < expected <= max(
            first, ledger.closed_at + 1, ledger.lost_to + 1
        )
        if not has_end:
            text = f"ledger {ledger.ledger_id}: tail ended before {expected}, not at its last entry"
            cluster.model.report("reading", text)


async def reread_ledgers(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Read entries of any ledger that may be read, repeatedly."""
    cluster = node.cluster
    while not cluster.is_over:
        ledger = _choose(cluster, rng, newest=False)
        if ledger is not None:
            node.reads = ledger
            try:
                await read_all(cluster, client, ledger)
            except LedgerError as error:
                note_error(cluster, "read", error)
            node.reads = None
        await asyncio.sleep(cluster.plan.workload.pause_between_s * rng.random())


async def read_all(cluster: Cluster, client: LedgerClient, ledger: LedgerModel) -> int:
    """Read a ledger up to its LAC; return the number of entries."""
    count, password = 0, cluster.plan.workload.password
    began_s = cluster.loop.now_s
    try:
        async with client.open_ledger(ledger.ledger_id, password=password) as reader:
            handle = next(cluster.handle_numbers)
            _look_at_lac(cluster, ledger, handle, reader)
            await reader.refresh_last_confirmed()
            _look_at_lac(cluster, ledger, handle, reader)
            async with aclosing(reader.read(0, reader.last_confirmed)) as batches:
                async for batch in batches:
                    for entry in batch:
                        cluster.checkers.on_read(ledger, entry.id, entry.data)
                        count += 1
            _look_at_lac(cluster, ledger, handle, reader)
    except EntryNotFoundError as error:
        cluster.checkers.on_not_found(ledger, str(error))
    except LedgerNotFoundError as error:
        # The client chose the ledger from the model, not from what its server knows (rule 1.6).
        if ledger.metadata is not None and not cluster.store_faults.may_have_missed_changes(
            began_s
        ):
            cluster.checkers.on_not_found(ledger, str(error))
    return count


def _look_at_lac(cluster: Cluster, ledger: LedgerModel, handle: int, reader: LedgerReader) -> None:
    cluster.checkers.on_reader_lac(ledger, handle, reader.last_confirmed)


async def recover_ledgers(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Recover ledgers: abandoned ones, and sometimes those of a living writer."""
    cluster = node.cluster
    work = cluster.plan.workload
    while not cluster.is_over:
        ledger = _choose(cluster, rng, newest=True)
        takes_over = rng.random() < work.takeover_share
        if ledger is not None and (takes_over or ledger.ledger_id not in cluster.live_ledgers):
            try:
                await recover(cluster, client, ledger)
            except LedgerError as error:
                note_error(cluster, "recover", error)
        await asyncio.sleep(work.pause_between_s * rng.random())


async def recover(
    cluster: Cluster,
    client: LedgerClient,
    ledger: LedgerModel,
    timeout_s: float | None = None,
    *,
    is_unclean: bool = False,
) -> None:
    """Recover one ledger, and compare the result with the stored metadata."""
    password = cluster.plan.workload.password
    ledger_id = ledger.ledger_id
    if is_unclean:
        info = await client.recover_ledger_unclean(
            ledger_id, password=password, timeout=timeout_s, even_if_writer_lives=True
        )
    else:
        info = await client.recover_ledger(ledger_id, password=password, timeout=timeout_s)
    if not info.is_closed or info.last_entry_id != ledger.closed_at:
        cluster.model.report(
            "closing",
            f"ledger {ledger.ledger_id}: a recovery returned {info.state} at {info.last_entry_id}, "
            f"and it was closed at {ledger.closed_at}",
        )


def recover_one(ledger_id: int, timeout_s: float) -> Work:
    """Return the work of a client that recovers one ledger."""

    async def work(node: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        ledger = node.cluster.model.ledger(ledger_id)
        try:
            async with asyncio.timeout(timeout_s):
                await recover(node.cluster, client, ledger)
        except LedgerError as error:
            note_error(node.cluster, "take over", error)
        except TimeoutError:
            return

    return work


async def delete_ledgers(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Delete a ledger at random times."""
    cluster = node.cluster
    while not cluster.is_over:
        await asyncio.sleep(cluster.plan.workload.pause_between_s * 4 * rng.random())
        ledger = _choose(cluster, rng, newest=False)
        # A ledger whose creator does not know of it yet, or whose slow creation was repeated, could
        # be
        # created again after its deletion.
        if ledger is None or ledger.writer is None or not _is_settled(cluster, ledger):
            continue
        if ledger.metadata is not None and CHAIN_NAME in ledger.metadata.custom:
            continue
        if ledger.is_closed or rng.random() < 0.1:
            try:
                await client.delete_ledger(ledger.ledger_id)
            except LedgerError as error:
                note_error(cluster, "delete", error)


def _is_settled(cluster: Cluster, ledger: LedgerModel) -> bool:
    """Return whether no request of a ledger's creation can still take effect."""
    age_s = cluster.loop.now_s - ledger.created_s
    stalled_until_s = cluster.store_faults.stalled_until_s
    return age_s > 2 * cluster.plan.store.slow_delay_s and cluster.loop.now_s > stalled_until_s + 1


def _choose(cluster: Cluster, rng: random.Random, *, newest: bool) -> LedgerModel | None:
    ids = cluster.ledger_ids()
    if not ids:
        return None
    if newest:
        ids = ids[-4:]
    return cluster.model.ledgers[rng.choice(ids)]
