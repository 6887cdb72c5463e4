"""Handlers of OffsetFetch and OffsetDelete.

Leaves committing to `offset_commits`.

Invariants: only durable offsets are shown, and none that the next coordinator may have replaced; an
offset that was committed for an earlier topic of the same name is not shown.
Source: Kafka's protocol, keys 9 and 47; KIP-447 (stable offsets), KIP-496, KIP-709, KIP-848.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from broker_layer.errors import TopicError
from broker_layer.groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.group_host import GroupHost
from broker_layer.groups.offsets.offset_table import GroupOffsets, OffsetPlace, is_current
from broker_layer.groups.records import removed_records
from broker_layer.groups.topics import GroupTopics
from broker_layer.groups.values import GroupState
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from broker_layer.turns import Turns

_MANY_GROUPS_VERSION: Final = 8
_GROUP_ERROR_VERSION: Final = 2
_NO_OFFSET: Final = -1

Asked = list[tuple[str, list[int]]] | None
"""Requested topics and partitions; None for all."""


class FetchedOffset(NamedTuple):
    """The answer for one partition."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


TopicT = TypeVar("TopicT")

Fetched = list[tuple[str, list[FetchedOffset]]]


class OffsetReadHandlers:
    """APIs that read and delete offsets, for one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def offset_fetch(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve OffsetFetch for one group or, from version 8 on, for several. All offsets of a
        group are shown once, however often it is named.
        """
        assert isinstance(request, OffsetFetchRequest)
        is_stable = request.require_stable
        if context.api_version >= _MANY_GROUPS_VERSION:
            groups, turns = list[OffsetFetchResponse.OffsetFetchResponseGroup](), Turns()
            named = {
                each.group_id if each.topics is None else number: each
                for number, each in enumerate(request.groups)
            }
            for each in named.values():
                groups.append(await self._fetch_of_group(each, is_stable))
                await turns.pass_on()
            return OffsetFetchResponse(groups=groups)
        topics = request.topics
        asked = None if topics is None else [(t.name, list(t.partition_indexes)) for t in topics]
        error = ErrorCode.NONE
        try:
            host = self._coordinator.host_of(request.group_id)
            fetched = await self._fetch(host, request.group_id, asked, is_stable=is_stable)
        except TopicError as refusal:
            error = refusal.code
            is_in_partitions = context.api_version < _GROUP_ERROR_VERSION
            fetched = _failed(asked or [], error) if is_in_partitions else []
        kind = OffsetFetchResponse.OffsetFetchResponseTopic
        shown = _shown(fetched, kind, kind.OffsetFetchResponsePartition)
        return OffsetFetchResponse(error_code=error, topics=shown)

    async def offset_delete(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve OffsetDelete for partitions that no member of the group reads."""
        assert isinstance(request, OffsetDeleteRequest)
        del context
        try:
            host = self._coordinator.host_of(request.group_id)
            subscription = _subscription(host, request.group_id)
            removed: list[OffsetPlace] = []
            topics = []
            for topic in request.topics:
                error = ErrorCode.NONE
                if self._coordinator.topics.partition_count(topic.name) == 0:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif subscription is None or topic.name in subscription:
                    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    removed += [(topic.name, each.partition_index) for each in topic.partitions]
                topics.append(_deleted_topic(topic, error))
            offsets = host.shard.offsets.of(request.group_id)
            existing = [] if offsets is None else [each for each in removed if _has(offsets, each)]
            host.write(removed_records(request.group_id, existing))
            await host.settled()
        except TopicError as error:
            return OffsetDeleteResponse(error_code=error.code, topics=[])
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)

    async def _fetch_of_group(
        self,
        asked: OffsetFetchRequest.OffsetFetchRequestGroup,
        is_stable: bool,  # noqa: FBT001
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        topics = asked.topics
        wanted = None if topics is None else [(t.name, list(t.partition_indexes)) for t in topics]
        error, fetched = ErrorCode.NONE, list[tuple[str, list[FetchedOffset]]]()
        try:
            host = self._coordinator.host_of(asked.group_id)
            _check_reader(host, asked)
            fetched = await self._fetch(host, asked.group_id, wanted, is_stable=is_stable)
        except TopicError as refusal:
            error = refusal.code
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        kind = group.OffsetFetchResponseTopics
        shown = _shown(fetched, kind, kind.OffsetFetchResponsePartitions)
        return group(group_id=asked.group_id, error_code=error, topics=shown)

    async def _fetch(
        self, host: GroupHost, group_id: str, asked: Asked, *, is_stable: bool
    ) -> Fetched:
        offsets = host.shard.offsets.of(group_id) or GroupOffsets()
        topics = self._coordinator.topics
        wanted = _all_places(offsets, topics) if asked is None else asked
        fetched = [
            (name, [_fetched(offsets, topics, (name, each), is_stable) for each in partitions])
            for name, partitions in wanted
        ]
        await host.confirmed()
        return fetched


def _shown(
    fetched: Fetched, topic_kind: Callable[..., TopicT], partition_kind: Callable[..., object]
) -> list[TopicT]:
    """Return the topics of an answer. The forms for one group and for several differ only in their
    types.
    """
    return [
        topic_kind(
            name=name,
            partitions=[
                partition_kind(
                    partition_index=each.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error,
                )
                for each in partitions
            ],
        )
        for name, partitions in fetched
    ]


def _fetched(
    offsets: GroupOffsets,
    topics: GroupTopics,
    place: OffsetPlace,
    is_stable: bool,  # noqa: FBT001
) -> FetchedOffset:
    topic, partition = place
    if is_stable and offsets.is_pending(place):
        return FetchedOffset(partition, _NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.committed.get(topic, {}).get(partition)
    if committed is None or not is_current(committed, topics.topic_id_of(topic)):
        return FetchedOffset(partition, _NO_OFFSET, -1, "", ErrorCode.NONE)
    return FetchedOffset(
        partition, committed.offset, committed.leader_epoch, committed.metadata, ErrorCode.NONE
    )


def _all_places(offsets: GroupOffsets, topics: GroupTopics) -> list[tuple[str, list[int]]]:
    """Return all topics and partitions with offsets, without those of earlier topics."""
    places: list[tuple[str, list[int]]] = []
    for topic, partitions in offsets.committed.items():
        current = topics.topic_id_of(topic)
        known = [p for p, each in partitions.items() if is_current(each, current)]
        if known:
            places.append((topic, known))
    return places


def _failed(asked: list[tuple[str, list[int]]], error: ErrorCode) -> Fetched:
    return [
        (name, [FetchedOffset(each, _NO_OFFSET, -1, "", error) for each in partitions])
        for name, partitions in asked
    ]


def _check_reader(host: GroupHost, asked: OffsetFetchRequest.OffsetFetchRequestGroup) -> None:
    """Raise TopicError for a member with an old epoch."""
    consumers = host.shard.consumers.get(asked.group_id)
    if consumers is not None:
        refusal = consumers.fetch_refusal(asked.member_id, asked.member_epoch)
        if refusal is not ErrorCode.NONE:
            text = f"{asked.member_id} may not fetch offsets in epoch {asked.member_epoch}"
            raise TopicError(refusal, text)


def _subscription(host: GroupHost, group_id: str) -> tuple[str, ...] | None:
    """Return the topics whose offsets must stay; None for all. Raises TopicError."""
    consumers = host.shard.consumers.get(group_id)
    if consumers is not None:
        return consumers.subscription()
    group = host.shard.classic(group_id)
    if group is None:
        raise TopicError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    if group.state is GroupState.EMPTY:
        return ()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise TopicError(
            ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members: stop them first"
        )
    return group.subscription()


def _has(offsets: GroupOffsets, place: OffsetPlace) -> bool:
    return place[1] in offsets.committed.get(place[0], {})


def _deleted_topic(
    topic: OffsetDeleteRequest.OffsetDeleteRequestTopic, error: ErrorCode
) -> OffsetDeleteResponse.OffsetDeleteResponseTopic:
    response_topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
    return response_topic(
        name=topic.name,
        partitions=[
            response_topic.OffsetDeleteResponsePartition(
                partition_index=each.partition_index, error_code=error
            )
            for each in topic.partitions
        ],
    )
