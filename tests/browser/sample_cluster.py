"""A cluster whose pages all have something to show: real processes, and hostile names.

Leaves pages to the tests.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from ledger_client import ClientConfig, LedgerClient, Quorum
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from quire.operate.admin_api import get_json
from tests.browser.hostile_names import ATTRIBUTE, HOSTILE, IMAGE, REVERSED, SHAPE
from tests.integration.quire.command import pause_repair, run_quire
from tests.until import WAIT_S

BOOKIES: Final = 4
PASSWORD: Final = b"a password of 24 bytes."
TOPIC: Final = "orders"
TOPICS: Final = (TOPIC, "payments", "shipments.eu-west")
GROUP: Final = "billing"
CHAIN: Final = "nightly"
TRANSACTION: Final = f"ship-{SHAPE}"
TRANSACTION_MS: Final = 900_000
"""Longer than the tests: it ends by itself after that."""
RECORDS: Final = 60
POLL_S: Final = 0.1
DEGRADED: Final = ClientConfig(run_degraded=True, fixed_membership=True)


@dataclass(frozen=True, slots=True)
class SampleCluster:
    """A running cluster, with the ids of its ledgers."""

    cluster: LocalCluster
    changed: int
    """Ledger with an ensemble change."""
    short: int
    """Ledger with entries that one bookie lacks."""
    striped: int
    hostile: int
    """Ledger with hostile custom metadata and payloads."""
    locked: int
    """Ledger with a password."""

    @property
    def brokers(self) -> str:
        """Address of its broker."""
        return self.cluster.brokers[0].address


@asynccontextmanager
async def sample_cluster(hostile: Sequence[str] = HOSTILE) -> AsyncIterator[SampleCluster]:
    """Start a cluster and fill it, also with hostile names; stop it at the end."""
    async with LocalCluster(bookies=BOOKIES, broker=2) as cluster:
        uri = cluster.metadata_uri
        await asyncio.to_thread(pause_repair, uri)  # damage stays as it is
        async with (
            LedgerClient(uri) as client,
            LedgerClient(uri, config=DEGRADED) as degraded,
        ):
            filled = SampleCluster(
                cluster,
                striped=await _striped(client),
                hostile=await _hostile(client, hostile),
                locked=await _locked(client),
                # These kill bookies, which a client does not use again for a while.
                changed=await _changed(cluster, client),
                short=await _short(cluster, degraded),
            )
            await _publish(client, (filled.striped, filled.hostile))
        await asyncio.to_thread(_fill_topics, filled.brokers, hostile)
        producer = await asyncio.to_thread(_open_transaction, filled.brokers)
        try:
            yield filled
        finally:
            await asyncio.to_thread(producer.close, timeout=1)


async def _changed(cluster: LocalCluster, client: LedgerClient) -> int:
    """Write a ledger whose first bookie is killed, and starts again afterwards."""
    async with client.create_ledger(Quorum(3, 3, 2), metadata={"job": "nightly-export"}) as ledger:
        await ledger.append_many(
            [b'{"order": %d, "state": "paid"}' % number for number in range(400)]
        )
        killed = await _complete_bookie(cluster, client, ledger.id, 399)
        killed.kill()
        await ledger.append_many(
            [b'{"order": %d, "state": "sent"}' % number for number in range(300)]
        )
        await killed.restart()
        await ledger.append_many(
            [b'{"order": %d, "state": "kept"}' % number for number in range(200)]
        )
    return ledger.id


async def _short(cluster: LocalCluster, client: LedgerClient) -> int:
    """Write a ledger whose last entries one bookie misses."""
    async with client.create_ledger(Quorum(3, 3, 2), metadata={"job": "audit"}) as ledger:
        await ledger.append_many([b"line %d" % number for number in range(900)])
        killed = await _complete_bookie(cluster, client, ledger.id, 899)
        killed.kill()
        await ledger.append_many([b"line %d" % number for number in range(900, 1_000)])
    await killed.restart()
    return ledger.id


async def _complete_bookie(
    cluster: LocalCluster, client: LedgerClient, ledger_id: int, last: int
) -> LocalBookie:
    """Return the first bookie of an open ledger once it has stored an entry."""
    ensemble = (await client.ledger_info(ledger_id)).fragments[-1].ensemble
    bookie = next(
        local_bookie for local_bookie in cluster.bookies if local_bookie.id == ensemble[0]
    )
    wanted = {"ledger_id": ledger_id, "status": "ok", "ranges": [[0, last]], "complete": True}
    async with asyncio.timeout(WAIT_S):
        url = f"{bookie.admin_url}/api/v1/ledgers/{ledger_id}/entries"
        while await get_json(url) != wanted:  # noqa: ASYNC110 - each try is a request
            await asyncio.sleep(POLL_S)
    return bookie


async def _striped(client: LedgerClient) -> int:
    async with client.create_ledger(Quorum(4, 2, 2)) as ledger:
        await ledger.append_many([b"striped %d" % number for number in range(40)])
    return ledger.id


async def _hostile(client: LedgerClient, texts: Sequence[str]) -> int:
    names = {text: text for text in texts}
    async with client.create_ledger(Quorum(3, 2, 2), metadata=names) as ledger:
        await ledger.append_many([text.encode() for text in (*texts, REVERSED)])
    return ledger.id


async def _locked(client: LedgerClient) -> int:
    async with client.create_ledger(Quorum(3, 2, 2), password=PASSWORD) as ledger:
        await ledger.append(b"classified")
    return ledger.id


async def _publish(client: LedgerClient, ledgers: Sequence[int]) -> None:
    """Publish ledgers in a chain, each in a link of its own."""
    chain = client.chain(CHAIN)
    await chain.create()
    for batch, ledger_id in enumerate(ledgers):
        await chain.publish([await client.ledger_info(ledger_id)], application=IMAGE, batch=batch)


def _fill_topics(address: str, hostile: Sequence[str]) -> None:
    for topic in TOPICS:
        counts = ("--partitions", "3", "--replication", "2")
        done = run_quire("topic", "create", topic, *counts, "--bootstrap", address)
        assert done.returncode == 0, done.stderr.decode()
    producer = KafkaProducer(bootstrap_servers=address, client_id=IMAGE, acks="all")
    for number in range(RECORDS):
        value = b'{"order": %d, "total": "%d.50 EUR", "country": "SE"}' % (number, 7 * number)
        producer.send(TOPIC, value, key=b"order-%d" % number, partition=number % 3)
    for text in hostile:
        data = text.encode()
        producer.send(TOPIC, data, key=data, headers=[(text, data)], partition=2)
    producer.flush()
    producer.close()
    for group in (GROUP, *hostile):
        _commit(address, group)


def _commit(address: str, group: str) -> None:
    """Commit an offset of a group, and leave it."""
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=group, client_id=ATTRIBUTE)
    places = [TopicPartition(TOPIC, number) for number in range(3)]
    consumer.assign(places)
    consumer.commit({place: OffsetAndMetadata(4 + place.partition, "", -1) for place in places})
    consumer.close(autocommit=False)


def _open_transaction(address: str) -> KafkaProducer:
    """Return a producer whose transaction is open."""
    producer = KafkaProducer(
        bootstrap_servers=address,
        transactional_id=TRANSACTION,
        transaction_timeout_ms=TRANSACTION_MS,
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPICS[1], b"not yet", partition=0).get(timeout=WAIT_S)
    return producer
