"""Tests of replicas that leave and return: ISR, min.insync.replicas, unclean election."""

import asyncio
import shutil
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from quire.local_cluster import LocalCluster
from quire.operate.admin_api import get_json
from tests.integration.broker.fault_client import (
    ASK_EVERY_S,
    CALL_S,
    bootstrap,
    create_topic,
    on_thread,
    partition_of,
    produce,
    read,
    try_to_produce,
    wait_for_in_sync,
    wait_until,
)
from tests.until import WAIT_S

TOPIC = "guarded"
pytestmark = pytest.mark.long


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(bookies=3, broker=1) as running:
        yield running


def values(name: str, count: int = 20) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


async def test_replicas_leave_and_return(cluster: LocalCluster) -> None:
    servers = bootstrap(cluster)
    await on_thread(lambda: create_topic(servers, TOPIC, 1, 3, min_insync_replicas="2"))
    sent = values("three")
    await on_thread(produce, servers, TOPIC, sent)
    everyone = await on_thread(wait_for_in_sync, servers, TOPIC, 3)
    first, second, _ = cluster.bookies
    first.kill()
    await on_thread(produce, servers, TOPIC, values("two"))
    sent += values("two")
    two = await on_thread(wait_for_in_sync, servers, TOPIC, 2)
    assert set(two) < set(everyone)
    second.kill()
    (survivor,) = await on_thread(wait_for_in_sync, servers, TOPIC, 1)
    assert survivor in two
    failures = await on_thread(lambda: try_to_produce(servers, TOPIC, values("one", 3), once=True))
    assert {failure.code() for failure in failures} == {KafkaError.NOT_ENOUGH_REPLICAS}
    assert await on_thread(read, servers, TOPIC, len(sent)) == sent
    await asyncio.gather(first.restart(), second.restart())
    assert sorted(await on_thread(wait_for_in_sync, servers, TOPIC, 3)) == sorted(everyone)
    sent += values("three again")
    await on_thread(produce, servers, TOPIC, values("three again"))
    assert await on_thread(read, servers, TOPIC, len(sent)) == sent


async def test_waiting_producers_continue_when_replicas_return(cluster: LocalCluster) -> None:
    servers = bootstrap(cluster)
    await on_thread(lambda: create_topic(servers, TOPIC, 1, 3, min_insync_replicas="2"))
    await on_thread(produce, servers, TOPIC, values("first"))
    first, second, _ = cluster.bookies
    first.kill()
    second.kill()
    waiting = asyncio.ensure_future(on_thread(produce, servers, TOPIC, values("waiting")))
    await on_thread(wait_for_in_sync, servers, TOPIC, 1)
    await first.restart()
    await waiting
    sent = values("first") + values("waiting")
    assert await on_thread(read, servers, TOPIC, len(sent)) == sent
    await second.restart()


async def test_an_unclean_election_continues_without_lost_records(cluster: LocalCluster) -> None:
    servers = bootstrap(cluster)
    await on_thread(lambda: create_topic(servers, TOPIC, 1, 3, min_insync_replicas="1"))
    await on_thread(produce, servers, TOPIC, values("kept"))
    broker = cluster.brokers[0]
    old, *members = cluster.bookies
    old.kill()
    await on_thread(produce, servers, TOPIC, values("lost"))
    await on_thread(wait_for_in_sync, servers, TOPIC, 2)
    broker.kill()
    for bookie in members:
        bookie.kill()
        await bookie.stop()
        shutil.rmtree(bookie.data_dir)
    await old.restart()
    await broker.restart()
    admin = AdminClient({"bootstrap.servers": servers})
    place = TopicPartition(TOPIC, 0)

    def elect() -> KafkaError | None:
        answer = admin.elect_leaders(ElectionType.UNCLEAN, [place]).result(CALL_S)
        outcome: KafkaError | None = answer[place]
        return outcome

    await on_thread(wait_until, elect, lambda outcome: outcome is None)
    await on_thread(produce, servers, TOPIC, values("after"))
    left = values("kept") + values("after")
    assert await on_thread(read, servers, TOPIC, len(left)) == left
    assert (await on_thread(partition_of, servers, TOPIC)).leader == broker.id


async def test_an_unclean_election_restores_a_partition_without_its_only_ledger(
    cluster: LocalCluster,
) -> None:
    servers = bootstrap(cluster)
    await on_thread(lambda: create_topic(servers, TOPIC, 1, 1))
    await on_thread(produce, servers, TOPIC, values("lost"))
    broker = cluster.brokers[0]
    told = await get_json(f"{broker.admin_url}/api/v1/partitions")
    broker.kill()
    (holder,) = [bookie for bookie in cluster.bookies if bookie.id in str(told)]
    holder.kill()
    await holder.stop()
    shutil.rmtree(holder.data_dir)
    await broker.restart()

    def is_led() -> bool:
        return (partition_of(servers, TOPIC)).leader == broker.id

    await on_thread(wait_until, is_led, lambda led: not led)
    assert (await on_thread(partition_of, servers, TOPIC)).isrs == []
    partitions = f"{broker.admin_url}/api/v1/partitions"
    async with asyncio.timeout(WAIT_S):  # until it reports the missing members
        while holder.id not in str(await get_json(partitions)):  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(ASK_EVERY_S)
    admin = AdminClient({"bootstrap.servers": servers})
    place = TopicPartition(TOPIC, 0)
    answers = await on_thread(
        lambda: admin.elect_leaders(ElectionType.UNCLEAN, [place]).result(CALL_S)
    )
    assert answers[place] is None
    await on_thread(produce, servers, TOPIC, values("after"))
    assert await on_thread(read, servers, TOPIC, len(values("after"))) == values("after")
    await on_thread(wait_until, is_led, bool)
