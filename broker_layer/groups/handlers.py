"""Handlers of the group APIs, by API key.

Leaves decisions to the groups, waiting for the log to `group_host`, and committed offsets to
`offset_handlers`.

Source: Kafka's protocol, keys 11 to 16, 42, 68 and 69; KIP-345, KIP-394, KIP-518, KIP-559, KIP-800,
KIP-814, KIP-848, KIP-1043, KIP-1082, KIP-1099.
"""

import uuid
from functools import partial
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.groups.classic_group import ClassicGroup
from broker_layer.groups.consumer_group import ConsumerGroup
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.group_host import GroupHost
from broker_layer.groups.offset_handlers import (
    CheckOffsets,
    OffsetCommitHandlers,
    OffsetReadHandlers,
)
from broker_layer.groups.values import (
    CONSUMER_PROTOCOL_TYPE,
    JOIN_EPOCH,
    NO_MEMBER_ID,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    GroupState,
    HeartbeatRequested,
    HeartbeatResult,
    JoinRequested,
    JoinResult,
    Partitions,
    SyncRequested,
    SyncResult,
    sorted_partitions,
)
from broker_layer.handlers import Handler, RequestContext, Turns, answer, error_of, grouped, slices
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    bits_of,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.security.authorizer import operations_on, sees_topic
from metadata.security.acls import ResourceType

_KNOWN_MEMBER_ID_VERSION: Final = 4
_SKIP_ASSIGNMENT_VERSION: Final = 9
_NULLABLE_PROTOCOL_VERSION: Final = 7
_LEAVE_MANY_VERSION: Final = 3
_OWN_MEMBER_ID_VERSION: Final = 1
_NOT_FOUND_VERSION: Final = 6
_CONSUMER_MEMBER_TYPE: Final = 1
CLASSIC_TYPE: Final = "classic"
CONSUMER_TYPE: Final = "consumer"
_DescribedClassic = DescribeGroupsResponse.DescribedGroup
_Described = ConsumerGroupDescribeResponse.DescribedGroup


_Owned = _Described.Member.Assignment


_Assignment = ConsumerGroupHeartbeatResponse.Assignment


def handlers(
    coordinator: GroupCoordinator, check_offsets: CheckOffsets | None = None
) -> dict[int, Handler]:
    """Return the handlers by API key. With `check_offsets`, TxnOffsetCommit checks that the
    transaction
    is open.
    """
    membership = MembershipHandlers(coordinator)
    commits = OffsetCommitHandlers(coordinator, check_offsets)
    reads = OffsetReadHandlers(coordinator)
    consumers = ConsumerGroupHandlers(coordinator)
    admin = GroupAdminHandlers(coordinator)
    return {
        ApiKey.OFFSET_COMMIT: commits.offset_commit,
        ApiKey.OFFSET_FETCH: reads.offset_fetch,
        ApiKey.JOIN_GROUP: membership.join_group,
        ApiKey.HEARTBEAT: membership.heartbeat,
        ApiKey.LEAVE_GROUP: membership.leave_group,
        ApiKey.SYNC_GROUP: membership.sync_group,
        ApiKey.DESCRIBE_GROUPS: admin.describe_groups,
        ApiKey.LIST_GROUPS: admin.list_groups,
        ApiKey.TXN_OFFSET_COMMIT: commits.txn_offset_commit,
        ApiKey.DELETE_GROUPS: admin.delete_groups,
        ApiKey.OFFSET_DELETE: reads.offset_delete,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumers.heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumers.describe,
    }


