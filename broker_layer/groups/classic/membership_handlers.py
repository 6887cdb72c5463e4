"""Handlers of JoinGroup, SyncGroup, Heartbeat and LeaveGroup for classic groups.

Leaves decisions to `classic_group`, and waiting for the log to `group_host`.

Source: Kafka's protocol, keys 11 to 14; KIP-345, KIP-394, KIP-559, KIP-800, KIP-814.
"""

from typing import Final

from broker_layer.errors import TopicError
from broker_layer.groups.classic.classic_group import ClassicGroup
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.group_host import GroupHost
from broker_layer.groups.values import (
    NO_MEMBER_ID,
    JoinRequested,
    JoinResult,
    SyncRequested,
    SyncResult,
)
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_KNOWN_MEMBER_ID_VERSION: Final = 4
_SKIP_ASSIGNMENT_VERSION: Final = 9
_NULLABLE_PROTOCOL_VERSION: Final = 7
_LEAVE_MANY_VERSION: Final = 3


class MembershipHandlers:
    """Membership APIs of the classic groups of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def join_group(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve JoinGroup; the answer may wait for the rebalance."""
        assert isinstance(request, JoinGroupRequest)
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
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.metadata,
                )
                for each in result.members
            ],
        )

    async def sync_group(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve SyncGroup; the answer may wait for the leader's assignment."""
        assert isinstance(request, SyncGroupRequest)
        del context
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

    async def heartbeat(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve Heartbeat."""
        assert isinstance(request, HeartbeatRequest)
        del context
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

    async def leave_group(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve LeaveGroup, of one member or, from version 3 on, of several."""
        assert isinstance(request, LeaveGroupRequest)
        is_many = context.api_version >= _LEAVE_MANY_VERSION
        if is_many:
            leaving = [(each.member_id, each.group_instance_id) for each in request.members]
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
            return LeaveGroupResponse(error_code=error.code, members=[])
        if not is_many:
            return LeaveGroupResponse(error_code=errors[0])
        return LeaveGroupResponse(
            error_code=ErrorCode.NONE,
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
            protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
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
                (each.member_id, bytes(each.assignment)) for each in request.assignments
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
