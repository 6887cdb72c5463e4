"""Tests of the deletion of ledgers that no partition lists."""

import asyncio
from dataclasses import replace

import pytest

from broker_layer.log.ledger_list import EPOCH_METADATA, PARTITION_METADATA
from ledger_client import Quorum
from metadata.paths import RESTORE, partition_path
from metadata.restore.restore_record import (
    RESTORE_NODE,
    RestoreRecord,
    RestoreState,
    accept_restore,
)
from metadata.topics.partition import PARTITION_CODEC
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TOPIC_ID_BYTES, TopicId
from tests.support.broker_layer.control_setting import CONFIG, Setting
from tests.support.broker_layer.log_setting import append, batch, values
from tests.until import until


async def test_unlisted_ledgers_of_a_dead_leader_are_deleted(setting: Setting) -> None:
    one = await setting.broker(1, replace(CONFIG, sweep_interval_s=0.05))
    record = await one.create("orders")
    log = await one.log("orders")
    await append(log, batch(b"one"))
    lost = await log._ledger_list.create_writer(log.config.quorum)
    ours = await one.client.create_ledger(log.config.quorum, metadata={"quire.partition": "what"})

    assert await one.sweeper.sweep() == 0, "its leader may list it yet"

    await setting.kill(one)
    two = await setting.broker(2, replace(CONFIG, sweep_interval_s=0.05))
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
    listed = [segment.ledger_id for segment in found.segments]
    assert sorted(await ledgers()) == sorted([*listed, ours.id])
    assert await values(after) == [(0, b"one"), (1, b"two")]


async def test_remaining_ledgers_of_an_erased_partition_are_deleted(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    log = await one.log("orders")
    await append(log, batch(b"one"))
    await log._ledger_list.create_writer(log.config.quorum)
    await one.changes.delete("orders")
    await until(lambda: not one.view.deleting)
    async with asyncio.timeout(20):  # the listed ledger is deleted after the name is free
        while len([info async for info in one.client.list_ledgers()]) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    assert await one.sweeper.sweep() == 1

    assert [info async for info in one.client.list_ledgers()] == []


async def test_nothing_is_deleted_before_a_restore_is_accepted(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    log = await one.log("orders")
    await append(log, batch(b"one"))
    await log._ledger_list.create_writer(log.config.quorum)
    await one.changes.delete("orders")
    await until(lambda: not one.view.deleting)
    record = RestoreRecord(b"t" * 16, RestoreState.FINISHED, 5, b"d" * 32)
    await one.store.create(RESTORE, RESTORE_NODE.pack(record))
    assert await one.sweeper.sweep() == 0
    await accept_restore(one.store)
    assert await one.sweeper.sweep() >= 1


@pytest.mark.parametrize("is_damaged", [True, False])
async def test_a_list_that_cannot_be_read_keeps_no_other_orphan(
    setting: Setting, *, is_damaged: bool
) -> None:
    """The other case is a list that loses a chunk after its record was read."""
    one = await setting.broker(1)
    bad, gone = (PartitionKey(TopicId(digit * TOPIC_ID_BYTES), 0) for digit in (b"a", b"b"))
    made = [
        await one.client.create_ledger(
            Quorum(1, 1, 1),
            metadata={PARTITION_METADATA: f"{key.topic_id.hex()}/0", EPOCH_METADATA: "0"},
        )
        for key in (bad, gone)
    ]
    record, version = await one.partitions.get_or_create(bad)
    value = PARTITION_CODEC.pack("a list", replace(record.claimed(7), next_chunk=1))
    await one.store.compare_and_set(partition_path(bad), b"?" if is_damaged else value, version)
    assert await one.sweeper.sweep() == 1
    assert [info.id async for info in one.client.list_ledgers()] == [made[0].id]
