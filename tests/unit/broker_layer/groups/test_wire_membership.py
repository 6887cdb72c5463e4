"""Membership, descriptions and timeouts of classic groups, through encoded requests."""

import asyncio
import struct

import pytest
from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from broker_layer.coordinator_partitions import RECORD_BYTES_MAX
from broker_layer.groups.classic_group import NEVER_MS
from broker_layer.groups.group_host import Timers
from broker_layer.groups.values import GroupsConfig
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.group_world import World, open_world
from tests.unit.broker_layer.groups.test_wire_offsets import commit, delete_offset, fetch

SUBSCRIPTION = struct.pack(">hih6s", 0, 1, 6, b"orders") + struct.pack(">i", -1)


async def join(
    world: World,
    member: str = "",
    *,
    group: str = "g",
    version: int = 9,
    instance: str | None = None,
    session_ms: int = 10_000,
    protocol: str = "range",
) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=SUBSCRIPTION)],
    )
    return await world.call(request, JoinGroupResponse, version=version)


async def sync(
    world: World,
    member: str,
    generation: int,
    *,
    leads: bool = True,
    version: int = 5,
    assignment: bytes = b"mine",
) -> SyncGroupResponse:
    mine = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=assignment)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[mine] if leads else [],
    )
    return await world.call(request, SyncGroupResponse, version=version)


async def beat(world: World, member: str, generation: int, *, version: int = 4) -> int:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    return (await world.call(request, HeartbeatResponse, version=version)).error_code


async def leave(world: World, member: str, *, version: int = 5) -> LeaveGroupResponse:
    identity = LeaveGroupRequest.MemberIdentity(member_id=member)
    request = LeaveGroupRequest(group_id="g", member_id=member, members=[identity])
    return await world.call(request, LeaveGroupResponse, version=version)


async def bring_up(world: World) -> tuple[str, int]:
    """Create a stable group of one member."""
    member = (await join(world)).member_id
    joined = await join(world, member)
    synced = await sync(world, member, joined.generation_id)
    assert synced.assignment == b"mine"
    return member, joined.generation_id


@pytest.mark.parametrize(
    ("join_version", "sync_version", "beat_version", "leave_version"),
    [
        (0, 0, 0, 0),
        (1, 1, 1, 1),
        (2, 2, 2, 2),
        (4, 3, 3, 3),
        (5, 4, 4, 4),
        (7, 5, 4, 5),
        (9, 5, 4, 5),
    ],
)
async def test_membership_in_every_version(
    join_version: int, sync_version: int, beat_version: int, leave_version: int
) -> None:
    async with open_world() as world:
        joined = await join(world, version=join_version)
        if join_version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = await join(world, joined.member_id, version=join_version)
        assert joined.error_code == ErrorCode.NONE
        assert joined.member_id.startswith("tester-")
        assert joined.leader == joined.member_id
        assert joined.protocol_name == "range"
        synced = await sync(world, joined.member_id, joined.generation_id, version=sync_version)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
        assert await beat(world, joined.member_id, 1, version=beat_version) == ErrorCode.NONE
        left = await leave(world, joined.member_id, version=leave_version)
        assert left.error_code == ErrorCode.NONE
        gone = await leave(world, joined.member_id, version=leave_version)
        answered = gone.members[0].error_code if leave_version >= 3 else gone.error_code
        assert answered == ErrorCode.UNKNOWN_MEMBER_ID


async def test_invalid_requests_are_refused_without_a_group() -> None:
    async with open_world() as world:
        bad = await join(world, group="")
        assert (bad.error_code, bad.protocol_name) == (ErrorCode.INVALID_GROUP_ID, None)
        bad = await join(world, group="", version=5)
        assert bad.protocol_name == ""
        for session_ms in (5_999, 1_800_001):
            refused = await join(world, session_ms=session_ms)
            assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert (await join(world, "unknown")).error_code == unknown
        assert (await sync(world, "unknown", 1)).error_code == unknown
        assert await beat(world, "unknown", 1) == unknown
        assert (await leave(world, "unknown")).error_code == unknown


