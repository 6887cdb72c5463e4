"""Tests of the order in which topics are erased, and of conflicts during that."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from broker_layer.log.ledger_list import PARTITION_METADATA
from metadata.errors import StoreUnavailableError, VersionConflictError
from metadata.ids import LedgerId, Version
from metadata.paths import partition_path
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import NoFaults, StoreCall
from metadata.topics.partition import (
    SEGMENTS_IN_RECORD_MAX,
    PartitionRecord,
    PartitionSegment,
)
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import TOPIC_ID_BYTES, TopicId, TopicRecord
from quire.server.overriding import override
from tests.support.broker_layer.control_setting import (
    CONFIG,
    Broker,
    Setting,
    until_lists_are_gone,
)
from tests.support.broker_layer.log_setting import append, batch, values
from tests.until import WAIT_S, until


async def test_names_of_small_topics_are_freed_first_and_conflicts_are_retried(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    eraser = one.controller._parts.eraser
    erase, erased, may_continue = eraser.release_name, list[str](), asyncio.Event()

    async def noted(record: TopicRecord) -> None:
        erased.append(record.name)
        await may_continue.wait()
        await erase(record)

    monkeypatch.setattr(eraser, "release_name", noted)
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


async def test_the_end_of_a_deleted_topic_is_no_failure(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    one = await setting.broker(1)
    record = await one.create("a", 3)
    for partition in range(3):
        await append(await one.log("a", partition), batch(b"x"))
    await one.changes.delete("a")
    await until_lists_are_gone(one, record)
    assert "the name of topic a is free" in caplog.messages
    assert [line.getMessage() for line in caplog.records if line.levelname == "WARNING"] == []


SLOW = replace(CONFIG, erased_ledgers_per_s=0.01)
"""After one ledger the deletion pauses for longer than a test takes."""


async def lists_of(broker: Broker, record: TopicRecord) -> list[int]:
    return await broker.partitions.partitions_of(record.topic_id)


async def deleted_topic(broker: Broker, partitions: int) -> TopicRecord:
    """Create a topic whose partitions have ledgers, and mark it as deleted."""
    record = await broker.create("orders", partitions)
    for partition in range(partitions):
        await append(await broker.log("orders", partition), batch(b"old"))
    await broker.changes.delete("orders")
    return record


async def test_a_name_is_free_before_the_ledgers_are_deleted(setting: Setting) -> None:
    one = await setting.broker(1, SLOW)
    old = await deleted_topic(one, 3)
    new = await one.create("orders")
    assert new.topic_id != old.topic_id
    assert len(await lists_of(one, old)) >= 2

    log = await one.log("orders")
    await append(log, batch(b"new"))
    assert await values(log) == [(0, b"new")]
    assert log.leader_epoch > max(partition.leader_epoch for partition in old.partitions)


async def test_the_next_controller_deletes_what_is_left(setting: Setting) -> None:
    one = await setting.broker(1, SLOW)
    old = await deleted_topic(one, 3)
    new = await one.create("orders")
    await one.log("orders")
    await setting.kill(one)

    two = await setting.broker(2)
    await until_lists_are_gone(two, old)
    assert await lists_of(two, new) == [0]
    infos = [ledger async for ledger in two.client.list_ledgers()]
    names = [str(info.metadata.get(PARTITION_METADATA)) for info in infos]
    assert not [name for name in names if name.startswith(old.topic_id.hex())]


async def test_a_deleted_topic_is_dead_only_without_its_record(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    eraser = one.controller._parts.eraser
    release, may_continue = eraser.release_name, asyncio.Event()

    async def released(record: TopicRecord) -> None:
        await may_continue.wait()
        await release(record)

    monkeypatch.setattr(eraser, "release_name", released)
    await one.create("orders")
    await one.log("orders")
    assert await eraser.dead_topics() == []
    deleted = await one.changes.delete("orders")
    assert await lists_of(one, deleted) == [0]
    assert await eraser.dead_topics() == []
    may_continue.set()
    await until_lists_are_gone(one, deleted)


UNREADABLE = TopicId(bytes(TOPIC_ID_BYTES))
DEAD = TopicId(b"\xff" * TOPIC_ID_BYTES)
"""Its lists are found after those of the other one."""


async def with_dead_list(partitions: PartitionStore, topic_id: TopicId) -> PartitionKey:
    """Store a list, without a topic, that names more ledgers than its record has room for."""
    key = PartitionKey(topic_id, 0)
    record, version = await partitions.get_or_create(key)
    for number in range(SEGMENTS_IN_RECORD_MAX + 1):
        record = record.with_segment(
            PartitionSegment(LedgerId(1_000 + number), number, 0, 0, number + 1, 1, 0)
        )
    await partitions.compare_and_set(key, record, version)
    return key


class CutDeletion(NoFaults):
    """Refuses the deletion of a node once, after all below it is deleted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.attempts = 0

    @override
    async def before(self, call: StoreCall) -> None:
        if (call.operation, call.path) == ("delete", self.path):
            self.attempts += 1
            if self.attempts == 2:  # the first one finds that the node has children
                raise StoreUnavailableError("memory", "no answer")


async def test_a_deletion_that_was_cut_off_is_completed(setting: Setting) -> None:
    one = await setting.broker(1)
    key = await with_dead_list(one.partitions, DEAD)
    setting.cluster.server.faults = CutDeletion(partition_path(key))
    eraser = one.controller._parts.eraser
    with pytest.raises(StoreUnavailableError):
        await eraser.delete_ledgers(DEAD)
    assert await one.partitions.partitions_of(DEAD) == [0]
    await eraser.delete_ledgers(DEAD)
    assert await one.partitions.partitions_of(DEAD) == []


async def test_a_list_that_cannot_be_read_keeps_no_other_topic(setting: Setting) -> None:
    store = MemoryMetadataStore(setting.cluster.server)
    partitions = PartitionStore(store, Random(1))
    for topic_id, number in ((UNREADABLE, 0), (UNREADABLE, 1), (DEAD, 0)):
        await partitions.get_or_create(PartitionKey(topic_id, number))
    path = partition_path(PartitionKey(UNREADABLE, 0))
    await store.compare_and_set(path, b"?", (await store.get(path)).version)
    await setting.broker(1)
    async with asyncio.timeout(WAIT_S):
        while await partitions.partitions_of(DEAD):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
    assert await partitions.partitions_of(UNREADABLE) == [0], "its other list is gone"
    await store.aclose()


async def test_what_another_controller_leaves_during_a_search_is_found(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    list_topics, controller = one.partitions.topic_ids, one.controller
    terms = 0

    async def listed() -> list[TopicId]:
        """Read the lists; if this is the first time, end the term before the answer arrives."""
        nonlocal terms
        found, terms = await list_topics(), terms + 1
        if terms == 1:
            one.store.expire()
            await one.partitions.get_or_create(PartitionKey(DEAD, 0))
            await until(lambda: controller._since_s is not None and controller.is_active)
        return found

    monkeypatch.setattr(one.partitions, "topic_ids", listed)
    one.store.expire()
    await until(lambda: terms > 0)
    async with asyncio.timeout(WAIT_S):
        while terms < 2 or await one.partitions.partitions_of(DEAD):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
