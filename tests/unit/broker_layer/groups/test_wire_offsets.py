"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit, through encoded requests."""

import asyncio
from dataclasses import dataclass, field

import pytest
from kafka.protocol.admin import DeleteGroupsRequest, DeleteGroupsResponse
from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.producer import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from broker_layer.errors import TopicError
from broker_layer.groups.offset_table import PRODUCER_EXPIRY_MS
from broker_layer.groups.values import GroupsConfig
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.group_world import World, errors_of, open_world

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic
_Partition = _Topic.OffsetCommitRequestPartition
_TxnTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_TxnPartition = _TxnTopic.TxnOffsetCommitRequestPartition


async def commit(
    world: World,
    offset: int,
    *,
    group: str = "g",
    topic: str = "orders",
    partition: int = 0,
    generation: int = -1,
    member: str = "",
    metadata: str | None = "",
    version: int = 9,
    retention_ms: int = -1,
) -> int:
    asked = _Partition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=3,
        committed_metadata=metadata,
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        retention_time_ms=retention_ms,
        topics=[_Topic(name=topic, partitions=[asked])],
    )
    answer = await world.call(request, OffsetCommitResponse, version=version)
    return next(errors_of(answer.topics))


async def commit_pending(
    world: World, offset: int, *, producer: int = 5, epoch: int = 0, generation: int = -1
) -> int:
    asked = _TxnPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=producer,
        producer_epoch=epoch,
        generation_id=generation,
        topics=[_TxnTopic(name="orders", partitions=[asked])],
    )
    answer = await world.call(request, TxnOffsetCommitResponse, version=4)
    return next(errors_of(answer.topics))


async def fetch(
    world: World, *, group: str = "g", stable: bool = False, version: int = 8
) -> tuple[int, int]:
    """Return the committed offset of orders-0, and the error."""
    if version < 8:
        old = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        request = OffsetFetchRequest(group_id=group, topics=[old], require_stable=stable)
        answer = await world.call(request, OffsetFetchResponse, version=version)
        if not answer.topics:
            return -1, answer.error_code
        old_partition = answer.topics[0].partitions[0]
        return old_partition.committed_offset, old_partition.error_code
    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = asked.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[asked(group_id=group, topics=[topic])], require_stable=stable
    )
    answer = await world.call(request, OffsetFetchResponse, version=version)
    if answer.groups[0].error_code:
        return -1, answer.groups[0].error_code
    partition = answer.groups[0].topics[0].partitions[0]
    return partition.committed_offset, partition.error_code


@pytest.mark.parametrize("version", range(2, 10))
async def test_a_simple_consumer_commits_in_every_version(version: int) -> None:
    async with open_world() as world:
        assert await commit(world, 42, version=version) == ErrorCode.NONE
        assert await fetch(world) == (42, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(1, 10))
async def test_every_version_fetches(version: int) -> None:
    async with open_world() as world:
        assert await fetch(world, version=version) == (-1, ErrorCode.NONE)
        await commit(world, 7)
        assert await fetch(world, version=version) == (7, ErrorCode.NONE)


async def test_all_offsets_of_several_groups_are_fetched_at_once() -> None:
    async with open_world() as world:
        await commit(world, 1, group="a")
        await commit(world, 2, group="b", topic="other", partition=1, metadata="note")
        asked = OffsetFetchRequest.OffsetFetchRequestGroup
        request = OffsetFetchRequest(groups=[asked(group_id=g, topics=None) for g in "abca"])
        answer = await world.call(request, OffsetFetchResponse, version=8)
        shown = [
            (
                group.group_id,
                topic.name,
                partition.partition_index,
                partition.committed_offset,
                partition.metadata,
            )
            for group in answer.groups
            for topic in group.topics
            for partition in topic.partitions
        ]
        assert shown == [("a", "orders", 0, 1, ""), ("b", "other", 1, 2, "note")]


async def test_refusals_of_single_partitions() -> None:
    async with open_world() as world:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(world, 1, topic="none") == unknown
        assert await commit(world, 1, partition=4) == unknown
        assert await commit(world, 1, partition=-1) == unknown
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await commit(world, 1, metadata="x" * 4097) == too_large
        assert await commit(world, 1, metadata="x" * 4096) == ErrorCode.NONE
        assert await commit(world, 2, metadata=None) == ErrorCode.NONE


