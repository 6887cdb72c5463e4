"""Clients that create, truncate, collect and delete chains, and create them again.

Leaves publishing to `publishing`.
"""

import random

from ledger_client import ChainExistsError, ChainNotFoundError, LedgerClient, LedgerError
from ledger_client.chains import Chain
from tests.simulation.chains.answers import ChainAnswers
from tests.simulation.chains.bursts import rest
from tests.simulation.nodes import ClientNode
from tests.simulation.observing import note_error


async def administer_chains(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Do one step after the other."""
    cluster = node.cluster
    work = cluster.plan.chains
    assert work is not None
    while not cluster.is_over:
        chain = client.chain(rng.choice(work.names))
        answers = cluster.chain_answers
        began_s = answers.now_s()
        try:
            draw = rng.random()
            if draw < work.delete_share:
                await _recreate(answers, chain)
            elif draw < work.delete_share + 0.2:
                await chain.collect(work.grace_s * rng.random(), on_deleted=answers.on_gone)
            elif draw < work.delete_share + 0.4:
                await _trim(answers, chain, rng)
            else:
                await _create(answers, chain)
        except ChainNotFoundError:
            answers.on_missing(chain.name, began_s)
        except LedgerError as error:
            note_error(cluster, "administer", error)
        await rest(cluster, rng)


async def _recreate(answers: ChainAnswers, chain: Chain) -> None:
    """Delete a chain, if it exists, and create it again at once, under requests for the old one."""
    began_s = answers.now_s()
    try:
        await chain.delete()
        answers.on_deleted(chain.name, began_s)
    except ChainNotFoundError:
        answers.on_missing(chain.name, began_s)
    await _create(answers, chain)


async def _create(answers: ChainAnswers, chain: Chain) -> None:
    began_s = answers.now_s()
    try:
        await chain.create()
    except ChainExistsError:
        answers.on_exists(chain.name, began_s)
    else:
        answers.on_created(chain.name, began_s)


async def _trim(answers: ChainAnswers, chain: Chain, rng: random.Random) -> None:
    began_s = answers.now_s()
    before = await chain.info()
    answers.on_info(before, began_s)
    wanted = rng.randint(before.first_index, before.next_index)
    began_s = answers.now_s()
    answers.on_info(await chain.trim(wanted), began_s)
