"""Tests of the order in which topics are erased, and of conflicts during that."""

import asyncio

import pytest

from metadata.errors import VersionConflictError
from metadata.ids import Version
from metadata.topics.partition import PartitionRecord
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicRecord
from tests.support.broker_layer.control_setting import Setting
from tests.until import until


async def test_small_topics_are_erased_first_and_conflicts_are_retried(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    eraser = one.controller._parts.eraser
    erase, erased, may_continue = eraser.erase, list[str](), asyncio.Event()

    async def noted(record: TopicRecord) -> None:
        erased.append(record.name)
        await may_continue.wait()
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
    may_continue.set()
    await until(lambda: len(erased) == 3)
    assert erased == ["first", "small", "a-large"]
    await until(lambda: not one.view.deleting)
    assert conflicts == 2
