"""Handlers of OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

Leaves the checks of members to the groups.

Invariants: a commit is answered when it is durable; only durable offsets are shown, and none that
the next coordinator may have replaced; an offset that was committed for an earlier topic of the
same name is not shown.

Source: Kafka's protocol, keys 8, 9, 28 and 47; KIP-98, KIP-447, KIP-496, KIP-709, KIP-848, KIP-890.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError, check_connection
from broker_layer.groups.classic_group import ClassicGroup
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.group_host import GroupHost
from broker_layer.groups.offset_table import (
    NO_EXPIRY,
    CommittedOffset,
    GroupOffsets,
    OffsetPlace,
    PlacedOffset,
    is_current,
)
from broker_layer.groups.records import committed_records, pending_records, removed_records
from broker_layer.groups.values import CONSUMER_PROTOCOL_TYPE, GroupState, GroupTopics
from broker_layer.handlers import RequestContext, Turns
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

TopicT = TypeVar("TopicT")

_GROUP_NOT_FOUND_VERSION: Final = 9
_MEMBER_EPOCH_VERSION: Final = 9


CheckOffsets = Callable[[int, int, str, str, int], Awaitable[None]]
"""Returns if offsets of a transaction may be stored before the next `await`. Arguments: producer id
and epoch, transactional id, topic and partition. Raises TopicError if not, or if that is not known.
"""

_Asked = tuple[str, Any]
"""A topic, and one of its partitions in a commit."""


@dataclass(frozen=True, slots=True)
class Committer:
    """Identity of the member or client that commits, and the kind of its request."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    api_version: int
    is_transactional: bool


