"""Guard of OffsetFetch: the client describes the groups and the topics.

Invariants: a topic that is refused does not reach the handler; an answer about all topics of a
group leaves out topics that the client may not see.

Source: KIP-11, KIP-709; Kafka's KafkaApis.
"""

from collections.abc import Iterable
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ApiMessage, OffsetFetchRequest, OffsetFetchResponse
from broker_layer.security.guards.guard import GuardedCall
from broker_layer.security.rights import sees_topic
from metadata.security.acls import Operation, ResourceType

_MANY_GROUPS_VERSION: Final = 8
_GROUP_ERROR_VERSION: Final = 2
_GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_OFFSET: Final = -1

_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_AskedTopic = OffsetFetchRequest.OffsetFetchRequestTopic
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics
_AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_AskedGroupTopic = _AskedGroup.OffsetFetchRequestTopics


async def offset_fetch(call: GuardedCall) -> ApiMessage:
    """Guard OffsetFetch, for one group or, from version 8 on, for several."""
    request = call.request
    assert isinstance(request, OffsetFetchRequest), "the guard of this API"
    if call.context.api_version >= _MANY_GROUPS_VERSION:
        return await _fetch_groups(call, request)
    asked = request.topics
    if not _describes(call, request.group_id):
        if call.context.api_version >= _GROUP_ERROR_VERSION:
            return OffsetFetchResponse(error_code=_GROUP_REFUSED, topics=[])
        rows = [_unfetched(each, _GROUP_REFUSED) for each in asked or ()]
        return OffsetFetchResponse(topics=rows)
    if asked is None:
        response = await call.serve(OffsetFetchResponse)
        response.topics = [each for each in response.topics if sees_topic(call.rights, each.name)]
        return response
    request.topics, refused = call.split(
        asked, Operation.DESCRIBE, ResourceType.TOPIC, lambda topic: topic.name
    )
    response = await call.serve(OffsetFetchResponse)
    if response.error_code == ErrorCode.NONE:
        rows = [_unfetched(each, _TOPIC_REFUSED) for each in refused]
        response.topics = [*response.topics, *rows]
    return response


async def _fetch_groups(call: GuardedCall, request: OffsetFetchRequest) -> OffsetFetchResponse:
    allowed: list[_AskedGroup] = []
    refused: list[_Group] = []
    refused_topics: list[list[_AskedGroupTopic] | None] = []
    for group in request.groups:
        if not _describes(call, group.group_id):
            refused.append(_Group(group_id=group.group_id, error_code=_GROUP_REFUSED, topics=[]))
            continue
        allowed.append(group)
        rest: list[_AskedGroupTopic] | None = None
        if group.topics is not None:
            group.topics, rest = call.split(
                group.topics, Operation.DESCRIBE, ResourceType.TOPIC, lambda topic: topic.name
            )
        refused_topics.append(rest)
    request.groups = allowed
    response = await call.serve(OffsetFetchResponse)
    for found, rest in zip(response.groups, refused_topics, strict=True):
        if rest is None:
            found.topics = [each for each in found.topics if sees_topic(call.rights, each.name)]
        elif found.error_code == ErrorCode.NONE:
            found.topics = [*found.topics, *_unfetched_in_group(rest)]
    response.groups = [*response.groups, *refused]
    return response


def _describes(call: GuardedCall, group_id: str) -> bool:
    return call.rights.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)


def _unfetched(topic: _AskedTopic, code: ErrorCode) -> _Topic:
    return _Topic(
        name=topic.name,
        partitions=[
            _Topic.OffsetFetchResponsePartition(
                partition_index=each,
                committed_offset=_NO_OFFSET,
                committed_leader_epoch=-1,
                metadata="",
                error_code=code,
            )
            for each in topic.partition_indexes
        ],
    )


def _unfetched_in_group(topics: Iterable[_AskedGroupTopic]) -> list[_GroupTopic]:
    return [
        _GroupTopic(
            name=topic.name,
            partitions=[
                _GroupTopic.OffsetFetchResponsePartitions(
                    partition_index=each,
                    committed_offset=_NO_OFFSET,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=_TOPIC_REFUSED,
                )
                for each in topic.partition_indexes
            ],
        )
        for topic in topics
    ]
