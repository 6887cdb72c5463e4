"""Tests of clients while brokers, as real processes of a local cluster, leave and return."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from quire.local.local_server import LocalBroker
from quire.local_cluster import LocalCluster
from tests.until import WAIT_S

TOPIC = "orders"
PARTITIONS = 4


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(bookies=3, broker=2) as running:
        yield running


def servers(cluster: LocalCluster) -> list[str]:
    return [broker.address for broker in cluster.brokers]


async def create_topic(cluster: LocalCluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers(cluster))
    await admin.start()
    try:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    finally:
        await admin.close()


async def produce(cluster: LocalCluster, name: str, count: int) -> list[bytes]:
    """Send values one after the other until each is acknowledged."""
    producer = AIOKafkaProducer(
        bootstrap_servers=servers(cluster), enable_idempotence=True, request_timeout_ms=20_000
    )
    await producer.start()
    values = [f"{name}-{number}".encode() for number in range(count)]
    try:
        await asyncio.gather(
            *[await producer.send(TOPIC, each, partition=number % PARTITIONS)
              for number, each in enumerate(values)]
        )  # fmt: skip
    finally:
        await producer.stop()
    return values


async def consume(cluster: LocalCluster, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=servers(cluster), auto_offset_reset="earliest", group_id="readers"
    )
    await consumer.start()
    found: list[bytes] = []
    try:
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=1_000)
                found += [record.value or b"" for batch in batches.values() for record in batch]
    finally:
        await consumer.stop()
    return found


async def get(broker: LocalBroker, path: str) -> bytes:
    def fetch() -> bytes:
        with urllib.request.urlopen(f"{broker.admin_url}{path}", timeout=WAIT_S) as answer:
            body: bytes = answer.read()
            return body

    return await asyncio.get_running_loop().run_in_executor(None, fetch)


@pytest.mark.long
async def test_clients_continue_while_brokers_leave_and_return(cluster: LocalCluster) -> None:
    await create_topic(cluster)
    first, second = cluster.brokers
    sent = await produce(cluster, "both", 200)
    first.kill()
    sent += await produce(cluster, "one killed", 200)
    address = first.address
    await first.restart()
    assert first.address == address
    await second.stop()
    sent += await produce(cluster, "the other stopped", 200)
    await second.start()
    second.pause()
    second.resume()
    sent += await produce(cluster, "both again", 200)
    assert sorted(await consume(cluster, len(sent))) == sorted(sent)


async def test_a_broker_reports_the_partitions_it_leads(cluster: LocalCluster) -> None:
    await create_topic(cluster)
    await produce(cluster, "some", 10)
    led: list[tuple[str, int]] = []
    for broker in cluster.brokers:
        assert json.loads(await get(broker, "/health")) == {"status": "live"}
        assert json.loads(await get(broker, "/ready")) == {"status": "ready"}
        rows = json.loads(await get(broker, "/partitions"))["partitions"]
        own = [row for row in rows if row["topic"] == TOPIC]
        assert all(len(row["replicas"]) == 3 and not row["missing"] for row in own)
        led += [(row["topic"], row["partition"]) for row in own]
        text = (await get(broker, "/metrics")).decode()
        assert 'quire_broker_requests_total{api="produce"}' in text
        assert "quire_broker_partitions_not_served 0.0" in text
    assert sorted(led) == [(TOPIC, partition) for partition in range(PARTITIONS)]


async def test_options_of_brokers_are_passed_on() -> None:
    options = {"default-partitions": "3", "auto_create_topics": "false"}
    async with LocalCluster(bookies=1, broker=0, broker_options=options) as cluster:
        added = await cluster.add_broker()
        assert cluster.brokers == [added]
        admin = AIOKafkaAdminClient(bootstrap_servers=servers(cluster))
        await admin.start()
        try:
            asked = ConfigResource(ConfigResourceType.BROKER, str(added.id))
            (answer,) = await admin.describe_configs([asked])
        finally:
            await admin.close()
    shown = {name: value for name, value, *_ in answer.resources[0][4]}  # type: ignore[attr-defined]  # made at run time
    assert shown["num.partitions"] == "3"
    assert shown["auto.create.topics.enable"] == "false"


@pytest.mark.long
async def test_records_are_there_after_a_restart_of_all_processes(tmp_path: Path) -> None:
    async with LocalCluster(bookies=3, broker=1, data_dir=tmp_path) as cluster:
        await create_topic(cluster)
        sent = await produce(cluster, "kept", 50)
        address = cluster.brokers[0].address
    async with LocalCluster(bookies=None, broker=1, data_dir=tmp_path) as cluster:
        assert cluster.brokers[0].address == address
        assert sorted(await consume(cluster, len(sent))) == sorted(sent)
