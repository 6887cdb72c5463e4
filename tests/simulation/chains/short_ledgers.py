"""Ledgers of a few entries that the clients of chains and claims write.

Leaves the longer ones to `tests.simulation.writing`.

Invariants: the bytes of every entry are recorded before the client gets them, and every success in
the step in which the caller receives it.
"""

import random

from ledger_client import LedgerClient, LedgerInfo, LedgerWriter
from tests.simulation.nodes import ClientNode

ENTRIES_MAX = 4


def adopt(node: ClientNode, writer: LedgerWriter) -> None:
    """Record a new writer."""
    ledger = node.cluster.model.ledger(writer.id)
    ledger.writer = writer
    node.writes = ledger
    node.cluster.live_ledgers[writer.id] = node.host


async def append_few(node: ClientNode, writer: LedgerWriter, rng: random.Random) -> None:
    """Append some entries, one after the other. Raises LedgerError."""
    cluster, ledger = node.cluster, node.cluster.model.ledger(writer.id)
    for _ in range(rng.randint(0, ENTRIES_MAX)):
        expected = writer.last_pushed + 1
        payload = b"<%d/%d/%d>" % (writer.id, expected, rng.getrandbits(48))
        ledger.payloads[expected] = payload
        got = await writer.append(payload)
        cluster.note_confirmed(ledger, got, expected)


async def write_short(
    node: ClientNode, client: LedgerClient, rng: random.Random, custom: dict[str, str]
) -> LedgerInfo:
    """Create a ledger, append some entries and close it. Raises LedgerError."""
    cluster = node.cluster
    password = cluster.plan.workload.password
    quorum = rng.choice(cluster.plan.quorums)
    writer = await client.create_ledger(quorum, password=password, metadata=custom)
    adopt(node, writer)
    try:
        await append_few(node, writer, rng)
        await writer.aclose()
    finally:
        node.writes = None
        cluster.live_ledgers.pop(writer.id, None)
    return writer.info