class MembershipHandlers:
    """Membership APIs of the classic groups of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def join_group(self, request: JoinGroupRequest, context: RequestContext) -> ApiMessage:
        """Serve JoinGroup; the answer may wait for the rebalance."""
        try:
            result = await self._join(request, context)
        except TopicError as error:
            result = JoinResult(error.code, request.member_id)
        no_name = None if context.api_version >= _NULLABLE_PROTOCOL_VERSION else ""
        return JoinGroupResponse(
            error_code=result.error,
            generation_id=result.generation,
            protocol_type=result.protocol_type,
            protocol_name=no_name if result.protocol_name is None else result.protocol_name,
            leader=result.leader,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=[
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.metadata,
                )
                for member in result.members
            ],
        )

    async def sync_group(self, request: SyncGroupRequest, _: RequestContext) -> ApiMessage:
        """Serve SyncGroup; the answer may wait for the leader's assignment."""
        try:
            result = await self._sync(request)
        except TopicError as error:
            result = SyncResult(error.code)
        return SyncGroupResponse(
            error_code=result.error,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignment=result.assignment,
        )

    async def heartbeat(self, request: HeartbeatRequest, _: RequestContext) -> ApiMessage:
        """Serve Heartbeat."""
        try:
            host = self._host(request.group_id)
            group = _classic(host, request.group_id)
            error = group.heartbeat(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                host.clock.moment(),
            )
        except TopicError as refusal:
            error = refusal.code
        return HeartbeatResponse(error_code=error)

    async def leave_group(self, request: LeaveGroupRequest, context: RequestContext) -> ApiMessage:
        """Serve LeaveGroup, of one member or, from version 3 on, of several."""
        is_many = context.api_version >= _LEAVE_MANY_VERSION
        if is_many:
            leaving = [(member.member_id, member.group_instance_id) for member in request.members]
        else:
            leaving = [(request.member_id, None)]
        try:
            host = self._host(request.group_id)
            group = _classic(host, request.group_id)
            errors, actions = group.leave(leaving, host.clock.moment())
            host.perform(request.group_id, actions)
            host.shard.drop_if_unused(request.group_id)
            await host.settled()
        except TopicError as error:
            return LeaveGroupResponse(error_code=error.code)
        if not is_many:
            return LeaveGroupResponse(error_code=errors[0])
        return LeaveGroupResponse(
            members=[
                LeaveGroupResponse.MemberResponse(
                    member_id=member_id, group_instance_id=instance_id, error_code=error
                )
                for (member_id, instance_id), error in zip(leaving, errors, strict=True)
            ],
        )

    async def _join(self, request: JoinGroupRequest, context: RequestContext) -> JoinResult:
        host = self._host(request.group_id)
        config = self._coordinator.config
        shortest, longest = config.group_session_timeout_min_ms, config.group_session_timeout_max_ms
        if not shortest <= request.session_timeout_ms <= longest:
            text = (
                f"the session timeout must be {shortest} to {longest} ms,"
                f" not {request.session_timeout_ms}"
            )
            raise TopicError(ErrorCode.INVALID_SESSION_TIMEOUT, text)
        host.make_classic(request.group_id)
        if request.member_id == NO_MEMBER_ID:
            group = host.shard.classic_or_new(request.group_id)
        else:
            group = _classic(host, request.group_id)
        waiter, future = host.park_join()
        prefix = request.group_instance_id or context.client_id
        event = JoinRequested(
            waiter=waiter,
            member_id=request.member_id,
            new_member_id=self._coordinator.new_member_id(prefix),
            instance_id=request.group_instance_id,
            client_id=context.client_id,
            client_host=context.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms
                if request.rebalance_timeout_ms >= 0
                else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            protocols=tuple((row.name, bytes(row.metadata)) for row in request.protocols),
            is_id_required=context.api_version >= _KNOWN_MEMBER_ID_VERSION,
            can_skip_assignment=context.api_version >= _SKIP_ASSIGNMENT_VERSION,
        )
        host.perform(request.group_id, group.join(event, host.clock.moment()))
        host.shard.drop_if_unused(request.group_id)
        result = await future
        await host.settled()
        return result

    async def _sync(self, request: SyncGroupRequest) -> SyncResult:
        host = self._host(request.group_id)
        group = _classic(host, request.group_id)
        waiter, future = host.park_sync()
        event = SyncRequested(
            waiter=waiter,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple(
                (row.member_id, bytes(row.assignment)) for row in request.assignments
            ),
        )
        host.perform(request.group_id, group.sync(event, host.clock.moment()))
        result = await future
        await host.settled()
        return result

    def _host(self, group_id: str) -> GroupHost:
        if not group_id:
            raise TopicError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return self._coordinator.host_of(group_id)


def _classic(host: GroupHost, group_id: str) -> ClassicGroup:
    """Return an existing group. Raises TopicError UNKNOWN_MEMBER_ID if there is none."""
    group = host.shard.groups.get(group_id)
    if group is None:
        raise TopicError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id}")
    return group


