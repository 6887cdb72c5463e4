"""Tests of the check that a partition is still wanted."""

import asyncio
from random import Random

import pytest

from broker_layer.control.partition_opener import PartitionExistence
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.topic_log import TopicLog
from metadata.errors import NodeNotFoundError, StoreUnavailableError
from metadata.ids import Version
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicStore
from tests.support.broker_layer.control_setting import Setting
from tests.support.broker_layer.log_setting import CONFIG, append, batch
from tests.until import until


class SlowReads:
    """Reads of a topic that wait until they are released."""

    def __init__(self, record: TopicRecord) -> None:
        self.record: TopicRecord | None = record
        self.sent: list[asyncio.Future[None]] = []

    async def get(self, _name: str, *, fresh: bool) -> tuple[TopicRecord, Version]:
        assert fresh
        record = self.record
        self.sent.append(asyncio.get_running_loop().create_future())
        await self.sent[-1]
        if record is None:
            raise StoreUnavailableError("memory", "away")
        return record, Version(0)


async def test_one_read_serves_all_waiting_callers(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await setting.broker(1)
    record = await broker.create("a", 3)
    reads = SlowReads(record)
    topics = TopicStore(broker.store, Random(1))
    monkeypatch.setattr(topics, "get", reads.get)
    existence = PartitionExistence(broker.view, topics)

    def ask(partition: int) -> asyncio.Task[bool]:
        return asyncio.ensure_future(existence.check(PartitionKey(record.topic_id, partition)))

    first = [ask(each) for each in (0, 1, 2, 3)]
    await until(lambda: len(reads.sent) == 1)
    second = [ask(each) for each in (0, 1, 2, 3)]
    second[0].cancel()  # the others are still served
    reads.record = record.with_deletion()
    reads.sent[0].set_result(None)
    assert await asyncio.gather(*first) == [True, True, True, False]
    await until(lambda: len(reads.sent) == 2)
    reads.sent[1].set_result(None)
    assert await asyncio.gather(*second[1:]) == [False, False, False]

    reads.record = None
    failing = [ask(0), ask(1)]
    await until(lambda: len(reads.sent) == 3)
    reads.sent[2].set_result(None)
    outcomes = await asyncio.gather(*failing, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 2
    assert len(reads.sent) == 3
    assert existence._due == existence._sent == {}


async def test_broker_with_old_view_does_not_recreate_erased_partition(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    record = await one.create("orders")
    await append(await one.log("orders"), batch(b"one"))
    await one.changes.delete("orders")
    await one.create("orders")
    await append(await one.log("orders"), batch(b"two"))
    key = PartitionKey(record.topic_id, 0)
    ledgers = [info.id async for info in one.client.list_ledgers()]
    monkeypatch.setattr(one.view, "topic_name_of", lambda _: "orders")
    services = one.manager._opener._services

    with pytest.raises(TopicError) as refusal:
        await TopicLog.take_over(services, "orders", key, 9, CONFIG)

    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(NodeNotFoundError):
        await one.partitions.get(key)

    get_topic = one.topics.get

    async def away(name: str, *, fresh: bool = False) -> None:
        raise StoreUnavailableError(name, "it is away")

    monkeypatch.setattr(one.topics, "get", away)
    with pytest.raises(StoreUnavailableError):
        await TopicLog.take_over(services, "orders", key, 9, CONFIG)
    monkeypatch.setattr(one.topics, "get", get_topic)
    with pytest.raises(TopicError):
        await TopicLog.take_over(services, "orders", key, 9, CONFIG)
    with pytest.raises(NodeNotFoundError):
        await one.partitions.get(key)
    assert [info.id async for info in one.client.list_ledgers()] == ledgers
