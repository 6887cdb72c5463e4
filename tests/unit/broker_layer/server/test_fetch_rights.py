"""Fetch reads only what its client may read, also in sessions and while it waits."""

import asyncio
import uuid

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.server.server_limits import BrokerLimits
from tests.support.broker_layer.authorized_broker import rule
from tests.support.broker_layer.memory_acls import MemoryAcls
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import (
    Ask,
    ServedBroker,
    Wanted,
    batch,
    bytes_of,
    serving,
)
from tests.until import until

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, WRITE = "TOPIC:a READ", "TOPIC:a WRITE"
LONG_MS = 15_000


@pytest.fixture
def topics() -> MemoryTopics:
    return MemoryTopics(logs={(name, 0): MemoryLog() for name in ("a", "b")}, ids={b"i" * 16: "a"})


@pytest.fixture
def acls() -> MemoryAcls:
    return MemoryAcls()


async def _produce(broker: ServedBroker) -> None:
    client = await broker.connect()
    client.send_produce({"a": {0: batch(b"x")}})
    response = await client.produced()
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_topics_that_may_not_be_read_are_refused_alone(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    acls.change(rule(READ), rule(WRITE))
    async with serving(topics, acls=acls) as broker:
        await _produce(broker)
        client = await broker.connect()
        client.send_fetch(Ask(topics={"a": {0: Wanted()}, "b": {0: Wanted()}}))
        first, second = (await client.fetched()).responses
        assert first.partitions[0].error_code == ErrorCode.NONE
        assert bytes_of(first.partitions[0])
        assert second.partitions[0].error_code == REFUSED
        assert second.partitions[0].high_watermark == -1


async def test_a_session_does_not_keep_a_right(topics: MemoryTopics, acls: MemoryAcls) -> None:
    acls.change(rule(READ), rule(WRITE))
    async with serving(topics, acls=acls) as broker:
        client = await broker.connect()
        client.send_fetch(Ask(topics={"a": {0: Wanted()}}, session_epoch=0))
        session_id = (await client.fetched()).session_id
        assert session_id
        acls.change(rule(WRITE))
        await _produce(broker)
        client.send_fetch(Ask(session_id=session_id, session_epoch=1))
        (topic,) = (await client.fetched()).responses
        assert topic.partitions[0].error_code == REFUSED
        assert not bytes_of(topic.partitions[0])
        acls.change(rule(READ))
        client.send_fetch(Ask(session_id=session_id, session_epoch=2))
        (topic,) = (await client.fetched()).responses
        assert topic.partitions[0].error_code == ErrorCode.NONE
        assert bytes_of(topic.partitions[0])


async def test_a_fetch_that_waits_does_not_keep_a_right(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    acls.change(rule(READ), rule(WRITE))
    async with serving(topics, acls=acls) as broker:
        client = await broker.connect()
        client.send_fetch(Ask(topics={"a": {0: Wanted()}}, max_wait_ms=LONG_MS))
        counters = broker.services.counters
        await until(lambda: counters.fetches_waiting_now == 1)
        acls.change(rule(WRITE))
        await _produce(broker)
        async with asyncio.timeout(10):
            (topic,) = (await client.fetched()).responses
        assert topic.partitions[0].error_code == REFUSED
        assert not bytes_of(topic.partitions[0])


async def test_a_fetch_that_waits_for_room_does_not_keep_a_right(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    acls.change(rule(READ), rule(WRITE))
    async with serving(topics, acls=acls) as broker:
        await _produce(broker)
        account, share = broker.services.context.unsent, BrokerLimits().unsent_bytes_of_client_max
        for name in ("one that reads slowly", "another one"):
            assert account.take(name, share)
        client = await broker.connect()
        client.send_fetch(Ask(topics={"a": {0: Wanted()}}))
        await until(lambda: account.is_waited_for)
        acls.change(rule(WRITE))
        account.give_back("another one", share)
        (topic,) = (await client.fetched()).responses
        assert topic.partitions[0].error_code == REFUSED
        assert not bytes_of(topic.partitions[0])


async def test_a_topic_by_its_id(topics: MemoryTopics, acls: MemoryAcls) -> None:
    async with serving(topics, acls=acls) as broker:
        client = await broker.connect()
        known, unknown = uuid.UUID(bytes=b"i" * 16), uuid.UUID(bytes=b"j" * 16)
        client.send_fetch(Ask(topics={known: {0: Wanted()}, unknown: {0: Wanted()}}), 13)
        codes = [
            response.partitions[0].error_code for response in (await client.fetched(13)).responses
        ]
        assert codes == [REFUSED, ErrorCode.UNKNOWN_TOPIC_ID]
