"""Clients of chains and claims: each publishes, follows, claims or administers, in bursts.

The bytes of every entry are recorded before the client gets them, and every success in the step in
which the caller receives it.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ledger_client import (
    ChainExistsError,
    ChainNotFoundError,
    LedgerClient,
    LedgerClosedError,
    LedgerError,
    LedgerInfo,
    LedgersCollectedError,
    LedgerWriter,
    MetadataUnavailableError,
)
from ledger_client.chains import Chain, ChainInfo
from ledger_client.client_services import ClientServices
from ledger_client.ledger_calls import NewLedger
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerState
from quire.operate.appends import create_unclaimed_by, writer_claimed_by
from tests.simulation.chains.answers import ChainAnswers
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import ClientNode, Work
from tests.simulation.observing import described, note_error
from tests.simulation.workloads import read_all


async def rest(cluster: Cluster, rng: random.Random) -> None:
    """Wait until a client's next step.

    Pauses of the clients of chains and claims, between which all of them work at the same time.
    """
    work, now_s = cluster.plan.chains, cluster.loop.now_s
    assert work is not None
    await asyncio.sleep(work.next_step_s(now_s, rng) - now_s)


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


async def administer_chains(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Do one step after the other.

    Clients that create, truncate, collect and delete chains, and create them again.
    """
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


CREATE_SHARE = 0.3
NEWEST = 3
"""Clients choose among this many of the newest unclaimed ledgers, so that they often meet."""


async def claim_ledgers(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Create ledgers without a writer, and claim some.

    Clients that create ledgers without a writer, and claim those that others created.

    Source: `quire/operate/appends.py`.
    """
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
    ledgers = [ledger.metadata for ledger in cluster.model.ledgers.values()]
    return [
        int(ledger.ledger_id)
        for ledger in ledgers
        if ledger and ledger.state is LedgerState.OPEN and UNCLAIMED_NAME in ledger.custom
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


READ_SHARE = 0.2


async def follow_chains(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Read what is new in one chain after the other.

    Clients that read chains as they grow, and sometimes the ledgers that they link.
    """
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
        for linked_ledger in () if link is None else link.ledgers:
            if rng.random() < READ_SHARE:
                ledger = cluster.model.ledger(linked_ledger.ledger_id)
                node.reads = ledger
                await read_all(cluster, client, ledger)
                node.reads = None
    return info


REPEATS_MAX = 5
LEDGERS = (0, 0, 1, 2)
"""Numbers of ledgers in a publication: one without any needs no bookies."""
TIMEOUTS_S = (None, 1.0, 10.0)


def publisher(number: int) -> Work:
    """Return the work of one publisher.

    Clients that write ledgers and publish them in chains, each batch exactly once.

    Two publishers share one application, as a job and its predecessor that does not know that it
    was replaced: both write ledgers of their own for a batch, and one of them is published.

    Source: Spark design, "Writing: exactly once".
    """
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
        deleted = await chain.withdraw([ledger.id for ledger in ledgers], since_index=since_index)
    except ChainNotFoundError:
        answers.on_missing(chain.name, began_s)
    else:
        answers.on_withdrawn(chain.name, began_s, ledgers, deleted)


ADMINISTRATORS = 2


def add_chain_clients(cluster: Cluster) -> None:
    """Add them, if the plan has any.

    Machines of the clients of chains and claims.
    """
    work = cluster.plan.chains
    if work is None:
        return
    publishers = [(f"publisher-{number}", publisher(number)) for number in range(work.publishers)]
    others = [
        *[(f"administrator-{number}", administer_chains) for number in range(ADMINISTRATORS)],
        *[(f"follower-{number}", follow_chains) for number in range(work.followers)],
        *[(f"claimer-{number}", claim_ledgers) for number in range(work.claimers)],
    ]
    for name, run in (*publishers, *others):
        node = ClientNode(cluster, name, run)
        if work.has_true_time:
            node.clock = replace(node.clock, skew_s=0.0)
        cluster.clients.append(node)


END_S: Final = 600.0
APPLICATION: Final = "inspector"


async def check_chains(cluster: Cluster) -> None:
    """Look at every chain with a new client, publish in it, delete it and create it again.

    Chains show all that was published, and go on; a ledger can be claimed once.

    Source: protocol rules 1.3 and 10.1; Spark design, "Writing: exactly once".
    """
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
    links = [link async for link in chain.links(before.first_index, before.next_index)]
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
