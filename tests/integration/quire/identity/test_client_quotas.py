"""Quotas on a cluster of real processes: set at one broker, applied by all to stock clients."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from confluent_kafka import Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic

from broker_layer.kafka.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from broker_layer.kafka.versions import ApiKey
from quire.local_cluster import LocalCluster
from tests.support.broker_layer.served_broker import Client

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio(loop_scope="module")
CALL_S = 30.0
TOPIC, BROKERS = "orders", 2
LIMITED, OTHER = "limited", "other"
RATE = 200_000.0
VALUE = b"x" * 50_000
ROUNDS_MAX = 60
"""Maximum number of rounds in which a producer sends a value to each partition."""
_Entry = AlterClientQuotasRequest.EntryData


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    data: Path = tmp_path_factory.mktemp("quotas")
    async with LocalCluster(1, data, broker=BROKERS) as running:
        admin = AdminClient({"bootstrap.servers": running.brokers[0].address})
        made = admin.create_topics([NewTopic(TOPIC, BROKERS, 1)])
        await asyncio.to_thread(made[TOPIC].result, CALL_S)
        yield running


async def connected(cluster: LocalCluster, broker: int) -> Client:
    host, _, port = cluster.brokers[broker].address.rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port), limit=2**20))


async def alter(cluster: LocalCluster, key: str, value: float | None) -> None:
    """Set or remove a quota of the client id LIMITED, at the first broker."""
    entry = _Entry(
        entity=[_Entry.EntityData(entity_type="client-id", entity_name=LIMITED)],
        ops=[_Entry.OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    client = await connected(cluster, 0)
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    answer = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, request, 1)
    assert isinstance(answer, AlterClientQuotasResponse)
    assert [entry_data.error_code for entry_data in answer.entries] == [0]
    client.writer.close()


async def described(cluster: LocalCluster, broker: int) -> list[tuple[str, float]]:
    client = await connected(cluster, broker)
    question = DescribeClientQuotasRequest(components=[], strict=False)
    answer = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, question, 1)
    assert isinstance(answer, DescribeClientQuotasResponse)
    client.writer.close()
    return [(value.key, value.value) for row in answer.entries or () for value in row.values]


def throttled_by(
    cluster: LocalCluster, client_id: str, wanted: int, rounds: int = ROUNDS_MAX
) -> set[str]:
    """Send values until so many brokers have paused the client; return their names."""
    found: set[str] = set()

    def note(event: ThrottleEvent) -> None:
        found.add(event.broker_name)

    producer = Producer(
        {
            "bootstrap.servers": cluster.brokers[0].address,
            "client.id": client_id,
            "throttle_cb": note,
            "linger.ms": 0,
        }
    )
    for _ in range(rounds):
        for partition in range(BROKERS):
            producer.produce(TOPIC, VALUE, partition=partition)
        assert producer.flush(CALL_S) == 0, "every value is acknowledged"
        producer.poll(0)
        if len(found) >= wanted:
            break
    return found


async def test_a_producer_with_a_quota_is_paused_by_every_broker_and_another_is_not(
    cluster: LocalCluster,
) -> None:
    assert await asyncio.to_thread(throttled_by, cluster, LIMITED, 1, 20) == set()
    await alter(cluster, "producer_byte_rate", RATE)
    for broker in range(BROKERS):
        assert await described(cluster, broker) == [("producer_byte_rate", RATE)]
    assert len(await asyncio.to_thread(throttled_by, cluster, LIMITED, BROKERS)) == BROKERS
    assert await asyncio.to_thread(throttled_by, cluster, OTHER, 1, 20) == set()
    await alter(cluster, "producer_byte_rate", None)
    for broker in range(BROKERS):
        assert await described(cluster, broker) == []
    assert await asyncio.to_thread(throttled_by, cluster, LIMITED, 1, 20) == set()


async def test_a_quota_of_time_pauses_a_client(cluster: LocalCluster) -> None:
    await alter(cluster, "request_percentage", 0.01)
    assert await described(cluster, 1) == [("request_percentage", 0.01)]
    assert len(await asyncio.to_thread(throttled_by, cluster, LIMITED, 1)) >= 1
    assert await asyncio.to_thread(throttled_by, cluster, OTHER, 1, 20) == set()
    await alter(cluster, "request_percentage", None)
