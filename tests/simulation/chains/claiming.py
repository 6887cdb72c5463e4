"""Clients that create ledgers without a writer, and claim those that others created.

Source: `quire/operate/claims.py`.
"""

import random

from ledger_client import LedgerClient, LedgerError
from ledger_client.client_services import ClientServices
from ledger_client.ledger_calls import NewLedger
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerState
from quire.operate.claims import create_unclaimed_by, writer_claimed_by
from tests.simulation.chains.bursts import rest
from tests.simulation.chains.short_ledgers import adopt, append_few
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import ClientNode
from tests.simulation.observing import note_error

CREATE_SHARE = 0.3
NEWEST = 3
"""Clients choose among this many of the newest unclaimed ledgers, so that they often meet."""


async def claim_ledgers(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Create ledgers without a writer, and claim some."""
    cluster = node.cluster
    services = await client._session.services()
    while not cluster.is_over:
        found = _unclaimed(cluster)
        try:
            if not found or rng.random() < CREATE_SHARE:
                await create_unclaimed_by(services, _wanted(cluster, rng))
            else:
                await _claim(node, services, rng.choice(found[-NEWEST:]), rng)
        except LedgerError as error:
            note_error(cluster, "claim", error)
        node.writes = None
        await rest(cluster, rng)


def _unclaimed(cluster: Cluster) -> list[int]:
    ledgers = [each.metadata for each in cluster.model.ledgers.values()]
    return [
        int(each.ledger_id)
        for each in ledgers
        if each and each.state is LedgerState.OPEN and UNCLAIMED_NAME in each.custom
    ]


def _wanted(cluster: Cluster, rng: random.Random) -> NewLedger:
    password = cluster.plan.workload.password
    return NewLedger.of(rng.choice(cluster.plan.quorums), None, "crc32c", password, {})


async def _claim(
    node: ClientNode, services: ClientServices, ledger_id: int, rng: random.Random
) -> None:
    cluster = node.cluster
    password = cluster.plan.workload.password
    async with writer_claimed_by(services, LedgerId(ledger_id), password) as writer:
        cluster.chain_answers.on_claimed(ledger_id, f"{node.host} of start {node.starts}")
        adopt(node, writer)
        try:
            await append_few(node, writer, rng)
        finally:
            cluster.live_ledgers.pop(ledger_id, None)
