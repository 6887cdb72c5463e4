"""Guards of topics and their records.

Leaves Produce and Fetch to their services, and Metadata and DescribeTopicPartitions to their
handlers, which leave out what the client may not see.

Invariants: a topic that is refused does not reach the handler; the name of a topic is not returned
to a client that gave only its id and may not describe it.

Source: KIP-11; Kafka's KafkaApis.
"""

from typing import Final
from uuid import UUID

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from broker_layer.security.guards.guard import GuardedCall
from broker_layer.security.rights import NOT_AUTHORIZED, creates_topic
from metadata.security.acls import Operation, ResourceType

_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_BY_ID_VERSION: Final = 6
"""First version of DeleteTopics that accepts ids as well as names."""

_Deleted = DeleteTopicsResponse.DeletableTopicResult
_AskedDeletion = DeleteTopicsRequest.DeleteTopicState


async def list_offsets(call: GuardedCall) -> ApiMessage:
    """Guard ListOffsets."""
    request = call.request
    assert isinstance(request, ListOffsetsRequest), "the guard of this API"
    request.topics, refused = call.split(
        request.topics, Operation.DESCRIBE, ResourceType.TOPIC, lambda topic: topic.name
    )
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    rows = [
        kind(
            name=topic.name,
            partitions=[
                kind.ListOffsetsPartitionResponse(
                    partition_index=each.partition_index,
                    error_code=_REFUSED,
                    timestamp=-1,
                    offset=-1,
                    leader_epoch=-1,
                )
                for each in topic.partitions
            ],
        )
        for topic in refused
    ]
    response = await call.serve(ListOffsetsResponse)
    response.topics = [*response.topics, *rows]
    return response


async def offset_for_leader_epoch(call: GuardedCall) -> ApiMessage:
    """Guard OffsetForLeaderEpoch."""
    request = call.request
    assert isinstance(request, OffsetForLeaderEpochRequest), "the guard of this API"
    request.topics, refused = call.split(
        request.topics, Operation.DESCRIBE, ResourceType.TOPIC, lambda topic: topic.topic
    )
    kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    rows = [
        kind(
            topic=topic.topic,
            partitions=[
                kind.EpochEndOffset(
                    error_code=_REFUSED,
                    partition=each.partition,
                    leader_epoch=-1,
                    end_offset=-1,
                )
                for each in topic.partitions
            ],
        )
        for topic in refused
    ]
    response = await call.serve(OffsetForLeaderEpochResponse)
    response.topics = [*response.topics, *rows]
    return response


async def delete_records(call: GuardedCall) -> ApiMessage:
    """Guard DeleteRecords."""
    request = call.request
    assert isinstance(request, DeleteRecordsRequest), "the guard of this API"
    request.topics, refused = call.split(
        request.topics, Operation.DELETE, ResourceType.TOPIC, lambda topic: topic.name
    )
    kind = DeleteRecordsResponse.DeleteRecordsTopicResult
    rows = [
        kind(
            name=topic.name,
            partitions=[
                kind.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=-1, error_code=_REFUSED
                )
                for each in topic.partitions
            ],
        )
        for topic in refused
    ]
    response = await call.serve(DeleteRecordsResponse)
    response.topics = [*response.topics, *rows]
    return response


async def describe_producers(call: GuardedCall) -> ApiMessage:
    """Guard DescribeProducers."""
    request = call.request
    assert isinstance(request, DescribeProducersRequest), "the guard of this API"
    request.topics, refused = call.split(
        request.topics, Operation.READ, ResourceType.TOPIC, lambda topic: topic.name
    )
    kind = DescribeProducersResponse.TopicResponse
    rows = [
        kind(
            name=topic.name,
            partitions=[
                kind.PartitionResponse(
                    partition_index=each,
                    error_code=_REFUSED,
                    error_message=NOT_AUTHORIZED,
                    active_producers=[],
                )
                for each in topic.partition_indexes
            ],
        )
        for topic in refused
    ]
    response = await call.serve(DescribeProducersResponse)
    response.topics = [*response.topics, *rows]
    return response


