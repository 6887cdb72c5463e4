"""Holds that nothing is left of deleted topics, and of ledgers that no list names."""

from collections.abc import AsyncIterator

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.topic_log import TopicLog
from metadata.errors import NodeNotFoundError, StoreUnavailableError
from metadata.partition_store import PartitionKey
from tests.unit.broker_layer.control_setting import Setting
from tests.unit.broker_layer.log_setting import CONFIG, append, batch


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    await setting.start()
    yield setting
    await setting.aclose()


async def test_an_erased_partition_is_not_made_again_by_a_broker_that_does_not_know(
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
    services = one.manager._opening._services

    with pytest.raises(TopicError) as refusal:
        await TopicLog.take_over(services, "orders", key, 9, CONFIG)

    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(NodeNotFoundError):
        await one.partitions.get(key)

    is_wanted = one.topics.get

    async def away(name: str, *, fresh: bool = False) -> None:
        raise StoreUnavailableError(name, "it is away")

    monkeypatch.setattr(one.topics, "get", away)
    with pytest.raises(StoreUnavailableError):
        await TopicLog.take_over(services, "orders", key, 9, CONFIG)
    monkeypatch.setattr(one.topics, "get", is_wanted)
    with pytest.raises(TopicError):
        await TopicLog.take_over(services, "orders", key, 9, CONFIG)
    with pytest.raises(NodeNotFoundError):
        await one.partitions.get(key)
    assert [info.id async for info in one.client.list_ledgers()] == ledgers