class ConsumerGroupHandlers:
    """APIs of the KIP-848 groups of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ApiMessage:
        """Serve ConsumerGroupHeartbeat."""
        try:
            result = await self._heartbeat(request, context)
        except TopicError as error:
            result = HeartbeatResult(error.code, error.text)
        if result.error is not ErrorCode.NONE:
            return ConsumerGroupHeartbeatResponse(
                error_code=result.error, error_message=result.text, assignment=None
            )
        assignment = None
        if result.assignment is not None:
            assignment = _Assignment(
                topic_partitions=[
                    _Assignment.TopicPartitions(
                        topic_id=uuid.UUID(bytes=topic_id), partitions=partitions
                    )
                    for topic_id, partitions in grouped(result.assignment).items()
                ]
            )
        return answer(
            ConsumerGroupHeartbeatResponse,
            member_id=result.member_id,
            member_epoch=result.epoch,
            heartbeat_interval_ms=self._coordinator.config.consumer_heartbeat_interval_ms,
            assignment=assignment,
        )

    async def describe(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ApiMessage:
        """Serve ConsumerGroupDescribe; a group, which may be large, is described once."""
        groups, turns = [], Turns()
        for group_id in dict.fromkeys(request.group_ids):
            await turns.pass_on()
            try:
                if not group_id:
                    raise TopicError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
                host = self._coordinator.host_of(group_id)
                group = host.shard.consumers.get(group_id)
                if group is None:
                    text = f"Group {group_id} is not a consumer group."
                    raise TopicError(ErrorCode.GROUP_ID_NOT_FOUND, text)
                described = self._described(group)
                await host.settled()
            except TopicError as error:
                described = answer(_Described, error, group_id=group_id)
            is_shown = described.error_code == ErrorCode.NONE
            if is_shown and request.include_authorized_operations:
                operations = operations_on(context.rights, ResourceType.GROUP, group_id)
                described.authorized_operations = bits_of(operations)
            groups.append(described)
        return ConsumerGroupDescribeResponse(groups=groups)

    async def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> HeartbeatResult:
        self._check(request, context.api_version)
        group_id = request.group_id
        host = self._coordinator.host_of(group_id)
        if not self._coordinator.topics.is_complete:
            text = "this broker has not read all topics yet: retry"  # else unknown ones are revoked
            raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
        member_id = request.member_id or self._coordinator.new_member_id("member")
        if request.member_epoch == JOIN_EPOCH:
            host.require_no_classic_members(group_id)
            group = host.shard.consumer_or_new(group_id)
        elif group_id in host.shard.consumers:
            group = host.shard.consumers[group_id]
        else:
            raise TopicError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        timeout_ms = request.rebalance_timeout_ms
        topics = request.subscribed_topic_names
        event = HeartbeatRequested(
            member_id=member_id,
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=context.client_id,
            client_host=context.client_host,
            rebalance_timeout_ms=None if timeout_ms < 0 else timeout_ms,
            topics=None if topics is None else tuple(topics),
            pattern=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=_owned(request),
            sees=partial(sees_topic, context.rights),
        )
        result = group.heartbeat(event, host.clock.moment())
        host.store_consumer(group_id)
        await host.settled()
        return result

    def _check(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        """Raise TopicError for a request that is invalid for any group."""
        faults = [
            (not request.group_id, "GroupId can't be empty"),
            (request.instance_id == "", "InstanceId can't be empty"),
            (request.rack_id == "", "RackId can't be empty"),
            (request.member_epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid"),
            (
                not request.member_id
                and (api_version >= _OWN_MEMBER_ID_VERSION or request.member_epoch != JOIN_EPOCH),
                "MemberId can't be empty",
            ),
            (
                request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None,
                "InstanceId can't be null when leaving temporarily",
            ),
        ]
        if request.member_epoch == JOIN_EPOCH:
            named, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
            # A client's own pattern that selects no topic yet is an empty list.
            has_topics = named is not None or pattern is not None
            faults += [
                (request.rebalance_timeout_ms < 0, "RebalanceTimeoutMs must be given when joining"),
                (request.topic_partitions != [], "TopicPartitions must be empty when joining"),
                (not has_topics, "a subscription must be given when joining"),
            ]
        for is_wrong, text in faults:
            if is_wrong:
                raise TopicError(ErrorCode.INVALID_REQUEST, f"{text}.")
        offered = self._coordinator.config.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in offered:
            text = f"ServerAssignor {request.server_assignor} is not one of {', '.join(offered)}."
            raise TopicError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)

    def _described(self, group: ConsumerGroup) -> _Described:
        return answer(
            _Described,
            group_id=group.group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor,
            members=[self._member(member) for member in group.members.values()],
        )

    def _member(self, member: ConsumerMember) -> _Described.Member:
        return _Described.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
            subscribed_topic_regex=member.pattern or None,
            assignment=self._assignment(member.assigned),
            target_assignment=self._assignment(member.target),
            member_type=_CONSUMER_MEMBER_TYPE,
        )

    def _assignment(self, partitions: Partitions) -> _Owned:
        named = [
            (topic_id, self._coordinator.topics.topic_name_of(topic_id), numbers)
            for topic_id, numbers in grouped(partitions).items()
        ]
        return _Owned(
            topic_partitions=[
                _Owned.TopicPartitions(
                    topic_id=uuid.UUID(bytes=topic_id), topic_name=name, partitions=numbers
                )
                for topic_id, name, numbers in named
                if name is not None
            ]
        )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return sorted_partitions(
        (topic_partition.topic_id.bytes, partition)
        for topic_partition in request.topic_partitions
        if topic_partition.topic_id is not None
        for partition in topic_partition.partitions
    )


class GroupAdminHandlers:
    """Administrative APIs of the groups of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> ApiMessage:
        """Serve DescribeGroups; a group, which may be large, is described once."""
        groups, turns = [], Turns()
        for group_id in dict.fromkeys(request.groups):
            await turns.pass_on()
            try:
                host = self._coordinator.host_of(group_id)
                group = host.shard.classic(group_id)
                described = _described(group_id, group, context.api_version)
                await host.settled()
            except TopicError as error:
                described = answer(_DescribedClassic, error, group_id=group_id)
            if request.include_authorized_operations:
                operations = operations_on(context.rights, ResourceType.GROUP, group_id)
                described.authorized_operations = set(operations)
            groups.append(described)
        return DescribeGroupsResponse(groups=groups)

    async def list_groups(self, request: ListGroupsRequest, _: RequestContext) -> ApiMessage:
        """Serve ListGroups for the groups of this coordinator."""
        states = [name.lower() for name in request.states_filter or ()]
        types = [name.lower() for name in request.types_filter or ()]
        groups, turns = list[ListGroupsResponse.ListedGroup](), Turns()
        try:
            for host in self._coordinator.hosts():
                rows = list[ListGroupsResponse.ListedGroup]()
                for some in slices(host.shard.group_ids()):
                    rows += [
                        listed
                        for listed in _listed(host, some)
                        if not states or listed.group_state.lower() in states
                        if not types or listed.group_type in types
                    ]
                    await turns.pass_on()
                if host.refusal is None:  # else another broker lists them
                    groups += rows
        except TopicError as error:
            return ListGroupsResponse(error_code=error.code)
        return ListGroupsResponse(groups=groups)

    async def delete_groups(self, request: DeleteGroupsRequest, _: RequestContext) -> ApiMessage:
        """Serve DeleteGroups: delete groups without members, and their offsets."""
        results, turns = [], Turns()
        for group_id in request.groups_names:
            await turns.pass_on()
            error = await error_of(self._delete(group_id))
            kind = DeleteGroupsResponse.DeletableGroupResult
            results.append(answer(kind, error, group_id=group_id))
        return DeleteGroupsResponse(results=results)

    async def _delete(self, group_id: str) -> None:
        host = self._coordinator.host_of(group_id)
        group = host.shard.classic(group_id)
        consumers = host.shard.consumers.get(group_id)
        if group is None and consumers is None:
            raise TopicError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        has_consumers = consumers is not None and bool(consumers.members)
        if has_consumers or (group is not None and group.state is not GroupState.EMPTY):
            text = f"group {group_id} has members: stop them first"
            raise TopicError(ErrorCode.NON_EMPTY_GROUP, text)
        host.write(host.shard.removal_records(group_id))
        host.shard.groups.pop(group_id, None)
        host.shard.consumers.pop(group_id, None)
        await host.settled()


def _described(group_id: str, group: ClassicGroup | None, api_version: int) -> _DescribedClassic:
    if group is None:
        error = TopicError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        known = error if api_version >= _NOT_FOUND_VERSION else None
        return answer(_DescribedClassic, known, group_id=group_id, group_state=GroupState.DEAD)
    is_stable = group.state is GroupState.STABLE
    return answer(
        _DescribedClassic,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            _DescribedClassic.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.roster.members.values()
        ],
    )


def _listed(host: GroupHost, group_ids: list[str]) -> list[ListGroupsResponse.ListedGroup]:
    listed = []
    for group_id in group_ids:
        group, consumers = host.shard.classic(group_id), host.shard.consumers.get(group_id)
        if consumers is not None:
            shown = (CONSUMER_PROTOCOL_TYPE, consumers.state, CONSUMER_TYPE)
        elif group is not None:
            shown = (group.protocol_type, group.state.value, CLASSIC_TYPE)
        else:
            continue  # it was removed meanwhile
        protocol_type, state, group_type = shown
        listed.append(
            ListGroupsResponse.ListedGroup(
                group_id=group_id,
                protocol_type=protocol_type,
                group_state=state,
                group_type=group_type,
            )
        )
    return listed