async def test_a_group_that_does_not_exist_has_no_generation() -> None:
    async with open_world() as world:
        assert await commit(world, 1, generation=3, member="m") == ErrorCode.GROUP_ID_NOT_FOUND
        old = await commit(world, 1, generation=3, member="m", version=8)
        assert old == ErrorCode.ILLEGAL_GENERATION
        await commit(world, 1)
        known = await commit(world, 1, generation=3, member="m")
        assert known == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_answer_waits_for_durability_and_so_does_a_fetch() -> None:
    async with open_world() as world:
        await commit(world, 1)
        world.log.is_held = True
        committing = asyncio.create_task(commit(world, 2))
        await world.turn()
        fetching = asyncio.create_task(fetch(world))
        await world.turn()
        assert not committing.done()
        assert not fetching.done()
        world.log.release()
        assert await committing == ErrorCode.NONE
        assert await fetching == (2, ErrorCode.NONE)


async def test_a_failed_log_drops_the_partition() -> None:
    async with open_world() as world:
        world.log.is_held = True
        committing = asyncio.create_task(commit(world, 2))
        await world.turn()
        world.log.fail()
        assert await committing == ErrorCode.NOT_COORDINATOR
        assert await fetch(world) == (-1, ErrorCode.NOT_COORDINATOR)
        assert await fetch(world, version=1) == (-1, ErrorCode.NOT_COORDINATOR)
        assert await fetch(world, version=7) == (-1, ErrorCode.NOT_COORDINATOR)


