"""Handler of Metadata: topics, leaders of their partitions, and addresses of the brokers.

Leaves the state of the cluster to `cluster_view.py`, replicas to `shown_replicas.py`, and creating
requested topics to `topic_changes.py`.

Invariants: the leader epoch of a partition never decreases between two answers of one broker. An
answer about all topics is encoded once for each form of the request, listener and change of the
view; its replicas are at most CACHE_S seconds old. With an authorizer, an answer names only topics
that the client may describe, or that it named itself.

Source: KIP-4, KIP-392 (offline replicas), KIP-430 (authorized operations), KIP-516 (topic ids).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.shown_replicas import ReplicaView
from broker_layer.control.topic_changes import CREATION_TIMEOUT_S, TopicChanges
from broker_layer.errors import TopicError
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    MetadataRequest,
    MetadataResponse,
    encode_response,
)
from broker_layer.security.rights import (
    Rights,
    creates_topic,
    operations_on,
    seen_topics,
    sees_topic,
)
from broker_layer.turns import Turns
from metadata.security.acls import Operation, ResourceType
from metadata.topics.topic import NO_LEADER, TopicRecord

CACHE_S: Final = 1.0
CACHED_MAX: Final = 32
NULLABLE_NAMES_VERSION: Final = 12
"""First version in which the name is null for a topic that is known by its id only."""

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
    """Handler of Metadata for one broker."""

    _view: ClusterView
    _replicas: ReplicaView
    _changes: TopicChanges
    _config: ControlConfig
    _cluster_id: str
    _cached: dict[_CacheKey, _Cached] = field(default_factory=dict, init=False)

    async def answer(self, request: ApiMessage, context: RequestContext) -> ApiMessage | bytes:
        """Answer Metadata."""
        assert isinstance(request, MetadataRequest), "the dispatcher selects by API"
        asked = request.topics
        if asked is None or (context.api_version == 0 and not asked):
            return await self._all(request, context)
        topics, turns = dict[tuple[str | None, UUID | None], _Topic](), Turns()
        find = self._changes.finder()
        for each in asked:
            key = each.name, each.topic_id if each.name is None else None
            if key not in topics:
                topics[key] = await self._asked(each, request, context, find)
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
            found = (
                None if asked.topic_id is None else self._view.topic_name_of(asked.topic_id.bytes)
            )
            if found is None or not sees_topic(context.rights, found):
                shown = None if context.api_version >= NULLABLE_NAMES_VERSION else ""
                return _refused(shown, ErrorCode.UNKNOWN_TOPIC_ID, asked.topic_id)
            name = found
        elif not _may_describe(context.rights, name):
            return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        record = self._view.topics.get(name) or await find(name)
        if record is None:
            may_create = context.api_version < 4 or request.allow_auto_topic_creation  # noqa: PLR2004
            if not (may_create and self._config.creates_topics):
                return _refused(name, self.why_unknown(name))
            if not creates_topic(context.rights, name):
                return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            try:
                record = await self._changes.ensure(name, CREATION_TIMEOUT_S)
            except TopicError as error:
                retriable = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE)
                code = ErrorCode.LEADER_NOT_AVAILABLE if error.code in retriable else error.code
                return _refused(name, code)
        return self._described(record, context)

    def why_unknown(self, name: str) -> ErrorCode:
        """Return the error for a topic that does not exist."""
        try:
            self._changes.check_name_form(name)
        except TopicError as error:
            return error.code
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _response(self, topics: Iterable[_Topic], context: RequestContext) -> MetadataResponse:
        brokers = []
        for broker_id, registration in sorted(self._view.brokers.items()):
            address = self._view.address_of(broker_id, context.listener)
            if address is not None:
                host, port = address
                rack = registration.rack or None
                brokers.append(_Broker(node_id=broker_id, host=host, port=port, rack=rack))
        return MetadataResponse(
            throttle_time_ms=0,
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


def _refused(name: str | None, code: ErrorCode, topic_id: UUID | None = None) -> _Topic:
    shown = topic_id or UUID(int=0)
    return _Topic(error_code=code, name=name, topic_id=shown, is_internal=False, partitions=[])