class OffsetCommitHandlers:
    """APIs that commit offsets, for one coordinator."""

    def __init__(self, coordinator: GroupCoordinator, check: CheckOffsets | None = None) -> None:
        self._coordinator = coordinator
        self._check = check

    async def offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> ApiMessage:
        """Serve OffsetCommit."""
        committer = Committer(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            context.api_version,
            is_transactional=False,
        )
        asked = _asked_in(request.topics)
        errors = [self._offset_refusal(*row) for row in asked]
        try:
            host = self._coordinator.host_of(request.group_id)
            _check_committer(host, committer)
            offsets = self._placed(host, _accepted(asked, errors), request.retention_time_ms)
            host.write(committed_records(request.group_id, offsets))
            await host.settled()
        except TopicError as error:
            errors = _all_failed(errors, error.code)
        kind = OffsetCommitResponse.OffsetCommitResponseTopic
        shown = _with_errors(request.topics, errors, kind, kind.OffsetCommitResponsePartition)
        return OffsetCommitResponse(topics=shown)

    async def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> ApiMessage:
        """Serve TxnOffsetCommit: the offsets wait for the end of the transaction."""
        committer = Committer(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            context.api_version,
            is_transactional=True,
        )
        asked = _asked_in(request.topics)
        errors = [self._offset_refusal(*row) for row in asked]
        try:
            host = self._coordinator.host_of(request.group_id)
            _check_committer(host, committer)
            await self._check_transaction(host, request)
            _check_committer(host, committer)
            accepted = _accepted(asked, errors)
            await self._store_pending(host, request, accepted, context.connection_id)
        except TopicError as error:
            errors = _all_failed(errors, error.code)
        kind = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
        shown = _with_errors(request.topics, errors, kind, kind.TxnOffsetCommitResponsePartition)
        return TxnOffsetCommitResponse(topics=shown)

    async def _check_transaction(self, host: GroupHost, request: TxnOffsetCommitRequest) -> None:
        if self._check is not None:
            await self._check(
                request.producer_id,
                request.producer_epoch,
                request.transactional_id,
                CONSUMER_OFFSETS,
                host.number,
            )

    async def _store_pending(
        self,
        host: GroupHost,
        request: TxnOffsetCommitRequest,
        asked: Iterable[_Asked],
        connection_id: int,
    ) -> None:
        producer_id, epoch = request.producer_id, request.producer_epoch
        refusal = host.shard.offsets.producer_refusal(producer_id, epoch)
        if refusal is not ErrorCode.NONE:
            text = (
                f"producer {producer_id} has a newer epoch than {epoch}: a newer instance with "
                "this transactional id is running, so stop this one"
            )
            raise TopicError(refusal, text)
        producers = host.shard.offsets.producers
        known = producers.get(producer_id)
        if known is not None and known.producer_epoch == epoch:
            check_connection(request.transactional_id, known.connection_id, connection_id)
        offsets = self._placed(host, asked, NO_EXPIRY)
        host.write(pending_records(request.group_id, producer_id, epoch, offsets))
        if (written := producers.get(producer_id)) is not None:
            written.connection_id = connection_id
        await host.settled()

    def _offset_refusal(self, topic: str, asked: Any) -> ErrorCode:
        if not 0 <= asked.partition_index < self._coordinator.topics.partition_count(topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(asked.committed_metadata or "") > self._coordinator.config.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _placed(
        self, host: GroupHost, asked: Iterable[_Asked], retention_ms: int
    ) -> Iterator[PlacedOffset]:
        wall_ms = host.clock.wall_clock_ms()
        expires_ms = NO_EXPIRY if retention_ms == NO_EXPIRY else wall_ms + retention_ms
        for topic, row in asked:
            topic_id = self._coordinator.topics.topic_id_of(topic) or b""
            committed = CommittedOffset(
                row.committed_offset,
                row.committed_leader_epoch,
                row.committed_metadata or "",
                wall_ms,
                expires_ms,
                topic_id,
                host.shard.offsets.next_order(),
            )
            yield PlacedOffset(topic, row.partition_index, committed)


def _with_errors(
    topics: Iterable[Any],
    errors: Iterable[ErrorCode],
    topic_kind: Callable[..., TopicT],
    partition_kind: Callable[..., object],
) -> list[TopicT]:
    answers = iter(errors)
    return [
        topic_kind(
            name=topic.name,
            partitions=[
                partition_kind(partition_index=partition.partition_index, error_code=next(answers))
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _asked_in(topics: Iterable[Any]) -> list[_Asked]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _check_committer(host: GroupHost, committer: Committer) -> None:
    """Raise TopicError if the group does not allow the commit."""
    consumers = host.shard.consumers.get(committer.group_id)
    group = consumers or host.shard.classic(committer.group_id)
    is_transactional, is_member = committer.is_transactional, committer.generation >= 0
    if group is None:
        if not is_member:
            return  # a consumer that assigns partitions to itself
        is_newer = committer.api_version >= _GROUP_NOT_FOUND_VERSION
        knows_code = is_newer and not is_transactional
        code = ErrorCode.GROUP_ID_NOT_FOUND if knows_code else ErrorCode.ILLEGAL_GENERATION
        raise TopicError(code, f"there is no group {committer.group_id}")
    refusal = group.commit_refusal(
        committer.member_id,
        committer.instance_id,
        committer.generation,
        is_transactional=is_transactional,
    )
    if consumers is not None:
        is_older = committer.api_version < _MEMBER_EPOCH_VERSION
        if refusal is ErrorCode.STALE_MEMBER_EPOCH and is_transactional:
            refusal = ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional and is_member and is_older:
            is_known = refusal is not ErrorCode.UNKNOWN_MEMBER_ID
            refusal = ErrorCode.UNSUPPORTED_VERSION if is_known else refusal
    if refusal is not ErrorCode.NONE:
        raise TopicError(refusal, f"{committer.member_id!r} may not commit: {refusal.name}")
    if isinstance(group, ClassicGroup) and not is_transactional:
        group.touch(committer.member_id, host.clock.moment())


def _accepted(asked: list[_Asked], errors: list[ErrorCode]) -> Iterator[_Asked]:
    for row, error in zip(asked, errors, strict=True):
        if error is ErrorCode.NONE:
            yield row


def _all_failed(errors: list[ErrorCode], code: ErrorCode) -> list[ErrorCode]:
    """Return `code` for all but topics that do not exist: Kafka checks for those first."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [error if error is unknown else code for error in errors]


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


Fetched = list[tuple[str, list[FetchedOffset]]]


class OffsetReadHandlers:
    """APIs that read and delete offsets, for one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def offset_fetch(
        self, request: OffsetFetchRequest, context: RequestContext
    ) -> ApiMessage:
        """Serve OffsetFetch for one group or, from version 8 on, for several. All offsets of a
        group are shown once, however often it is named.
        """
        is_stable = request.require_stable
        if context.api_version >= _MANY_GROUPS_VERSION:
            groups, turns = list[OffsetFetchResponse.OffsetFetchResponseGroup](), Turns()
            named = {
                group.group_id if group.topics is None else number: group
                for number, group in enumerate(request.groups)
            }
            for group in named.values():
                groups.append(await self._fetch_of_group(group, is_stable))
                await turns.pass_on()
            return OffsetFetchResponse(groups=groups)
        error, fetched = await self._fetch(request, is_stable=is_stable)
        if error is not ErrorCode.NONE and context.api_version < _GROUP_ERROR_VERSION:
            fetched = _failed(_asked_of(request) or [], error)
        kind = OffsetFetchResponse.OffsetFetchResponseTopic
        shown = _shown(fetched, kind, kind.OffsetFetchResponsePartition)
        return OffsetFetchResponse(error_code=error, topics=shown)

    async def offset_delete(self, request: OffsetDeleteRequest, _: RequestContext) -> ApiMessage:
        """Serve OffsetDelete for partitions that no member of the group reads."""
        try:
            host = self._coordinator.host_of(request.group_id)
            subscription = _subscription(host, request.group_id)
            removed: list[OffsetPlace] = []
            errors: list[ErrorCode] = []
            for topic in request.topics:
                error = ErrorCode.NONE
                if self._coordinator.topics.partition_count(topic.name) == 0:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif subscription is None or topic.name in subscription:
                    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    removed += [(topic.name, row.partition_index) for row in topic.partitions]
                errors += [error] * len(topic.partitions)
            offsets = host.shard.offsets.of(request.group_id)
            existing = [] if offsets is None else [key for key in removed if _has(offsets, key)]
            host.write(removed_records(request.group_id, existing))
            await host.settled()
        except TopicError as refusal:
            return OffsetDeleteResponse(error_code=refusal.code)
        kind = OffsetDeleteResponse.OffsetDeleteResponseTopic
        shown = _with_errors(request.topics, errors, kind, kind.OffsetDeleteResponsePartition)
        return OffsetDeleteResponse(topics=shown)

    async def _fetch_of_group(
        self,
        asked: OffsetFetchRequest.OffsetFetchRequestGroup,
        is_stable: bool,  # noqa: FBT001
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        error, fetched = await self._fetch(asked, is_stable=is_stable)
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        kind = group.OffsetFetchResponseTopics
        shown = _shown(fetched, kind, kind.OffsetFetchResponsePartitions)
        return group(group_id=asked.group_id, error_code=error, topics=shown)

    async def _fetch(
        self,
        asked: OffsetFetchRequest | OffsetFetchRequest.OffsetFetchRequestGroup,
        *,
        is_stable: bool,
    ) -> tuple[ErrorCode, Fetched]:
        topics, wanted = self._coordinator.topics, _asked_of(asked)
        try:
            host = self._coordinator.host_of(asked.group_id)
            if not isinstance(asked, OffsetFetchRequest):
                _check_reader(host, asked)
            offsets = host.shard.offsets.of(asked.group_id) or GroupOffsets()
            fetched = [
                (name, [_fetched(offsets, topics, (name, part), is_stable) for part in partitions])
                for name, partitions in (_all_places(offsets, topics) if wanted is None else wanted)
            ]
            await host.confirmed()
        except TopicError as refusal:
            return refusal.code, []
        return ErrorCode.NONE, fetched


def _asked_of(asked: Any) -> Asked:
    """Return the topics of a request, or of one group of it."""
    topics = asked.topics
    return None if topics is None else [(row.name, list(row.partition_indexes)) for row in topics]


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
                    partition_index=partition.partition,
                    committed_offset=partition.offset,
                    committed_leader_epoch=partition.leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error,
                )
                for partition in partitions
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
        known = [p for p, offset in partitions.items() if is_current(offset, current)]
        if known:
            places.append((topic, known))
    return places


def _failed(asked: list[tuple[str, list[int]]], error: ErrorCode) -> Fetched:
    return [
        (name, [FetchedOffset(partition, _NO_OFFSET, -1, "", error) for partition in partitions])
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
