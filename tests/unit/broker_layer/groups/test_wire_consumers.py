"""KIP-848 groups through encoded requests, with offsets and with the log."""

import asyncio
import uuid

import pytest
from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from broker_layer.errors import TopicError
from broker_layer.groups.values import GroupsConfig, Moment
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker_layer.security.authorizer import Rights
from metadata.security.acls import Operation, ResourceType
from quire.server.overriding import override
from tests.support.broker_layer.group_world import World, open_world
from tests.unit.broker_layer.groups.test_wire_membership import bring_up, join, leave
from tests.unit.broker_layer.groups.test_wire_offsets import (
    commit,
    commit_pending,
    delete_offset,
    fetch,
)

NOT_ASKED = -(2**31)


async def send(
    world: World,
    member: str = "m",
    epoch: int = 0,
    *,
    group: str = "g",
    instance: str | None = None,
    rack: str | None = None,
    topics: list[str] | None = None,
    pattern: str | None = None,
    assignor: str | None = None,
    timeout_ms: int = 60_000,
    owned: list[int] | None = None,
    version: int = 1,
    rights: Rights | None = None,
) -> ConsumerGroupHeartbeatResponse:
    partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    partitions = None if epoch else []
    if owned is not None:
        orders = world.topics.topic_id_of("orders")
        assert orders is not None
        partitions = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(
                topic_id=uuid.UUID(bytes=orders), partitions=owned
            )
        ]
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=timeout_ms,
        subscribed_topic_names=topics,
        subscribed_topic_regex=pattern,
        server_assignor=assignor,
        topic_partitions=partitions,
    )
    return await world.call(request, ConsumerGroupHeartbeatResponse, version=version, rights=rights)


class Sees(Rights):
    """Rights of a client that may describe some topics."""

    def __init__(self, *names: str) -> None:
        self._names = names

    @override
    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return operation is Operation.DESCRIBE and name in self._names

    @override
    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        raise AssertionError(operation, kind)

    check = may


async def test_a_pattern_shows_no_topic_that_its_client_may_not_see() -> None:
    async with open_world() as world:
        hidden = await send(world, topics=[], pattern=".*", rights=Sees())
        assert hidden.error_code == ErrorCode.NONE
        assert hidden.assignment is not None
        assert hidden.assignment.topic_partitions == []
        seen = await send(world, group="h", topics=[], pattern=".*", rights=Sees("orders"))
        assert seen.assignment is not None
        assert seen.assignment.topic_partitions


async def fetch_as(world: World, member: str | None, epoch: int) -> tuple[int, int]:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = asked.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    group = asked(group_id="g", member_id=member, member_epoch=epoch, topics=[topic])
    answer = await world.call(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version=9)
    if answer.groups[0].error_code:
        return -1, answer.groups[0].error_code
    return answer.groups[0].topics[0].partitions[0].committed_offset, 0


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_and_leaves(version: int) -> None:
    async with open_world() as world:
        member = "" if version == 0 else "m"
        joined = await send(world, member, topics=["orders"], version=version)
        assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 1)
        assert joined.heartbeat_interval_ms == 5_000
        assert joined.assignment is not None
        assert joined.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
        assert joined.member_id
        again = await send(world, joined.member_id, 1, timeout_ms=-1, version=version)
        assert again.assignment is None
        left = await send(world, joined.member_id, -1, timeout_ms=-1, version=version)
        assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)


async def test_a_member_may_join_without_topics() -> None:
    """A consumer whose own pattern selects no topic yet sends an empty list."""
    async with open_world() as world:
        joined = await send(world, topics=[])
        assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 1)
        assert joined.assignment is not None
        assert joined.assignment.topic_partitions == []
        found = await send(world, epoch=1, topics=["orders"])
        assert found.error_code == ErrorCode.NONE
        assert found.member_epoch > 1


async def test_invalid_requests_are_refused() -> None:
    async with open_world() as world:
        orders = ["orders"]
        wrong = [
            await send(world, group="", topics=orders),
            await send(world, instance="", topics=orders),
            await send(world, rack="", topics=orders),
            await send(world, epoch=-3),
            await send(world, "", topics=orders),
            await send(world, "", 1, version=0),
            await send(world, epoch=-2),
            await send(world),
            await send(world, topics=orders, timeout_ms=-1),
            await send(world, topics=orders, owned=[1]),
        ]
        assert [response.error_code for response in wrong] == [ErrorCode.INVALID_REQUEST] * len(
            wrong
        )
        odd = await send(world, topics=orders, assignor="mine")
        assert odd.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
        bad = await send(world, pattern="(")
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        missing = await send(world, epoch=3)
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert not world.coordinator.host_at(0).shard.group_ids(), "nothing came of it"