async def create_topics(call: GuardedCall) -> ApiMessage:
    """Guard CreateTopics; settings of new topics are shown only with the right to describe them."""
    request = call.request
    assert isinstance(request, CreateTopicsRequest), "the guard of this API"
    allowed, rows = [], []
    for topic in request.topics:
        if creates_topic(call.rights, topic.name):
            allowed.append(topic)
            continue
        rows.append(
            CreateTopicsResponse.CreatableTopicResult(
                name=topic.name,
                topic_id=UUID(int=0),
                error_code=_REFUSED,
                error_message=NOT_AUTHORIZED,
                num_partitions=-1,
                replication_factor=-1,
                configs=[],
            )
        )
    request.topics = allowed
    response = await call.serve(CreateTopicsResponse)
    for each in response.topics:
        is_created = each.error_code == ErrorCode.NONE
        settings = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, each.name)
        if is_created and not call.rights.may(*settings):
            each.topic_config_error_code = _REFUSED
            each.num_partitions, each.replication_factor, each.configs = -1, -1, None
    response.topics = [*response.topics, *_once(rows)]
    return response


def _once(
    rows: list[CreateTopicsResponse.CreatableTopicResult],
) -> list[CreateTopicsResponse.CreatableTopicResult]:
    """Return one row for each name, as the answer must have."""
    return list({each.name: each for each in rows}.values())


async def create_partitions(call: GuardedCall) -> ApiMessage:
    """Guard CreatePartitions."""
    request = call.request
    assert isinstance(request, CreatePartitionsRequest), "the guard of this API"
    request.topics, refused = call.split(
        request.topics, Operation.ALTER, ResourceType.TOPIC, lambda topic: topic.name
    )
    rows = {
        topic.name: CreatePartitionsResponse.CreatePartitionsTopicResult(
            name=topic.name, error_code=_REFUSED, error_message=NOT_AUTHORIZED
        )
        for topic in refused
    }
    response = await call.serve(CreatePartitionsResponse)
    response.results = [*response.results, *rows.values()]
    return response


async def delete_topics(call: GuardedCall) -> ApiMessage:
    """Guard DeleteTopics, by name or by id."""
    request = call.request
    assert isinstance(request, DeleteTopicsRequest), "the guard of this API"
    rows: list[_Deleted] = []
    if call.context.api_version < _BY_ID_VERSION:
        request.topic_names, refused = call.split(
            request.topic_names, Operation.DELETE, ResourceType.TOPIC, lambda name: name
        )
        rows = [_not_deleted(name, None, _REFUSED) for name in refused]
    else:
        allowed = []
        for each in request.topics:
            row = _deletion_refusal(call, each)
            if row is None:
                allowed.append(each)
            else:
                rows.append(row)
        request.topics = allowed
    response = await call.serve(DeleteTopicsResponse)
    response.responses = [*response.responses, *rows]
    return response


def _deletion_refusal(call: GuardedCall, asked: _AskedDeletion) -> _Deleted | None:
    """Return the row of a deletion that is refused."""
    name, topic_id = asked.name, asked.topic_id
    if name is None:
        # An id that this broker does not know yet is refused too: its handler could learn of it.
        name = None if topic_id is None else call.topic_ids.topic_name_of(topic_id.bytes)
        if name is None or not call.rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return _not_deleted(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    if call.rights.check(Operation.DELETE, ResourceType.TOPIC, name):
        return None
    return _not_deleted(name, topic_id, _REFUSED)


def _not_deleted(name: str | None, topic_id: UUID | None, code: ErrorCode) -> _Deleted:
    is_refused = code is _REFUSED
    return _Deleted(
        name=name,
        topic_id=topic_id or UUID(int=0),
        error_code=code,
        error_message=NOT_AUTHORIZED if is_refused else "no topic has this id",
    )
