"""Deleted topics leave nothing, and ledgers that no list names are deleted."""

import asyncio
from dataclasses import replace

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.topic_log import TopicLog
from metadata.errors import NodeNotFoundError, StoreUnavailableError, VersionConflictError
from metadata.ids import Version
from metadata.topics.partition import PartitionRecord
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicRecord
from tests.support.broker_layer.control_setting import CONFIG as CONTROL
from tests.support.broker_layer.control_setting import Setting
from tests.support.broker_layer.log_setting import CONFIG, append, batch, values
from tests.until import until


async def test_a_broker_with_an_old_view_does_not_recreate_an_erased_partition(
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


async def test_unlisted_ledgers_of_a_dead_leader_are_deleted(setting: Setting) -> None:
    one = await setting.broker(1, replace(CONTROL, sweep_interval_s=0.05))
    record = await one.create("orders")
    log = await one.log("orders")
    await append(log, batch(b"one"))
    lost = await log._chain.create_writer(log.config.quorum)
    ours = await one.client.create_ledger(log.config.quorum, metadata={"quire.partition": "what"})

    assert await one.sweeper.sweep() == 0, "its leader may list it yet"

    await setting.kill(one)
    two = await setting.broker(2, replace(CONTROL, sweep_interval_s=0.05))
    after = await two.log("orders")
    assert after.leader_epoch > log.leader_epoch

    async def ledgers() -> list[int]:
        return [info.id async for info in two.client.list_ledgers()]

    async with asyncio.timeout(20):
        while lost.id in await ledgers():  # noqa: ASYNC110 - another's deletion is waited for
            await asyncio.sleep(0.01)
    await append(after, batch(b"two"))
    assert await two.sweeper.sweep() == 0
    found, _ = await two.partitions.get(PartitionKey(record.topic_id, 0))
    listed = [each.ledger_id for each in found.segments]
    assert sorted(await ledgers()) == sorted([*listed, ours.id])
    assert await values(after) == [(0, b"one"), (1, b"two")]


async def test_remaining_ledgers_of_an_erased_partition_are_deleted(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    log = await one.log("orders")
    await append(log, batch(b"one"))
    await log._chain.create_writer(log.config.quorum)
    await one.changes.delete("orders")
    await until(lambda: not one.view.deleting)
    assert len([info async for info in one.client.list_ledgers()]) == 1

    assert await one.sweeper.sweep() == 1

    assert [info async for info in one.client.list_ledgers()] == []


async def test_small_topics_are_erased_first_and_conflicts_are_retried(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    eraser = one.controller._parts.eraser
    erase, erased, go_on = eraser.erase, list[str](), asyncio.Event()

    async def noted(record: TopicRecord) -> None:
        erased.append(record.name)
        await go_on.wait()
        await erase(record)

    monkeypatch.setattr(eraser, "erase", noted)
    for name, count in (("first", 1), ("a-large", 9), ("small", 1)):
        await one.create(name, count)
        await one.log(name)  # the partition has its list of ledgers from here on
    for name in ("first", "a-large", "small"):
        await one.changes.delete(name)
        await until(lambda: bool(erased))
    store = one.partitions.compare_and_set
    conflicts = 0

    async def overtaken(
        key: PartitionKey, record: PartitionRecord, version: Version
    ) -> tuple[PartitionRecord, Version]:
        nonlocal conflicts
        if conflicts < 2:
            conflicts += 1
            raise VersionConflictError("a list", version)
        return await store(key, record, version)

    monkeypatch.setattr(one.partitions, "compare_and_set", overtaken)
    go_on.set()
    await until(lambda: len(erased) == 3)
    assert erased == ["first", "small", "a-large"]
    await until(lambda: not one.view.deleting)
    assert conflicts == 2
