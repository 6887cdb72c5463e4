"""Produce appends only to topics that its client may write."""

import asyncio

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import Producer
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.authorized_broker import rule
from tests.support.broker_layer.memory_acls import MemoryAcls
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import ServedBroker, batch, serving
from tests.until import until

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ID_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
PRODUCER = Producer(7, 0, 0)


@pytest.fixture
def topics() -> MemoryTopics:
    return MemoryTopics(logs={(name, 0): MemoryLog() for name in ("a", "b")})


@pytest.fixture
def acls() -> MemoryAcls:
    return MemoryAcls()


async def _codes(broker: ServedBroker, transactional_id: str | None = None) -> dict[str, int]:
    client = await broker.connect()
    is_transactional = transactional_id is not None
    records = (
        batch(b"x", producer=PRODUCER, is_transactional=True) if is_transactional else batch(b"x")
    )
    client.send_produce({"a": {0: records}, "b": {0: records}}, transactional_id=transactional_id)
    response = await client.produced()
    return {
        produce_response.name: produce_response.partition_responses[0].error_code
        for produce_response in response.responses
    }


async def test_refused_topics_do_not_refuse_the_others(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    acls.change(rule("TOPIC:b WRITE"), rule("TOPIC:a READ"))
    async with serving(topics, acls=acls) as broker:
        assert await _codes(broker) == {"a": REFUSED, "b": ErrorCode.NONE}
    assert topics.logs["a", 0].batches == []
    assert len(topics.logs["b", 0].batches) == 1


async def test_nothing_is_waited_for_that_is_refused(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    topics.openings["a", 0] = asyncio.Event()
    async with serving(topics, acls=acls) as broker:
        client = await broker.connect()
        client.send_produce({"a": {0: batch(b"x")}}, timeout_ms=600_000)
        (topic,) = (await client.produced()).responses
        assert topic.partition_responses[0].error_code == REFUSED


async def test_a_produce_that_follows_a_waiting_one_is_checked(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    acls.change(rule("TOPIC:a WRITE"))
    opening = topics.openings["a", 0] = asyncio.Event()
    async with serving(topics, acls=acls) as broker:
        client = await broker.connect()
        client.send_produce({"a": {0: batch(b"x")}})
        client.send_produce({"b": {0: batch(b"y")}})
        await asyncio.sleep(0.05)
        del topics.openings["a", 0]
        opening.set()
        codes = [
            (await client.produced()).responses[0].partition_responses[0].error_code
            for _ in range(2)
        ]
        assert codes == [ErrorCode.NONE, REFUSED]
    assert topics.logs["b", 0].batches == []


async def test_a_produce_that_waits_does_not_keep_a_right(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    acls.change(rule("TOPIC:a WRITE"), rule("TOPIC:b WRITE"))
    opening = topics.openings["a", 0] = asyncio.Event()
    async with serving(topics, acls=acls) as broker:
        codes = asyncio.create_task(_codes(broker))
        await until(lambda: broker.services.counters.requests_by_api.get(ApiKey.PRODUCE) == 1)
        acls.change(rule("TOPIC:b WRITE"))
        del topics.openings["a", 0]
        opening.set()
        assert await codes == {"a": REFUSED, "b": ErrorCode.NONE}
    assert topics.logs["a", 0].batches == []


async def test_a_produce_that_is_verified_does_not_keep_a_right(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    acls.change(rule("TOPIC:* WRITE"), rule("TRANSACTIONAL_ID:x WRITE"))
    async with serving(topics, acls=acls) as broker:
        codes = asyncio.create_task(_codes(broker, "x"))
        await until(lambda: broker.services.counters.requests_by_api.get(ApiKey.PRODUCE) == 1)
        acls.change(rule("TOPIC:* WRITE"))
        topics.may_verify.set()
        assert await codes == {"a": ID_REFUSED, "b": ID_REFUSED}
    assert topics.logs["a", 0].batches == topics.logs["b", 0].batches == []


async def test_a_refusal_without_acknowledgement_closes_the_connection(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    async with serving(topics, acls=acls) as broker:
        client = await broker.connect()
        client.send_produce({"a": {0: batch(b"x")}}, acks=0)
        assert await client.is_closed()
    assert topics.logs["a", 0].batches == []


async def test_a_transactional_id_needs_a_right(topics: MemoryTopics, acls: MemoryAcls) -> None:
    topics.may_verify.set()
    acls.change(rule("TOPIC:* WRITE"))
    async with serving(topics, acls=acls) as broker:
        assert await _codes(broker, "x") == {"a": ID_REFUSED, "b": ID_REFUSED}
        assert topics.verified == []
        acls.change(rule("TOPIC:a WRITE"), rule("TRANSACTIONAL_ID:x WRITE"))
        assert await _codes(broker, "x") == {"a": ErrorCode.NONE, "b": REFUSED}
        assert topics.verified == [("a", 0)]


async def test_a_new_rule_applies_to_the_next_produce(
    topics: MemoryTopics, acls: MemoryAcls
) -> None:
    async with serving(topics, acls=acls) as broker:
        assert await _codes(broker) == {"a": REFUSED, "b": REFUSED}
        acls.change(rule("TOPIC:* WRITE"), rule("deny TOPIC:b WRITE"))
        assert await _codes(broker) == {"a": ErrorCode.NONE, "b": REFUSED}
