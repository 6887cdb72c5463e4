"""Handlers of Metadata and DescribeTopicPartitions, DescribeCluster, FindCoordinator and
DescribeLogDirs.

Leaves the state of the cluster to `cluster_view.py`, replicas to `led_partitions.py`, and creating
requested and internal topics to `topic_changes.py`.

Source: KIP-113 and KIP-827 (log directories), KIP-430, KIP-516, KIP-699, KIP-700, KIP-966.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.led_partitions import ReplicaView
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.control.topic_changes import CREATION_TIMEOUT_S, TopicChanges
from broker_layer.coordinator_partitions import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    partition_of_key,
)
from broker_layer.errors import TopicError
from broker_layer.handlers import AnswerT, RequestContext, Turns, answer
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    bits_of,
    encode_response,
)
from broker_layer.log.topic_log import TopicLog
from broker_layer.security.authorizer import (
    Rights,
    creates_topic,
    operations_on,
    seen_topics,
    sees_topic,
)
from metadata.errors import MetadataError
from metadata.security.acls import Operation, ResourceType
from metadata.topics.topic import NO_LEADER, TopicRecord

BATCH_VERSION: Final = 4
"""First version of FindCoordinator that can request several keys."""
NULLABLE_NAMES_VERSION: Final = 12
"""First version in which the name is null for a topic that is known by its id only."""
LOG_DIRECTORY: Final = "/ledgers"
"""Name of the single log directory of a broker. The partitions are in ledgers on bookies."""
ENDPOINT_BROKERS: Final = 1
CACHE_S: Final = 1.0
CACHED_MAX: Final = 32
PARTITIONS_MAX: Final = 2_000
"""Maximum number of partitions in one answer, whatever the request asks for."""
_STATE_TOPICS: Final = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
_Coordinator = FindCoordinatorResponse.Coordinator


_Directory = DescribeLogDirsResponse.DescribeLogDirsResult


_DirectoryTopic = _Directory.DescribeLogDirsTopic


_DirectoryPartition = _DirectoryTopic.DescribeLogDirsPartition


_Found = tuple[int, str, int] | TopicError
"""Id, host and port of a coordinator, or why none was found."""


@dataclass(eq=False, repr=False)
class ClusterAnswers:
    """Handlers of one broker for requests about the cluster."""

    _view: ClusterView
    _manager: PartitionManager
    _changes: TopicChanges
    _cluster_id: str

    async def describe_cluster(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer DescribeCluster."""
        if context.api_version > 0 and request.endpoint_type != ENDPOINT_BROKERS:
            text = "only brokers can be described: there are no separate controllers"
            refusal = TopicError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, text)
            return answer(DescribeClusterResponse, refusal, cluster_id=self._cluster_id)
        kind = DescribeClusterResponse.DescribeClusterBroker
        brokers = [
            kind(broker_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in self._view.reached_brokers(context.listener)
        ]
        response = answer(
            DescribeClusterResponse,
            cluster_id=self._cluster_id,
            controller_id=self._view.controller_id,
            brokers=brokers,
        )
        if request.include_cluster_authorized_operations:
            operations = operations_on(context.rights, ResourceType.CLUSTER)
            response.authorized_operations = set(operations)
        return response

    # -- coordinators ----------------------------------------------------------------------------

    async def find_coordinator(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer FindCoordinator; creates the internal topic if it does not exist."""
        key_type = request.key_type if context.api_version > 0 else 0
        if context.api_version < BATCH_VERSION:
            (leader,) = await self._find(key_type, [request.key], context)
            return _coordinator(FindCoordinatorResponse, leader)
        keys = list(request.coordinator_keys)
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(_Coordinator, leader, key=key)
                for key, leader in zip(keys, await self._find(key_type, keys, context), strict=True)
            ]
        )

    async def _find(
        self, key_type: int, keys: Iterable[str], context: RequestContext
    ) -> list[_Found]:
        topic = _STATE_TOPICS.get(key_type)
        if topic is None:
            text = f"there are no coordinators of type {key_type}: use 0 (group) or 1 (transaction)"
            return [TopicError(ErrorCode.INVALID_REQUEST, text) for _ in keys]
        try:
            record = await self._changes.ensure(topic, CREATION_TIMEOUT_S)
        except TopicError as error:
            return [TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.text) for _ in keys]
        count = len(record.partitions)
        leaders, turns = list[_Found](), Turns()
        for key in keys:
            leaders.append(self._leader(topic, partition_of_key(key, count), context))
            await turns.pass_on()
        return leaders

    def _leader(self, topic: str, partition: int, context: RequestContext) -> _Found:
        leader = self._view.leader_of(topic, partition)
        address = None if leader is None else self._view.address_of(leader[0], context.listener)
        if leader is None or address is None:
            text = f"{topic}-{partition} has no leader now: retry"
            return TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return leader[0], *address

    # -- log directories -------------------------------------------------------------------------

    async def describe_log_dirs(
        self, request: DescribeLogDirsRequest, _: RequestContext
    ) -> ApiMessage:
        """Answer DescribeLogDirs: the sizes of the partitions that this broker leads."""
        asked: dict[str, dict[int, None]] | None = None
        if request.topics is not None:
            asked = {topic.topic: dict.fromkeys(topic.partitions) for topic in request.topics}
        topics, turns = dict[str, list[_DirectoryPartition]](), Turns()
        for log in self._manager.logs():
            await turns.pass_on()
            partition = log.key.partition
            if asked is None or partition in asked.get(log.topic, ()):
                topics.setdefault(log.topic, []).append(
                    _DirectoryPartition(
                        partition_index=partition, partition_size=await _size_of(log)
                    )
                )
        directory = _Directory(
            log_dir=LOG_DIRECTORY,
            topics=[
                _DirectoryTopic(name=name, partitions=partitions)
                for name, partitions in sorted(topics.items())
            ],
        )
        return DescribeLogDirsResponse(results=[directory])


def _coordinator(kind: Callable[..., AnswerT], leader: _Found, **fields: Any) -> AnswerT:
    if isinstance(leader, TopicError):
        return answer(kind, leader, node_id=-1, port=-1, **fields)
    node_id, host, port = leader
    return answer(kind, node_id=node_id, host=host, port=port, **fields)


async def _size_of(log: TopicLog) -> int:
    """Return the size of a log in bytes, or the last known size if it cannot be measured now."""
    try:
        return await log.measure()
    except (TopicError, MetadataError):
        return log.size_bytes


_Broker = MetadataResponse.MetadataResponseBroker


_Topic = MetadataResponse.MetadataResponseTopic


_Partition = _Topic.MetadataResponsePartition


_AskedTopic = MetadataRequest.MetadataRequestTopic


_CacheKey = tuple[int, str, bool, bool]
"""Version, listener, and whether the operations on topics and on the cluster are shown."""


@dataclass(frozen=True, slots=True)
class _Cached:
    view_epoch: int
    made_s: float
    body: bytes


@dataclass(eq=False, repr=False)
class MetadataAnswers:
    """Handler of Metadata for one broker.

    The leader epoch of a partition never decreases between two answers of one broker. An answer
    about all topics is encoded once for each form of the request, listener and change of the view;
    its replicas are at most CACHE_S seconds old. With an authorizer, an answer names only topics
    that the client may describe, or that it named itself.
    """

    _view: ClusterView
    _replicas: ReplicaView
    _changes: TopicChanges
    _config: ControlConfig
    _cluster_id: str
    _cached: dict[_CacheKey, _Cached] = field(default_factory=dict, init=False)

    async def answer(self, request: MetadataRequest, context: RequestContext) -> ApiMessage | bytes:
        """Answer Metadata."""
        asked = request.topics
        if asked is None or (context.api_version == 0 and not asked):
            return await self._all(request, context)
        topics, turns = dict[tuple[str | None, UUID | None], _Topic](), Turns()
        find = self._changes.finder()
        for topic in asked:
            key = topic.name, topic.topic_id if topic.name is None else None
            if key not in topics:
                topics[key] = await self._asked(topic, request, context, find)
                await turns.pass_on()
        response = self._response(topics.values(), context)
        return self._with_operations(response, request, context.rights)

    async def _all(self, request: MetadataRequest, context: RequestContext) -> ApiMessage | bytes:
        if context.rights is not None:
            names = seen_topics(context.rights, self._view.topics)
            if len(names) < len(self._view.topics) or _asks_operations(request):
                seen, turns = list[_Topic](), Turns()
                for name in names:
                    await turns.pass_on()
                    record = self._view.topics.get(name)
                    if record is not None:
                        seen.append(self._described(record, context))
                response = self._response(seen, context)
                return self._with_operations(response, request, context.rights)
        return self._shared(request, context)

    def _shared(self, request: MetadataRequest, context: RequestContext) -> bytes:
        """Return the encoded answer about all topics, which is the same for all clients."""
        key = (
            context.api_version,
            context.listener,
            bool(request.include_topic_authorized_operations),
            bool(request.include_cluster_authorized_operations),
        )
        now_s = asyncio.get_running_loop().time()
        cached = self._cached.get(key)
        if (
            cached is None
            or cached.view_epoch != self._view.epoch
            or now_s - cached.made_s > CACHE_S
        ):
            records = self._view.topics.values()
            response = self._response(
                [self._described(record, context) for record in records], context
            )
            response = self._with_operations(response, request, None)
            body = bytes(encode_response(response, context.api_version))
            cached = _Cached(self._view.epoch, now_s, body)
            if len(self._cached) >= CACHED_MAX:
                self._cached.clear()
            self._cached[key] = cached
        return cached.body

    async def _asked(
        self,
        asked: _AskedTopic,
        request: MetadataRequest,
        context: RequestContext,
        find: Callable[[str], Awaitable[TopicRecord | None]],
    ) -> _Topic:
        name = asked.name
        if name is None:
            known = (
                None if asked.topic_id is None else self._view.topic_name_of(asked.topic_id.bytes)
            )
            if known is None or not sees_topic(context.rights, known):
                shown = None if context.api_version >= NULLABLE_NAMES_VERSION else ""
                return _refused(_Topic, shown, ErrorCode.UNKNOWN_TOPIC_ID, asked.topic_id)
            name = known
        elif not _may_describe(context.rights, name):
            return _refused(_Topic, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        record = self._view.topics.get(name) or await find(name)
        if record is None:
            may_create = context.api_version < 4 or request.allow_auto_topic_creation  # noqa: PLR2004
            if not (may_create and self._config.creates_topics):
                return _refused(_Topic, name, self.why_unknown(name))
            if not creates_topic(context.rights, name):
                return _refused(_Topic, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            try:
                record = await self._changes.ensure(name, CREATION_TIMEOUT_S)
            except TopicError as error:
                retriable = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE)
                code = ErrorCode.LEADER_NOT_AVAILABLE if error.code in retriable else error.code
                return _refused(_Topic, name, code)
        return self._described(record, context)

    def why_unknown(self, name: str) -> ErrorCode:
        """Return the error for a topic that does not exist."""
        try:
            self._changes.check_name_form(name)
        except TopicError as error:
            return error.code
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _response(self, topics: Iterable[_Topic], context: RequestContext) -> MetadataResponse:
        brokers = [
            _Broker(node_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in self._view.reached_brokers(context.listener)
        ]
        return MetadataResponse(
            brokers=brokers,
            cluster_id=self._cluster_id,
            controller_id=self._view.controller_id,
            topics=list(topics),
        )

    @staticmethod
    def _with_operations(
        response: MetadataResponse, request: MetadataRequest, rights: Rights | None
    ) -> MetadataResponse:
        """Add the authorized operations that the request asks for."""
        if request.include_cluster_authorized_operations:
            response.authorized_operations = set(operations_on(rights, ResourceType.CLUSTER))
        if request.include_topic_authorized_operations:
            for topic in response.topics:
                if topic.error_code == ErrorCode.NONE:
                    assert topic.name is not None, "topics without an error have a name"
                    operations = operations_on(rights, ResourceType.TOPIC, topic.name)
                    topic.authorized_operations = set(operations)
        return response

    def _described(self, record: TopicRecord, context: RequestContext) -> _Topic:
        return _Topic(
            error_code=ErrorCode.NONE,
            name=record.name,
            topic_id=UUID(bytes=bytes(record.topic_id)),
            is_internal=record.is_internal,
            partitions=[
                self.partition(record, partition, context)
                for partition in range(len(record.partitions))
            ],
        )

    def partition(
        self, record: TopicRecord, partition: int, context: RequestContext
    ) -> MetadataResponse.MetadataResponseTopic.MetadataResponsePartition:
        """Return what clients see of a partition."""
        leadership = record.partitions[partition]
        shown = self._replicas.of(record, partition)
        leader = leadership.leader
        is_reached = self._view.address_of(leader, context.listener) is not None
        if not is_reached or self._replicas.is_offline(record, partition):
            leader = NO_LEADER
        is_led = leader != NO_LEADER
        return _Partition(
            error_code=ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=partition,
            leader_id=leader,
            leader_epoch=leadership.leader_epoch,
            replica_nodes=list(shown.replicas),
            isr_nodes=list(shown.in_sync),
            offline_replicas=shown.offline,
        )


def _asks_operations(request: MetadataRequest) -> bool:
    return bool(
        request.include_topic_authorized_operations or request.include_cluster_authorized_operations
    )


def _may_describe(rights: Rights | None, name: str) -> bool:
    return rights is None or rights.check(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _refused(
    kind: Callable[..., AnswerT], name: str | None, code: ErrorCode, topic_id: UUID | None = None
) -> AnswerT:
    """Return the row of a topic that is not described."""
    return kind(error_code=code, name=name, topic_id=topic_id or UUID(int=0))


_PagedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic


_PagedPartition = _PagedTopic.DescribeTopicPartitionsResponsePartition


_Cursor = DescribeTopicPartitionsResponse.Cursor


@dataclass(slots=True, eq=False, repr=False)
class TopicPartitionAnswers:
    """Handler of DescribeTopicPartitions for one broker.

    Topics are in the order of their names; an answer has at most PARTITIONS_MAX partitions, and its
    cursor is the place of the next partition. A topic that appears or disappears between two parts
    is shown or left out; no other topic is shown twice or missed. With an authorizer, an answer
    names only topics that the client may describe, or that it named itself.
    """

    _view: ClusterView
    _changes: TopicChanges
    _metadata: MetadataAnswers

    async def answer(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer DescribeTopicPartitions; no topic requests all."""
        cursor = request.cursor
        first_name, first_partition = "", 0
        if cursor is not None:
            first_name, first_partition = cursor.topic_name, max(cursor.partition_index, 0)
        rights = context.rights
        names = [topic.name for topic in request.topics] or seen_topics(rights, self._view.topics)
        room = max(min(request.response_partition_limit, PARTITIONS_MAX), 1)
        topics: list[_PagedTopic] = []
        following: _Cursor | None = None
        turns, find = Turns(), self._changes.finder()
        for name in sorted({asked: None for asked in names if asked >= first_name}):
            await turns.pass_on()
            if room == 0:
                following = _Cursor(topic_name=name, partition_index=0)
                break
            if rights and not rights.check(Operation.DESCRIBE, ResourceType.TOPIC, name):
                topics.append(_refused(_PagedTopic, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            record = self._view.topics.get(name) or await find(name)
            if record is None:
                topics.append(_refused(_PagedTopic, name, self._metadata.why_unknown(name)))
                continue
            first = first_partition if name == first_name else 0
            end = min(len(record.partitions), first + room)
            topics.append(self._described(record, range(first, end), context))
            room -= max(end - first, 0)
            if end < len(record.partitions):
                following = _Cursor(topic_name=name, partition_index=end)
                break
        return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)

    def _described(
        self, record: TopicRecord, partitions: range, context: RequestContext
    ) -> _PagedTopic:
        return _PagedTopic(
            error_code=ErrorCode.NONE,
            name=record.name,
            topic_id=UUID(bytes=bytes(record.topic_id)),
            is_internal=record.is_internal,
            partitions=[self._partition(record, partition, context) for partition in partitions],
            topic_authorized_operations=bits_of(
                operations_on(context.rights, ResourceType.TOPIC, record.name)
            ),
        )

    def _partition(
        self, record: TopicRecord, number: int, context: RequestContext
    ) -> _PagedPartition:
        shown = self._metadata.partition(record, number, context)
        return _PagedPartition(
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
