"""Guards of consumer groups and their offsets.

Leaves offsets in transactions to `transaction_guards`.

Source: KIP-11; Kafka's KafkaApis.
"""

from collections.abc import Iterable
from typing import Final

from broker_layer.kafka.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
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
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from broker_layer.security.guards.guard import GuardedCall
from broker_layer.security.rights import NOT_AUTHORIZED
from metadata.security.acls import CLUSTER_NAME, Operation, ResourceType

_GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NULLABLE_PROTOCOL_VERSION: Final = 7
"""First version of JoinGroup in which the name of the protocol can be null."""

_Described = ConsumerGroupDescribeResponse.DescribedGroup
_CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic


def _reads(call: GuardedCall, group_id: str) -> bool:
    return call.rights.check(Operation.READ, ResourceType.GROUP, group_id)


# -- members -------------------------------------------------------------------------------------


async def join_group(call: GuardedCall) -> ApiMessage:
    """Guard JoinGroup."""
    assert isinstance(call.request, JoinGroupRequest), "the guard of this API"
    if _reads(call, call.request.group_id):
        return await call.serve(JoinGroupResponse)
    has_null = call.context.api_version >= _NULLABLE_PROTOCOL_VERSION
    return JoinGroupResponse(
        error_code=_GROUP_REFUSED,
        generation_id=-1,
        protocol_type=None,
        protocol_name=None if has_null else "",
        leader="",
        member_id="",
        members=[],
    )


async def sync_group(call: GuardedCall) -> ApiMessage:
    """Guard SyncGroup."""
    assert isinstance(call.request, SyncGroupRequest), "the guard of this API"
    if _reads(call, call.request.group_id):
        return await call.serve(SyncGroupResponse)
    return SyncGroupResponse(error_code=_GROUP_REFUSED, assignment=b"")


async def heartbeat(call: GuardedCall) -> ApiMessage:
    """Guard Heartbeat."""
    assert isinstance(call.request, HeartbeatRequest), "the guard of this API"
    if _reads(call, call.request.group_id):
        return await call.serve(HeartbeatResponse)
    return HeartbeatResponse(error_code=_GROUP_REFUSED)


async def leave_group(call: GuardedCall) -> ApiMessage:
    """Guard LeaveGroup."""
    assert isinstance(call.request, LeaveGroupRequest), "the guard of this API"
    if _reads(call, call.request.group_id):
        return await call.serve(LeaveGroupResponse)
    return LeaveGroupResponse(error_code=_GROUP_REFUSED, members=[])


async def consumer_group_heartbeat(call: GuardedCall) -> ApiMessage:
    """Guard ConsumerGroupHeartbeat: a member reads its group, and may see its topics."""
    request = call.request
    assert isinstance(request, ConsumerGroupHeartbeatRequest), "the guard of this API"
    code = ErrorCode.NONE
    if not _reads(call, request.group_id):
        code = _GROUP_REFUSED
    elif not _sees_all(call, request.subscribed_topic_names or ()):
        code = _TOPIC_REFUSED
    if code is ErrorCode.NONE:
        return await call.serve(ConsumerGroupHeartbeatResponse)
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=NOT_AUTHORIZED, assignment=None
    )


