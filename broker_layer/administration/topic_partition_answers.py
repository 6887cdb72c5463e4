"""Handler of DescribeTopicPartitions: topics and their partitions, in several parts.

Leaves one partition to `topic_metadata_answers.py`.

Invariants: topics are in the order of their names; an answer has at most PARTITIONS_MAX partitions,
and its cursor is the place of the next partition. A topic that appears or disappears between two
parts is shown or left out; no other topic is shown twice or missed. With an authorizer, an answer
names only topics that the client may describe, or that it named itself.

Source: KIP-966.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from broker_layer.administration.topic_metadata_answers import MetadataAnswers
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.topic_changes import TopicChanges
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    bits_of,
)
from broker_layer.security.rights import operations_on, seen_topics
from broker_layer.turns import Turns
from metadata.security.acls import Operation, ResourceType
from metadata.topics.topic import TopicRecord

PARTITIONS_MAX: Final = 2_000
"""Maximum number of partitions in one answer, whatever the request asks for."""

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


@dataclass(slots=True, eq=False, repr=False)
class TopicPartitionAnswers:
    """Handler of DescribeTopicPartitions for one broker."""

    _view: ClusterView
    _changes: TopicChanges
    _metadata: MetadataAnswers

    async def answer(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer DescribeTopicPartitions; no topic requests all."""
        assert isinstance(request, DescribeTopicPartitionsRequest), "the dispatcher selects by API"
        cursor = request.cursor
        first_name, first_partition = "", 0
        if cursor is not None:
            first_name, first_partition = cursor.topic_name, max(cursor.partition_index, 0)
        rights = context.rights
        names = [each.name for each in request.topics] or seen_topics(rights, self._view.topics)
        room = max(min(request.response_partition_limit, PARTITIONS_MAX), 1)
        topics: list[_Topic] = []
        following: _Cursor | None = None
        turns, find = Turns(), self._changes.finder()
        for name in sorted({each: None for each in names if each >= first_name}):
            await turns.pass_on()
            if room == 0:
                following = _Cursor(topic_name=name, partition_index=0)
                break
            if rights and not rights.check(Operation.DESCRIBE, ResourceType.TOPIC, name):
                topics.append(_without(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            record = self._view.topics.get(name) or await find(name)
            if record is None:
                topics.append(_without(name, self._metadata.why_unknown(name)))
                continue
            first = first_partition if name == first_name else 0
            end = min(len(record.partitions), first + room)
            topics.append(self._described(record, range(first, end), context))
            room -= max(end - first, 0)
            if end < len(record.partitions):
                following = _Cursor(topic_name=name, partition_index=end)
                break
        return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)

    def _described(self, record: TopicRecord, partitions: range, context: RequestContext) -> _Topic:
        return _Topic(
            error_code=ErrorCode.NONE,
            name=record.name,
            topic_id=UUID(bytes=bytes(record.topic_id)),
            is_internal=record.is_internal,
            partitions=[self._partition(record, each, context) for each in partitions],
            topic_authorized_operations=bits_of(
                operations_on(context.rights, ResourceType.TOPIC, record.name)
            ),
        )

    def _partition(self, record: TopicRecord, number: int, context: RequestContext) -> _Partition:
        shown = self._metadata.partition(record, number, context)
        return _Partition(
            error_code=shown.error_code,
            partition_index=number,
            leader_id=shown.leader_id,
            leader_epoch=shown.leader_epoch,
            replica_nodes=shown.replica_nodes,
            isr_nodes=shown.isr_nodes,
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=shown.offline_replicas,
        )


def _without(name: str, code: ErrorCode) -> _Topic:
    """Return the row of a topic that is not described."""
    return _Topic(
        error_code=code, name=name, topic_id=UUID(int=0), is_internal=False, partitions=[]
    )