async def test_a_join_waits_for_the_initial_delay_and_is_answered_at_resignation() -> None:
    config = GroupsConfig(group_initial_rebalance_delay_ms=3_000)
    async with open_world(config=config) as world:
        joining = asyncio.create_task(join(world, version=3))
        await world.turn()
        assert not joining.done()
        await world.coordinator.resign(0)
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_sync_is_answered_when_the_generation_is_durable() -> None:
    async with open_world() as world:
        member = (await join(world)).member_id
        generation = (await join(world, member)).generation_id
        world.log.is_held = True
        syncing = asyncio.create_task(sync(world, member, generation))
        await world.turn()
        assert not syncing.done()
        world.log.release()
        assert (await syncing).assignment == b"mine"


async def test_a_sync_fails_with_the_log() -> None:
    async with open_world() as world:
        member = (await join(world)).member_id
        generation = (await join(world, member)).generation_id
        world.log.is_held = True
        syncing = asyncio.create_task(sync(world, member, generation))
        await world.turn()
        world.log.fail()
        assert (await syncing).error_code == ErrorCode.NOT_COORDINATOR
        assert await beat(world, member, generation) == ErrorCode.NOT_COORDINATOR
        assert world.log.closed == 0, "its opener closes it"
        await world.coordinator.resign(0)
        assert world.log.closed == 1


async def test_an_assignment_too_large_for_the_log_is_refused() -> None:
    async with open_world() as world:
        member = (await join(world)).member_id
        generation = (await join(world, member)).generation_id
        huge = await sync(world, member, generation, assignment=bytes(RECORD_BYTES_MAX))
        assert huge.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await beat(world, member, generation) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_all_requests_are_refused_during_the_load() -> None:
    async with open_world() as world:
        await world.coordinator.resign(0)
        gate = asyncio.Event()

        async def open_slowly(**options: object) -> object:
            await gate.wait()
            return await world.log.open(**options)  # type: ignore[arg-type]

        loading = asyncio.create_task(world.coordinator.load(0, open_slowly))  # type: ignore[arg-type]
        await world.turn()
        in_progress = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await join(world)).error_code == in_progress
        assert await fetch(world) == (-1, in_progress)
        assert await commit(world, 1) == in_progress
        listing = await world.call(ListGroupsRequest(), ListGroupsResponse)
        assert listing.error_code == in_progress
        gate.set()
        await loading
        assert await fetch(world) == (-1, ErrorCode.NONE)


async def test_groups_of_other_coordinators_are_refused() -> None:
    async with open_world() as world:
        await world.coordinator.resign(0)
        assert (await join(world)).error_code == ErrorCode.NOT_COORDINATOR
        del world.topics.counts["__consumer_offsets"]
        assert await fetch(world) == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_a_reload_keeps_members_and_assignments() -> None:
    async with open_world() as world:
        member, generation = await bring_up(world)
        snapshot = list(world.log.snapshot())
        await world.coordinator.resign(0)
        await world.load()
        assert await beat(world, member, generation) == ErrorCode.NONE
        assert (await sync(world, member, generation, leads=False)).assignment == b"mine"
    async with open_world(records=snapshot) as again:
        assert await beat(again, member, generation) == ErrorCode.NONE


async def test_members_and_simple_consumers_commit_differently() -> None:
    async with open_world() as world:
        member, generation = await bring_up(world)
        assert await commit(world, 5) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(world, 5, member=member, generation=generation) == ErrorCode.NONE
        old = await commit(world, 5, member=member, generation=generation - 1)
        assert old == ErrorCode.ILLEGAL_GENERATION
        await leave(world, member)
        assert await commit(world, 6) == ErrorCode.NONE