async def test_too_many_waiting_records_refuse_a_commit() -> None:
    async with open_world() as world:
        world.log.refusal = TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "full")
        assert await commit(world, 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.log.refusal = None
        assert await fetch(world) == (-1, ErrorCode.NONE)


async def test_pending_offsets_wait_for_their_marker() -> None:
    async with open_world() as world:
        await commit(world, 1)
        assert await commit_pending(world, 9) == ErrorCode.NONE
        assert await fetch(world) == (1, ErrorCode.NONE)
        assert await fetch(world, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await world.coordinator.write_markers(0, 5, 0, 1, True)
        assert await fetch(world, stable=True) == (9, ErrorCode.NONE)


async def test_an_abort_drops_pending_offsets() -> None:
    async with open_world() as world:
        await commit_pending(world, 9)
        await world.coordinator.write_markers(0, 5, 0, 1, False)
        assert await fetch(world, stable=True) == (-1, ErrorCode.NONE)


async def test_a_later_direct_commit_wins_over_a_marker() -> None:
    async with open_world() as world:
        await commit_pending(world, 9)
        await commit(world, 20)
        await world.coordinator.write_markers(0, 5, 0, 1, True)
        assert await fetch(world) == (20, ErrorCode.NONE)


async def test_old_epochs_are_fenced() -> None:
    async with open_world() as world:
        await world.coordinator.write_markers(0, 5, 2, 8, False)
        assert await commit_pending(world, 9, epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(TopicError) as old_producer:
            await world.coordinator.write_markers(0, 5, 1, 9, False)
        assert old_producer.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(TopicError) as old_coordinator:
            await world.coordinator.write_markers(0, 5, 2, 7, False)
        assert old_coordinator.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        world.wall_ms += PRODUCER_EXPIRY_MS + 1
        await world.coordinator.expire()
        assert await commit_pending(world, 9, epoch=1) == ErrorCode.NONE


@dataclass
class _Verifier:
    asked: list[tuple[int, int, str, str, int]] = field(default_factory=list)
    refusal: ErrorCode | None = None

    async def check_offsets(
        self,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str,
        topic: str,
        partition: int,
    ) -> None:
        self.asked.append((producer_id, producer_epoch, transactional_id, topic, partition))
        if self.refusal is not None:
            raise TopicError(self.refusal, "no")


async def test_a_transaction_is_verified_if_there_is_a_verifier() -> None:
    verifier = _Verifier()
    async with open_world(check_offsets=verifier.check_offsets) as world:
        assert await commit_pending(world, 9) == ErrorCode.NONE
        assert verifier.asked == [(5, 0, "t", "__consumer_offsets", 0)]
        verifier.refusal = ErrorCode.INVALID_TXN_STATE
        assert await commit_pending(world, 9) == ErrorCode.INVALID_TXN_STATE


async def test_a_transaction_of_an_unknown_group() -> None:
    async with open_world() as world:
        assert await commit_pending(world, 9, generation=4) == ErrorCode.ILLEGAL_GENERATION


async def test_offsets_survive_a_reload_from_log_or_snapshot() -> None:
    async with open_world() as world:
        await commit(world, 1)
        await commit(world, 2)
        await commit_pending(world, 9)
        await commit(world, 3, topic="other", group="h")
        snapshot = list(world.log.snapshot())
        records = world.records
    for source in (records, snapshot, snapshot + records[-3:], records + records):
        async with open_world(records=list(source)) as again:
            assert await fetch(again) == (2, ErrorCode.NONE)
            assert await fetch(again, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            await again.coordinator.write_markers(0, 5, 0, 1, True)
            assert await fetch(again, stable=True) == (9, ErrorCode.NONE)


async def test_a_marker_loaded_twice_does_not_commit_the_next_transaction() -> None:
    async with open_world() as world:
        await commit_pending(world, 9)
        await world.coordinator.write_markers(0, 5, 0, 1, True)
        await commit_pending(world, 30)
        snapshot = list(world.log.snapshot())
        repeated = world.records[-2:]
    async with open_world(records=snapshot + repeated) as again:
        assert await fetch(again) == (9, ErrorCode.NONE)
        await again.coordinator.write_markers(0, 5, 0, 1, False)
        assert await fetch(again, stable=True) == (9, ErrorCode.NONE)


async def test_offsets_of_a_recreated_topic_are_not_shown() -> None:
    async with open_world() as world:
        await commit(world, 5)
        world.topics.put("orders", 4, b"another topic id")
        assert await fetch(world) == (-1, ErrorCode.NONE)
        await world.coordinator.expire()
        world.topics.put("orders", 4)
        assert await fetch(world) == (-1, ErrorCode.NONE)


async def test_offsets_of_a_topic_missing_twice_are_removed() -> None:
    async with open_world() as world:
        await commit(world, 5)
        await commit(world, 6, topic="other")
        world.topics.drop("orders")
        assert await fetch(world) == (5, ErrorCode.NONE), "the view of topics may lag"
        world.topics.is_complete = False
        await world.coordinator.expire()
        await world.coordinator.expire()
        world.topics.is_complete = True
        await world.coordinator.expire()
        assert await fetch(world) == (5, ErrorCode.NONE)
        await world.coordinator.expire()
        assert await fetch(world) == (-1, ErrorCode.NONE)
        offsets = world.coordinator.host_at(0).shard.offsets.of("g")
        assert offsets is not None
        assert [offset.topic for offset in offsets.all()] == ["other"]


async def test_offsets_of_simple_consumers_expire_by_their_commits() -> None:
    config = GroupsConfig(offsets_retention_ms=1000)
    async with open_world(config=config) as world:
        await commit(world, 5)
        world.wall_ms += 999
        await world.coordinator.expire()
        assert await fetch(world) == (5, ErrorCode.NONE)
        world.wall_ms += 1
        await world.coordinator.expire()
        assert await fetch(world) == (-1, ErrorCode.NONE)


async def test_the_retention_of_an_old_client_is_applied() -> None:
    async with open_world() as world:
        await commit(world, 5, version=4, retention_ms=10)
        world.wall_ms += 10
        await world.coordinator.expire()
        assert await fetch(world) == (-1, ErrorCode.NONE)


async def test_pending_offsets_keep_a_group() -> None:
    config = GroupsConfig(offsets_retention_ms=1000)
    async with open_world(config=config) as world:
        await commit(world, 5)
        await commit_pending(world, 9)
        world.wall_ms += 5000
        await world.coordinator.expire()
        assert await fetch(world) == (5, ErrorCode.NONE)


async def test_a_deleted_group_loses_its_offsets() -> None:
    async with open_world() as world:
        await commit(world, 5)
        deleting = DeleteGroupsRequest(groups_names=["g", "none"])
        answer = await world.call(deleting, DeleteGroupsResponse)
        errors = [result.error_code for result in answer.results]
        assert errors == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        records = world.records
    async with open_world(records=records) as again:
        assert await fetch(again) == (-1, ErrorCode.NONE)


async def delete_offset(world: World, group: str, topic: str) -> tuple[int, list[int]]:
    asked = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = asked.OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(
        group_id=group, topics=[asked(name=topic, partitions=[partition])]
    )
    answer = await world.call(request, OffsetDeleteResponse)
    return answer.error_code, list(errors_of(answer.topics))


async def test_offsets_are_deleted_separately() -> None:
    async with open_world() as world:
        assert await delete_offset(world, "g", "orders") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        await commit(world, 5)
        unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await delete_offset(world, "g", "none") == (ErrorCode.NONE, unknown)
        assert await delete_offset(world, "g", "orders") == (ErrorCode.NONE, [ErrorCode.NONE])
        assert await fetch(world) == (-1, ErrorCode.NONE)


async def test_offsets_are_not_read_from_a_coordinator_that_was_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its session lives, and it has no news of the next one, which may have newer offsets."""
    async with open_world() as world:
        assert await commit(world, 5) == ErrorCode.NONE

        async def replaced() -> None:
            raise TopicError(ErrorCode.NOT_COORDINATOR, "another broker claimed it")

        monkeypatch.setattr(world.log, "confirm_lead", replaced)
        assert await fetch(world) == (-1, ErrorCode.NOT_COORDINATOR)
