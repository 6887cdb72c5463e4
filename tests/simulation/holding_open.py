"""Client that holds hundreds of ledgers open, most of them idle, with short entries.

Leaves busy ledgers to `tests.simulation.writing`.

Invariants: the bytes of every entry are recorded before the client gets them. After healing, every
ledger whose writer has not failed gets back its members and confirms one more entry in time.

Source: protocol rules 4.6, 5.2, 5.6 and 11.3.
"""

import asyncio
import random
from typing import Final

from ledger_client import (
    BackpressureError,
    LedgerClient,
    LedgerError,
    LedgerWriter,
    NotEnoughInSyncReplicasError,
    QuorumTimeoutError,
)
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel
from tests.simulation.nodes import ClientNode
from tests.simulation.observing import note_error
from tests.simulation.writing import see_all_members_return

HOST: Final = "holder"
AT_ONCE: Final = 16
"""Number of ledgers that are created or closed at a time."""
RESTARTED_SHARE: Final = 0.1
"""Share of the ledgers that a restarted client creates."""
PROGRESS_S: Final = 120.0
"""More than all timeouts that one absent bookie may cause, and than a turn of every ledger."""
LOOK_EVERY_S: Final = 1.0
PASSING: Final = (BackpressureError, NotEnoughInSyncReplicasError, QuorumTimeoutError)
Held = tuple[LedgerModel, LedgerWriter]


def add_holder(cluster: Cluster) -> None:
    """Add the machine of the client, if the plan has one."""
    if cluster.plan.many is not None:
        cluster.clients.append(ClientNode(cluster, HOST, hold_ledgers))


async def hold_ledgers(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Create the ledgers, append to them now and then, and close them when the run is over."""
    cluster, many = node.cluster, node.cluster.plan.many
    assert many is not None
    count = many.count if node.starts == 1 else int(many.count * RESTARTED_SHARE)
    held: list[Held] = []
    gate = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_hold_one(node, client, rng, gate, held))
    if not cluster.damaged:
        in_sync = [each for each in held if each[1].info.quorum.is_in_sync]
        await see_all_members_return(cluster, in_sync)
        await _see_progress(cluster, held)
    async with asyncio.TaskGroup() as group:
        for ledger, writer in held:
            group.create_task(_close(cluster, gate, ledger, writer))


async def _hold_one(
    node: ClientNode,
    client: LedgerClient,
    rng: random.Random,
    gate: asyncio.Semaphore,
    held: list[Held],
) -> None:
    cluster, plan = node.cluster, node.cluster.plan
    assert plan.many is not None
    async with gate:
        writer = await _created(node, client, rng)
    if writer is None:
        return
    ledger = cluster.model.ledger(writer.id)
    ledger.writer = writer
    cluster.live_ledgers[writer.id] = node.host
    next_s = cluster.loop.now_s
    while not cluster.is_over:
        next_s += rng.expovariate(plan.many.appends / plan.duration_s)
        while not cluster.is_over and cluster.loop.now_s < next_s:  # noqa: ASYNC110
            await asyncio.sleep(min(LOOK_EVERY_S, next_s - cluster.loop.now_s))
        if not cluster.is_over and not await _append(cluster, ledger, writer):
            return
    held.append((ledger, writer))


async def _created(
    node: ClientNode, client: LedgerClient, rng: random.Random
) -> LedgerWriter | None:
    """Create one ledger; repeat until it succeeds or the run is over."""
    plan = node.cluster.plan
    while not node.cluster.is_over:
        try:
            quorum = rng.choice(plan.quorums)
            return await client.create_ledger(quorum, password=plan.workload.password)
        except LedgerError as error:
            note_error(node.cluster, "create", error)
            await asyncio.sleep(LOOK_EVERY_S)
    return None


async def _append(cluster: Cluster, ledger: LedgerModel, writer: LedgerWriter) -> bool:
    """Append one entry; return whether the writer can continue."""
    expected = writer.last_pushed + 1
    ledger.payloads[expected] = b"<%d/%d>" % (ledger.ledger_id, expected)
    try:
        got = await writer.append(ledger.payloads[expected])
    except LedgerError as error:
        note_error(cluster, "append", error)
        if isinstance(error, PASSING):
            return True
        cluster.live_ledgers.pop(ledger.ledger_id, None)
        return False
    cluster.note_confirmed(ledger, got, expected)
    return True


async def _see_progress(cluster: Cluster, held: list[Held]) -> None:
    """Append one more entry to each ledger at the same time, and wait until all have ended."""
    bookies = cluster.bookies
    if not all(bookie.is_serving for bookie in bookies):
        return
    appends = {
        ledger.ledger_id: asyncio.create_task(_append(cluster, ledger, writer))
        for ledger, writer in held
    }
    await cluster.wait_until(lambda: all(append.done() for append in appends.values()), PROGRESS_S)
    waiting = [ledger_id for ledger_id, task in appends.items() if not task.done()]
    for append in appends.values():
        append.cancel()
    await asyncio.gather(*appends.values(), return_exceptions=True)
    if waiting and not cluster.damaged:
        text = f"appends to {len(waiting)} of {len(held)} idle ledgers did not end: {waiting[:9]}"
        cluster.model.report("progress", f"{text}, {PROGRESS_S} s after healing")


async def _close(
    cluster: Cluster, gate: asyncio.Semaphore, ledger: LedgerModel, writer: LedgerWriter
) -> None:
    async with gate:
        try:
            await writer.aclose()
        except LedgerError as error:
            note_error(cluster, "close", error)
            return
    cluster.live_ledgers.pop(ledger.ledger_id, None)
    if ledger.metadata is not None and ledger.closed_at is None:
        text = f"ledger {ledger.ledger_id}: aclose() succeeded, and it is open"
        cluster.model.report("closing", text)