async def test_groups_are_described_listed_and_deleted() -> None:
    async with open_world() as world:
        await commit(world, 1, group="simple")
        member, _ = await bring_up(world)
        request = DescribeGroupsRequest(
            groups=["g", "simple", "none", "g"], include_authorized_operations=True
        )
        described = (await world.call(request, DescribeGroupsResponse, version=6)).groups
        assert [group.group_state for group in described] == ["Stable", "Empty", "Dead"]
        assert [group.error_code for group in described] == [0, 0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert described[0].authorized_operations == {3, 6, 8, 10, 11}
        assert described[0].protocol_data == "range"
        shown = described[0].members[0]
        assert (shown.member_id, shown.client_id, shown.client_host) == (
            member,
            "tester",
            "/127.0.0.1",
        )
        assert (shown.member_metadata, shown.member_assignment) == (SUBSCRIPTION, b"mine")
        for version in range(6):
            old = DescribeGroupsRequest(groups=["none"])
            answer = await world.call(old, DescribeGroupsResponse, version=version)
            assert (answer.groups[0].error_code, answer.groups[0].group_state) == (0, "Dead")
        deleting = DeleteGroupsRequest(groups_names=["g", "simple"])
        deleted = await world.call(deleting, DeleteGroupsResponse)
        assert [result.error_code for result in deleted.results] == [ErrorCode.NON_EMPTY_GROUP, 0]


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], ["g", "simple"]),
        (["stable"], [], ["g"]),
        (["Empty"], ["Classic"], ["simple"]),
        ([], ["consumer"], []),
        (["Dead"], [], []),
    ],
)
async def test_groups_are_listed_by_state_and_type(
    states: list[str], types: list[str], expected: list[str]
) -> None:
    async with open_world() as world:
        await commit(world, 1, group="simple")
        await bring_up(world)
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        listed = (await world.call(request, ListGroupsResponse)).groups
        assert sorted(group.group_id for group in listed) == expected
        for version in range(5):
            await world.call(ListGroupsRequest(), ListGroupsResponse, version=version)


async def test_offsets_of_subscribed_topics_stay() -> None:
    config = GroupsConfig(group_initial_rebalance_delay_ms=0, offsets_retention_ms=1000)
    async with open_world(config=config) as world:
        member, generation = await bring_up(world)
        await commit(world, 5, member=member, generation=generation)
        await commit(world, 6, member=member, generation=generation, topic="other")
        subscribed = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
        assert await delete_offset(world, "g", "orders") == (ErrorCode.NONE, subscribed)
        world.wall_ms += 2000
        await world.coordinator.expire()
        assert await fetch(world) == (5, ErrorCode.NONE)
        offsets = world.coordinator.host_at(0).shard.offsets.of("g")
        assert offsets is not None
        assert [offset.topic for offset in offsets.all()] == ["orders"]
        await leave(world, member)
        world.wall_ms += 999
        await world.coordinator.expire()
        assert await fetch(world) == (5, ErrorCode.NONE), "retention begins with the last leaving"
        world.wall_ms += 1
        await world.coordinator.expire()
        assert await fetch(world) == (-1, ErrorCode.NONE)
        assert not world.coordinator.host_at(0).shard.group_ids(), "nothing is left of it"
        records = world.records
    async with open_world(records=records) as again:
        assert not again.coordinator.host_at(0).shard.group_ids()


async def test_only_earlier_deadlines_move_a_timer() -> None:
    due: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
    timers = Timers(due.put_nowait)
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    timers.set_at_latest((0, "late"), now_ms + 100_000)
    timers.set_at_latest((0, "soon"), now_ms + 200_000)
    timers.set_at_latest((0, "soon"), now_ms)
    timers.set_at_latest((0, "soon"), now_ms + 5)
    timers.set_at_latest((0, "never"), NEVER_MS)
    timers.set_at_latest((0, "cancelled"), now_ms)
    timers.cancel((0, "cancelled"))
    assert await due.get() == (0, "soon")
    assert due.empty()
    timers.close()
