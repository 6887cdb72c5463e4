"""Handlers of ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Leaves decisions to `consumer_group`.

Source: Kafka's protocol, keys 68 and 69; KIP-848, KIP-1082, KIP-1099.
"""

import uuid
from functools import partial
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.groups.consumer.consumer_group import ConsumerGroup
from broker_layer.groups.consumer.consumer_values import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    HeartbeatRequested,
    HeartbeatResult,
    Partitions,
    by_topic,
    sorted_partitions,
)
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    bits_of,
)
from broker_layer.security.rights import operations_on, sees_topic
from broker_layer.turns import Turns
from metadata.security.acls import ResourceType

_OWN_MEMBER_ID_VERSION: Final = 1
_CONSUMER_MEMBER_TYPE: Final = 1

_Described = ConsumerGroupDescribeResponse.DescribedGroup
_Owned = _Described.Member.Assignment
_Assignment = ConsumerGroupHeartbeatResponse.Assignment


class ConsumerGroupHandlers:
    """APIs of the KIP-848 groups of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def heartbeat(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve ConsumerGroupHeartbeat."""
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
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
                    for topic_id, partitions in by_topic(result.assignment).items()
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=result.member_id,
            member_epoch=result.epoch,
            heartbeat_interval_ms=self._coordinator.config.consumer_heartbeat_interval_ms,
            assignment=assignment,
        )

    async def describe(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve ConsumerGroupDescribe; a group, which may be large, is described once."""
        assert isinstance(request, ConsumerGroupDescribeRequest)
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
                described = _Described(
                    error_code=error.code,
                    error_message=error.text,
                    group_id=group_id,
                    group_state="",
                    assignor_name="",
                    members=[],
                )
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
        return _Described(
            error_code=ErrorCode.NONE,
            group_id=group.group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor,
            members=[self._member(each) for each in group.members.values()],
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
            (topic_id, self._coordinator.topics.topic_name_of(topic_id), each)
            for topic_id, each in by_topic(partitions).items()
        ]
        return _Owned(
            topic_partitions=[
                _Owned.TopicPartitions(
                    topic_id=uuid.UUID(bytes=topic_id), topic_name=name, partitions=each
                )
                for topic_id, name, each in named
                if name is not None
            ]
        )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return sorted_partitions(
        (each.topic_id.bytes, partition)
        for each in request.topic_partitions
        if each.topic_id is not None
        for partition in each.partitions
    )