async def test_offsets_are_committed_and_fetched_by_epoch() -> None:
    async with open_world() as world:
        await send(world, topics=["orders"])
        assert await commit(world, 5, member="m", generation=1) == ErrorCode.NONE
        stale = ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(world, 5, member="m", generation=0) == stale
        assert await commit(world, 5, member="unknown", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
        old = await commit(world, 5, member="m", generation=1, version=8)
        assert old == ErrorCode.UNSUPPORTED_VERSION
        assert await commit(world, 5) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await fetch_as(world, "m", 1) == (5, 0)
        assert await fetch_as(world, "m", 0) == (-1, stale)
        assert await fetch_as(world, "unknown", 0) == (-1, ErrorCode.UNKNOWN_MEMBER_ID)
        assert await fetch_as(world, None, -1) == (5, 0)
        assert await commit_pending(world, 7) == ErrorCode.NONE
        assert await commit_pending(world, 7, generation=3) == ErrorCode.UNKNOWN_MEMBER_ID
        subscribed = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
        assert await delete_offset(world, "g", "orders") == (ErrorCode.NONE, subscribed)
        assert await delete_offset(world, "g", "other") == (ErrorCode.NONE, [ErrorCode.NONE])


async def test_groups_are_described_listed_and_deleted() -> None:
    async with open_world() as world:
        await send(world, topics=["orders"], instance="i")
        request = ConsumerGroupDescribeRequest(
            group_ids=["g", "none", "", "g"], include_authorized_operations=True
        )
        answer = await world.call(request, ConsumerGroupDescribeResponse)
        found, missing, nameless = answer.groups
        assert (found.error_code, found.group_state, found.assignor_name) == (
            0,
            "Stable",
            "uniform",
        )
        assert (found.group_epoch, found.assignment_epoch) == (1, 1)
        assert found.authorized_operations == sum(1 << each for each in (3, 6, 8, 10, 11))
        assert missing.authorized_operations == NOT_ASKED
        member = found.members[0]
        assert (member.member_id, member.instance_id, member.client_id) == ("m", "i", "tester")
        shown = member.assignment.topic_partitions[0]
        assert (shown.topic_name, shown.partitions) == ("orders", [0, 1, 2, 3])
        assert member.target_assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
        assert member.member_type == 1
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
        classic = DescribeGroupsRequest(groups=["g"])
        described = await world.call(classic, DescribeGroupsResponse, version=6)
        assert described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        listed = await world.call(ListGroupsRequest(types_filter=["consumer"]), ListGroupsResponse)
        assert [(group.group_id, group.group_state) for group in listed.groups] == [("g", "Stable")]
        deleting = DeleteGroupsRequest(groups_names=["g"])
        refused = await world.call(deleting, DeleteGroupsResponse)
        assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await send(world, epoch=-1, timeout_ms=-1, instance="i")
        deleted = await world.call(deleting, DeleteGroupsResponse)
        assert deleted.results[0].error_code == ErrorCode.NONE
        assert not world.coordinator.host_at(0).shard.group_ids()


async def test_a_group_changes_its_type_only_without_members() -> None:
    async with open_world() as world:
        member, generation = await bring_up(world)
        await commit(world, 8, member=member, generation=generation)
        refused = await send(world, topics=["orders"])
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "members of the classic protocol" in str(refused.error_message)
        await leave(world, member)
        assert (await send(world, topics=["orders"])).error_code == ErrorCode.NONE
        assert await fetch(world) == (8, ErrorCode.NONE)
        assert (await join(world)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        gone = await leave(world, member)
        assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await send(world, epoch=-1, timeout_ms=-1)
        assert (await join(world)).error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert await fetch(world) == (8, ErrorCode.NONE)
        records, snapshot = list(world.records), list(world.log.snapshot())
    for source in (records, snapshot, snapshot + records):
        async with open_world(records=source) as again:
            assert not again.coordinator.host_at(0).shard.consumers
            assert await fetch(again) == (8, ErrorCode.NONE)


async def test_a_refused_member_replaces_no_classic_group() -> None:
    """The classic group says since when its offsets are unused: without it they expired."""
    async with open_world() as world:
        member, generation = await bring_up(world)
        await commit(world, 8, member=member, generation=generation)
        world.wall_ms += world.coordinator.config.offsets_retention_ms
        await leave(world, member)
        stored = list(world.records)
        refused = await send(world, pattern="(")
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        refused = await send(world, topics=["t" * 30_000] * 200)
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await world.coordinator.expire()
        await world.turn()
        assert await fetch(world) == (8, ErrorCode.NONE)
        assert world.records == stored
        assert (await send(world, topics=["orders"])).error_code == ErrorCode.NONE
        assert not world.coordinator.host_at(0).shard.groups


async def test_members_survive_a_reload() -> None:
    async with open_world() as world:
        await send(world, topics=["orders"])
        await send(world, "n", topics=["orders"])
        await send(world, epoch=1, timeout_ms=-1, owned=[0, 1, 2, 3])
        records, snapshot = list(world.records), list(world.log.snapshot())
    for source in (records, snapshot, snapshot + records[-3:]):
        async with open_world(records=source) as again:
            kept = await send(again, epoch=1, timeout_ms=-1, owned=[0, 1])
            assert (kept.error_code, kept.member_epoch) == (ErrorCode.NONE, 2)
            given = await send(again, "n", 2, timeout_ms=-1, owned=[])
            assert given.assignment is not None
            assert given.assignment.topic_partitions[0].partitions == [2, 3]


async def test_a_heartbeat_is_answered_when_it_is_durable() -> None:
    async with open_world() as world:
        world.log.is_held = True
        joining = asyncio.create_task(send(world, topics=["orders"]))
        await world.turn()
        assert not joining.done()
        world.log.fail()
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR


async def test_an_empty_group_is_removed_with_its_last_offset() -> None:
    config = GroupsConfig(offsets_retention_ms=1000)
    async with open_world(config=config) as world:
        await send(world, topics=["orders"])
        await commit(world, 5, member="m", generation=1)
        await commit(world, 6, member="m", generation=1, topic="other")
        world.wall_ms += 1000
        await world.coordinator.expire()
        assert await fetch(world) == (5, ErrorCode.NONE)
        await send(world, epoch=-1, timeout_ms=-1)
        world.wall_ms += 999
        await world.coordinator.expire()
        assert await fetch(world) == (5, ErrorCode.NONE)
        records, snapshot = list(world.records), list(world.log.snapshot())
        world.wall_ms += 1
        await world.coordinator.expire()
        assert not world.coordinator.host_at(0).shard.group_ids()
        emptied_ms = world.wall_ms - 1000
    for source in (records, snapshot):  # the time is stored
        async with open_world(records=source, config=config) as again:
            again.wall_ms = emptied_ms + 999
            await again.coordinator.expire()
            assert await fetch(again) == (5, ErrorCode.NONE)
            again.wall_ms += 1
            await again.coordinator.expire()
            assert not again.coordinator.host_at(0).shard.group_ids()


async def test_offsets_of_a_group_whose_last_member_is_silent_stay_for_the_retention() -> None:
    config = GroupsConfig(offsets_retention_ms=1000)
    async with open_world(config=config) as world:
        await send(world, topics=["orders"])
        await commit(world, 5, member="m", generation=1)
        world.wall_ms += 10_000
        group = world.coordinator.host_at(0).shard.consumers["g"]
        group.on_time(Moment(group.next_deadline_ms(), world.wall_ms))
        assert not group.members
        world.wall_ms += 999
        await world.coordinator.expire()
        assert await fetch(world) == (5, ErrorCode.NONE)


async def test_a_new_topic_reaches_its_subscribers() -> None:
    async with open_world() as world:
        await send(world, pattern="o.*")
        world.topics.put("ovens", 1)
        answered = await send(world, epoch=1, timeout_ms=-1, owned=[0, 1, 2, 3])
        assert answered.assignment is not None
        assert (
            sum(len(partition.partitions) for partition in answered.assignment.topic_partitions)
            == 7
        )


async def test_nothing_is_assigned_before_the_topics_are_known() -> None:
    async with open_world() as world:
        world.topics.is_complete = False
        refused = await send(world, topics=["orders"])
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_sessions_end_by_the_timer() -> None:
    config = GroupsConfig(consumer_session_timeout_ms=1)
    async with open_world(config=config) as world:
        await send(world, topics=["orders"])
        group = world.coordinator.host_at(0).shard.consumers["g"]
        while group.members:  # noqa: ASYNC110 - the timer sets no event
            await asyncio.sleep(0.001)
        assert (await send(world, epoch=1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_join_that_the_log_refuses_has_no_effect() -> None:
    """Otherwise a commit, a fence or an assignment could follow from what no log has."""
    async with open_world() as world:
        first = await send(world, "a", topics=["orders"])
        host = world.coordinator.host_at(0)
        members = dict(host.shard.consumers["g"].members)
        world.log.refusal = TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many wait")
        for group in ("g", "new"):
            refused = await send(world, "b", group=group, topics=["orders"])
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.log.refusal = None
        assert host.shard.consumers["g"].members == members
        assert "new" not in host.shard.consumers
        again = await send(world, "a", first.member_epoch, owned=[0, 1, 2, 3])
        assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, first.member_epoch)
        assert (await send(world, "b", topics=["orders"])).error_code == ErrorCode.NONE


async def test_nothing_is_answered_while_another_broker_may_be_the_coordinator() -> None:
    async with open_world() as world:
        assert await commit(world, 5) == ErrorCode.NONE
        world.log.is_held = True
        waiting = asyncio.create_task(commit(world, 6))
        await world.turn()
        lapsed = TopicError(ErrorCode.NOT_COORDINATOR, "the session has lapsed")
        world.log.lead_refusal = lapsed
        world.log.release()
        assert await waiting == ErrorCode.NOT_COORDINATOR, "it lapsed before the answer"
        assert await fetch_as(world, None, -1) == (-1, ErrorCode.NOT_COORDINATOR)
        listed = await world.call(ListGroupsRequest(), ListGroupsResponse)
        assert listed.groups == []
        world.log.lead_refusal = None
        assert await fetch_as(world, None, -1) == (6, ErrorCode.NONE)
