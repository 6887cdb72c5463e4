"""Quotas on connections: clients over their quota are paused, and others are not."""

import asyncio

import pytest

from broker_layer.kafka.messages import ListOffsetsRequest, ListOffsetsResponse
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.server_limits import BrokerLimits
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey, entity_of
from quire.server.connection import Pause
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import (
    Ask,
    ServedBroker,
    Wanted,
    batch,
    serving,
)
from tests.until import until

ANONYMOUS = entity_of([("user", "ANONYMOUS")])
OTHERS = entity_of([("user", "alice")])
LOOPBACK = entity_of([("ip", "127.0.0.1")])
PRODUCED, FETCHED, WORKED, _, CONNECTED, _, _ = QuotaKey
VALUE = b"x" * 110_000


def topics_of() -> MemoryTopics:
    return MemoryTopics({("orders", 0): MemoryLog()})


def is_throttled(broker: ServedBroker) -> bool:
    return any(connection._pause & Pause.THROTTLED for connection in broker.server.connections)


def throttles(broker: ServedBroker) -> dict[str, int]:
    return broker.services.counters.throttles_by_quota


async def test_a_producer_over_its_quota_is_paused() -> None:
    quotas = QuotaSet()
    quotas.put(ANONYMOUS, {PRODUCED: 100_000.0})
    async with serving(topics_of(), quotas=quotas) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"small")}})
        assert (await client.produced()).throttle_time_ms == 0
        assert not is_throttled(broker)
        client.send_produce({"orders": {0: batch(VALUE)}})
        answer = await client.produced()
        assert 0 < answer.throttle_time_ms < 1_000
        assert answer.responses[0].partition_responses[0].base_offset == 1
        assert is_throttled(broker)
        assert throttles(broker) == {"producer_byte_rate": 1}
        await until(lambda: not is_throttled(broker))


async def test_the_quota_of_another_user_pauses_no_client() -> None:
    quotas = QuotaSet()
    quotas.put(OTHERS, {PRODUCED: 1.0, FETCHED: 1.0})
    async with serving(topics_of(), quotas=quotas) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(VALUE)}})
        assert (await client.produced()).throttle_time_ms == 0
        client.send_fetch(Ask({"orders": {0: Wanted(0)}}))
        assert (await client.fetched()).throttle_time_ms == 0
        assert not is_throttled(broker)


async def test_a_producer_without_answers_is_paused_too() -> None:
    quotas = QuotaSet()
    quotas.put(ANONYMOUS, {PRODUCED: 100_000.0})
    async with serving(topics_of(), quotas=quotas) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(VALUE)}}, acks=0)
        await until(lambda: is_throttled(broker))


async def test_the_longest_pause_of_requests_that_come_together_holds() -> None:
    quotas, topics = QuotaSet(), topics_of()
    quotas.put(ANONYMOUS, {PRODUCED: 100_000.0})
    log = topics.logs["orders", 0]
    log.commits_itself = False
    async with serving(topics, quotas=quotas) as broker:
        client = await broker.connect()
        for _ in range(5):
            client.send_produce({"orders": {0: batch(VALUE)}})
        await until(lambda: len(log.pending) == 5)
        before_s = asyncio.get_running_loop().time()
        log.commit()
        pauses = [(await client.produced()).throttle_time_ms for _ in range(5)]
        assert pauses == sorted(pauses)
        (connection,) = broker.server.connections
        ending = connection._throttle_end
        assert ending is not None
        assert ending.when() >= before_s + pauses[-1] / 1000


async def test_a_consumer_over_its_quota_is_paused() -> None:
    quotas = QuotaSet()
    quotas.put(ANONYMOUS, {FETCHED: 100_000.0})
    async with serving(topics_of(), quotas=quotas) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(VALUE)}})
        assert (await client.produced()).throttle_time_ms == 0
        client.send_fetch(Ask({"orders": {0: Wanted(0)}}))
        answer = await client.fetched()
        assert answer.throttle_time_ms > 0
        assert is_throttled(broker)
        assert throttles(broker) == {"consumer_byte_rate": 1}


@pytest.mark.real_time
@pytest.mark.parametrize("api", ["produce", "fetch", "offsets"])
async def test_a_client_over_its_share_of_time_is_paused(api: str) -> None:
    quotas = QuotaSet()
    quotas.put(ANONYMOUS, {WORKED: 0.000001})
    async with serving(topics_of(), quotas=quotas) as broker:
        client = await broker.connect()
        if api == "produce":
            client.send_produce({"orders": {0: batch(b"one")}})
            throttle_ms = (await client.produced()).throttle_time_ms
        elif api == "fetch":
            client.send_fetch(Ask({"orders": {0: Wanted(0)}}))
            throttle_ms = (await client.fetched()).throttle_time_ms
        else:
            answer = await client.ask(ApiKey.LIST_OFFSETS, ListOffsetsRequest(topics=[]), 5)
            assert isinstance(answer, ListOffsetsResponse)
            throttle_ms = answer.throttle_time_ms
        assert throttle_ms > 0
        assert is_throttled(broker)
        assert throttles(broker) == {"request_percentage": 1}


@pytest.mark.real_time
async def test_without_quotas_no_request_is_timed() -> None:
    quotas = QuotaSet()
    async with serving(topics_of(), quotas=quotas) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(VALUE)}})
        assert (await client.produced()).throttle_time_ms == 0
        quotas.put(ANONYMOUS, {WORKED: 0.000001})
        client.send_produce({"orders": {0: batch(b"two")}})
        assert (await client.produced()).throttle_time_ms > 0


async def test_an_address_that_connects_too_fast_is_refused() -> None:
    quotas = QuotaSet()
    quotas.put(LOOPBACK, {CONNECTED: 1.0})
    async with serving(topics_of(), quotas=quotas) as broker:
        clients = [await broker.connect() for _ in range(15)]
        counters = broker.services.counters
        await until(lambda: counters.connections_accepted + refused(broker) == 15)
        assert refused(broker) >= 1
        assert await clients[-1].is_closed()
        quotas.remove(LOOPBACK)
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}})
        await client.produced()


async def test_an_address_with_too_many_connections_is_refused() -> None:
    limits = BrokerLimits(connections_per_address_max=2, drain_timeout_s=1.0)
    async with serving(topics_of(), limits) as broker:
        first, _, third = [await broker.connect() for _ in range(3)]
        assert await third.is_closed()
        assert refused(broker) == 1
        first.writer.close()
        await until(lambda: len(broker.server.connections) == 1)
        fourth = await broker.connect()
        fourth.send_produce({"orders": {0: batch(b"one")}})
        await fourth.produced()


def refused(broker: ServedBroker) -> int:
    return broker.services.counters.connections_refused_of_address
