"""Clients that read chains as they grow, and sometimes the ledgers that they link.

Leaves judging what they see to `answers`.
"""

import random

from ledger_client import ChainNotFoundError, LedgerClient, LedgerError
from ledger_client.chains import Chain, ChainInfo
from tests.simulation.chains.bursts import rest
from tests.simulation.nodes import ClientNode
from tests.simulation.observing import note_error
from tests.simulation.workloads import read_all

READ_SHARE = 0.2


async def follow_chains(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Read what is new in one chain after the other."""
    cluster = node.cluster
    work = cluster.plan.chains
    assert work is not None
    known: dict[str, ChainInfo] = {}
    while not cluster.is_over:
        chain = client.chain(rng.choice(work.names))
        began_s = cluster.chain_answers.now_s()
        try:
            known[chain.name] = await _read_new(node, client, rng, chain, known.get(chain.name))
            await chain.wait_changed(known[chain.name], timeout=work.pause_s * rng.random())
        except ChainNotFoundError:
            cluster.chain_answers.on_missing(chain.name, began_s)
        except LedgerError as error:
            note_error(cluster, "follow", error)
        await rest(cluster, rng)


async def _read_new(
    node: ClientNode,
    client: LedgerClient,
    rng: random.Random,
    chain: Chain,
    known: ChainInfo | None,
) -> ChainInfo:
    """Read the links behind those of a known head; all of them if the chain is another one."""
    cluster = node.cluster
    began_s = cluster.chain_answers.now_s()
    info = await chain.info()
    cluster.chain_answers.on_info(info, began_s)
    is_same = known is not None and known.creation_token == info.creation_token
    first = max(info.first_index, known.next_index) if known and is_same else info.first_index
    links = [each async for each in chain.links(first, info.next_index)]
    if [index for index, _ in links] != list(range(first, info.next_index)):
        cluster.model.report("chains", f"{info} shows {[index for index, _ in links]}")
    began_s = cluster.chain_answers.now_s()
    after = await chain.info()
    cluster.chain_answers.on_info(after, began_s)
    cluster.chain_answers.on_links(info, links, after)
    for _, link in links:
        for each in () if link is None else link.ledgers:
            if rng.random() < READ_SHARE:
                ledger = cluster.model.ledger(each.ledger_id)
                node.reads = ledger
                await read_all(cluster, client, ledger)
                node.reads = None
    return info