def _sees_all(call: GuardedCall, topics: Iterable[str]) -> bool:
    return all(call.rights.check(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in topics)


# -- administration ------------------------------------------------------------------------------


async def describe_groups(call: GuardedCall) -> ApiMessage:
    """Guard DescribeGroups."""
    request = call.request
    assert isinstance(request, DescribeGroupsRequest), "the guard of this API"
    request.groups, refused = call.split(
        request.groups, Operation.DESCRIBE, ResourceType.GROUP, lambda group_id: group_id
    )
    rows = [
        DescribeGroupsResponse.DescribedGroup(
            error_code=_GROUP_REFUSED,
            error_message=NOT_AUTHORIZED,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
        for group_id in refused
    ]
    response = await call.serve(DescribeGroupsResponse)
    response.groups = [*response.groups, *rows]
    return response


async def consumer_group_describe(call: GuardedCall) -> ApiMessage:
    """Guard ConsumerGroupDescribe: also the topics of the members must be visible."""
    request = call.request
    assert isinstance(request, ConsumerGroupDescribeRequest), "the guard of this API"
    request.group_ids, refused = call.split(
        request.group_ids, Operation.DESCRIBE, ResourceType.GROUP, lambda group_id: group_id
    )
    response = await call.serve(ConsumerGroupDescribeResponse)
    groups = [
        each if _sees_all(call, _topics_of(each)) else _undescribed(each.group_id, _TOPIC_REFUSED)
        for each in response.groups
    ]
    response.groups = [*groups, *(_undescribed(each, _GROUP_REFUSED) for each in refused)]
    return response


def _topics_of(group: _Described) -> Iterable[str]:
    """Return the topics that the description of a group names."""
    return dict.fromkeys(
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )


def _undescribed(group_id: str, code: ErrorCode) -> _Described:
    return _Described(
        error_code=code,
        error_message=NOT_AUTHORIZED,
        group_id=group_id,
        group_state="",
        assignor_name="",
        members=[],
    )


async def list_groups(call: GuardedCall) -> ApiMessage:
    """Guard ListGroups: leave out groups that the client may not describe."""
    response = await call.serve(ListGroupsResponse)
    may = call.rights.may
    if not may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        response.groups = [
            each
            for each in response.groups
            if may(Operation.DESCRIBE, ResourceType.GROUP, each.group_id)
        ]
    return response


async def delete_groups(call: GuardedCall) -> ApiMessage:
    """Guard DeleteGroups."""
    request = call.request
    assert isinstance(request, DeleteGroupsRequest), "the guard of this API"
    request.groups_names, refused = call.split(
        request.groups_names, Operation.DELETE, ResourceType.GROUP, lambda group_id: group_id
    )
    kind = DeleteGroupsResponse.DeletableGroupResult
    rows = [kind(group_id=each, error_code=_GROUP_REFUSED) for each in refused]
    response = await call.serve(DeleteGroupsResponse)
    response.results = [*response.results, *rows]
    return response


# -- offsets -------------------------------------------------------------------------------------


async def offset_commit(call: GuardedCall) -> ApiMessage:
    """Guard OffsetCommit: the client reads the group and the topics."""
    request = call.request
    assert isinstance(request, OffsetCommitRequest), "the guard of this API"
    if not _reads(call, request.group_id):
        return OffsetCommitResponse(
            topics=[_uncommitted(topic, _GROUP_REFUSED) for topic in request.topics]
        )
    request.topics, refused = call.split(
        request.topics, Operation.READ, ResourceType.TOPIC, lambda topic: topic.name
    )
    if refused and not request.topics:
        return OffsetCommitResponse(
            topics=[_uncommitted(topic, _TOPIC_REFUSED) for topic in refused]
        )
    response = await call.serve(OffsetCommitResponse)
    rows = [_uncommitted(topic, _TOPIC_REFUSED) for topic in refused]
    response.topics = [*response.topics, *rows]
    return response


def _uncommitted(
    topic: OffsetCommitRequest.OffsetCommitRequestTopic, code: ErrorCode
) -> _CommittedTopic:
    kind = _CommittedTopic.OffsetCommitResponsePartition
    return _CommittedTopic(
        name=topic.name,
        partitions=[
            kind(partition_index=each.partition_index, error_code=code) for each in topic.partitions
        ],
    )


async def offset_delete(call: GuardedCall) -> ApiMessage:
    """Guard OffsetDelete: the client deletes the group and reads the topics."""
    request = call.request
    assert isinstance(request, OffsetDeleteRequest), "the guard of this API"
    if not call.rights.check(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=_GROUP_REFUSED, topics=[])
    request.topics, refused = call.split(
        request.topics, Operation.READ, ResourceType.TOPIC, lambda topic: topic.name
    )
    response = await call.serve(OffsetDeleteResponse)
    if response.error_code == ErrorCode.NONE:
        kind = _DeletedTopic.OffsetDeleteResponsePartition
        rows = [
            _DeletedTopic(
                name=topic.name,
                partitions=[
                    kind(partition_index=each.partition_index, error_code=_TOPIC_REFUSED)
                    for each in topic.partitions
                ],
            )
            for topic in refused
        ]
        response.topics = [*response.topics, *rows]
    return response
