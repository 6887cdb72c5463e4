"""Clients that write ledgers and publish them in chains, each batch exactly once.

Leaves creating, truncating and deleting chains to `administering`.

Two publishers share one application, as a job and its predecessor that does not know that it was
replaced: both write ledgers of their own for a batch, and one of them is published.

Source: Spark design, "Writing: exactly once".
"""

import random
from collections.abc import Sequence

from ledger_client import (
    ChainNotFoundError,
    LedgerClient,
    LedgerError,
    LedgerInfo,
    LedgersCollectedError,
    MetadataUnavailableError,
)
from ledger_client.chains import Chain
from tests.simulation.chains.answers import ChainAnswers
from tests.simulation.chains.bursts import rest
from tests.simulation.chains.short_ledgers import write_short
from tests.simulation.nodes import ClientNode, Work
from tests.simulation.observing import note_error

REPEATS_MAX = 5
LEDGERS = (0, 0, 1, 2)
"""Numbers of ledgers in a publication: one without any needs no bookies."""
TIMEOUTS_S = (None, 1.0, 10.0)


def publisher(number: int) -> Work:
    """Return the work of one publisher."""
    application = "" if number % 2 else "shared"

    async def work(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
        cluster = node.cluster
        assert cluster.plan.chains is not None
        while not cluster.is_over:
            chain = client.chain(rng.choice(cluster.plan.chains.names))
            try:
                await _publish_one(node, client, rng, chain, application)
            except LedgerError as error:
                note_error(cluster, "publish", error)
            await rest(cluster, rng)

    return work


async def _publish_one(
    node: ClientNode, client: LedgerClient, rng: random.Random, chain: Chain, application: str
) -> None:
    answers = node.cluster.chain_answers
    began_s = answers.now_s()
    try:
        before = await chain.info()
        answers.on_info(before, began_s)
        last = await chain.last_batch(application) if application else None
    except ChainNotFoundError:
        answers.on_missing(chain.name, began_s)
        return
    batch = None if not application else 0 if last is None else last + 1
    custom = chain.custom_metadata
    ledgers = [await write_short(node, client, rng, custom) for _ in range(rng.choice(LEDGERS))]
    for _ in range(REPEATS_MAX):
        try:
            await _send(answers, chain, ledgers, application, batch, rng)
        except MetadataUnavailableError as error:
            note_error(node.cluster, "publish", error)
            if batch is None:
                await _withdraw(answers, chain, ledgers, before.next_index)
                return
        else:
            return


async def _send(
    answers: ChainAnswers,
    chain: Chain,
    ledgers: Sequence[LedgerInfo],
    application: str,
    batch: int | None,
    rng: random.Random,
) -> None:
    began_s = answers.now_s()
    replaces = rng.random() < 0.05
    try:
        published = await chain.publish(
            ledgers,
            application=application,
            batch=batch,
            replaces=replaces,
            timeout=rng.choice(TIMEOUTS_S),
        )
    except ChainNotFoundError:
        answers.on_missing(chain.name, began_s)
    except LedgersCollectedError:
        answers.on_collected(chain.name, began_s, ledgers)
    else:
        answers.on_published(chain.name, began_s, (ledgers, application, batch), published)


async def _withdraw(
    answers: ChainAnswers, chain: Chain, ledgers: Sequence[LedgerInfo], since_index: int
) -> None:
    """Delete ledgers whose publication has an unknown outcome, if they are not linked."""
    began_s = answers.now_s()
    try:
        deleted = await chain.withdraw([each.id for each in ledgers], since_index=since_index)
    except ChainNotFoundError:
        answers.on_missing(chain.name, began_s)
    else:
        answers.on_withdrawn(chain.name, began_s, ledgers, deleted)
