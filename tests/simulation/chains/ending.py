"""Check after healing: chains show all that was published, and go on; a ledger can be claimed once.

Source: protocol rules 1.3 and 10.1; Spark design, "Writing: exactly once".
"""

import asyncio
import random
from typing import Final

from ledger_client import LedgerClient, LedgerClosedError
from ledger_client.ledger_calls import NewLedger
from metadata.ids import LedgerId
from quire.operate.claims import create_unclaimed_by, writer_claimed_by
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import ClientNode
from tests.simulation.observing import described

END_S: Final = 600.0
APPLICATION: Final = "inspector"


async def check_chains(cluster: Cluster) -> None:
    """Look at every chain with a new client, publish in it, delete it and create it again."""
    work = cluster.plan.chains
    if work is None:
        return
    done = asyncio.Event()

    async def look(_: ClientNode, client: LedgerClient, rng: random.Random) -> None:
        try:
            for name in work.names:
                await _look_at(cluster, client, name)
            await _claim_twice(cluster, client, rng)
        except Exception as error:  # noqa: BLE001 - nothing disturbs it any more
            cluster.model.report("chains", f"after healing: {described(error)}")
        finally:
            done.set()

    node = ClientNode(cluster, "chain-inspector", look)
    node.is_on_purpose = True
    node.start()
    try:
        async with asyncio.timeout(END_S):
            await done.wait()
    except TimeoutError:
        cluster.model.report("chains", f"the inspection did not end within {END_S} s")
    await cluster.wait_until(lambda: not node.is_running, END_S)


async def _look_at(cluster: Cluster, client: LedgerClient, name: str) -> None:
    chain, answers = client.chain(name), cluster.chain_answers
    await chain.create(exist_ok=True)
    for batch in (0, 0, 1):
        began_s = answers.now_s()
        published = await chain.publish((), application=APPLICATION, batch=batch)
        answers.on_published(name, began_s, ((), APPLICATION, batch), published)
    began_s = answers.now_s()
    before = await chain.info()
    answers.on_info(before, began_s)
    links = [each async for each in chain.links(before.first_index, before.next_index)]
    began_s = answers.now_s()
    after = await chain.info()
    answers.on_info(after, began_s)
    answers.on_links(before, links, after)
    if after.creation_token != before.creation_token:
        cluster.model.report("chains", f"{before} became {after}")
    began_s = answers.now_s()
    await chain.delete()
    answers.on_deleted(name, began_s)
    began_s = answers.now_s()
    await chain.create()
    answers.on_created(name, began_s)
    again = await chain.publish((), application=APPLICATION, batch=0)
    if again.index or not again.is_new:
        cluster.model.report("chains", f"chain {name!r} was created again and begins at {again}")


async def _claim_twice(cluster: Cluster, client: LedgerClient, rng: random.Random) -> None:
    services = await client._session.services()
    password, quorum = cluster.plan.workload.password, rng.choice(cluster.plan.quorums)
    if quorum.ensemble > cluster.plan.bookie_count - len(cluster.damaged):
        return
    wanted = NewLedger.of(quorum, None, "crc32c", password, {})
    ledger_id = LedgerId((await create_unclaimed_by(services, wanted)).id)
    async with writer_claimed_by(services, ledger_id, password):
        pass
    try:
        async with writer_claimed_by(services, ledger_id, password):
            cluster.model.report("one writer", f"ledger {ledger_id} was claimed twice")
    except LedgerClosedError:
        return
