"""Handlers of OffsetCommit and TxnOffsetCommit: they check, store, and answer when durable.

Leaves reading and deleting offsets to `offset_reads`, and the checks of members to the groups.

Source: Kafka's protocol, keys 8 and 28; KIP-98, KIP-447, KIP-848, KIP-890.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError
from broker_layer.groups.consumer.consumer_group import ConsumerGroup
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.group_host import GroupHost
from broker_layer.groups.offsets.offset_table import NO_EXPIRY, CommittedOffset, PlacedOffset
from broker_layer.groups.records import committed_records, pending_records
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    OffsetCommitRequest,
    OffsetCommitResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

_CommittedTopic = (
    OffsetCommitRequest.OffsetCommitRequestTopic
    | TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
)
TopicT = TypeVar("TopicT")

_GROUP_NOT_FOUND_VERSION: Final = 9
_MEMBER_EPOCH_VERSION: Final = 9


class OffsetVerifier(Protocol):
    """The method of `transactions.verification.TransactionVerifier` that commits use."""

    async def check_offsets(
        self,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str,
        topic: str,
        partition: int,
    ) -> None:
        """Return if offsets of the transaction may be stored before the next `await`. Raises
        TopicError if not, or if that is not known.
        """


@dataclass(frozen=True, slots=True)
class AskedOffset:
    """One partition of a commit, as requested."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


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

    def __init__(
        self, coordinator: GroupCoordinator, verifier: OffsetVerifier | None = None
    ) -> None:
        self._coordinator = coordinator
        self._verifier = verifier

    async def offset_commit(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve OffsetCommit."""
        assert isinstance(request, OffsetCommitRequest)
        asked = _asked_in(request.topics)
        committer = Committer(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            context.api_version,
            is_transactional=False,
        )
        errors = await self._commit(committer, asked, request.retention_time_ms)
        kind = OffsetCommitResponse.OffsetCommitResponseTopic
        shown = _shown(request.topics, errors, kind, kind.OffsetCommitResponsePartition)
        return OffsetCommitResponse(topics=shown)

    async def txn_offset_commit(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Serve TxnOffsetCommit: the offsets wait for the end of the transaction."""
        assert isinstance(request, TxnOffsetCommitRequest)
        asked = _asked_in(request.topics)
        errors = await self._commit_pending(request, asked, context)
        kind = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
        shown = _shown(request.topics, errors, kind, kind.TxnOffsetCommitResponsePartition)
        return TxnOffsetCommitResponse(topics=shown)

    async def _commit(
        self, committer: Committer, asked: list[AskedOffset], retention_ms: int
    ) -> list[ErrorCode]:
        errors = [self._offset_refusal(each) for each in asked]
        try:
            host = self._coordinator.host_of(committer.group_id)
            _check_committer(host, committer)
            offsets = self._placed(host, _accepted(asked, errors), retention_ms)
            host.write(committed_records(committer.group_id, offsets))
            await host.settled()
        except TopicError as error:
            return _all_failed(errors, error.code)
        return errors

    async def _commit_pending(
        self, request: TxnOffsetCommitRequest, asked: list[AskedOffset], context: RequestContext
    ) -> list[ErrorCode]:
        errors = [self._offset_refusal(each) for each in asked]
        producer_id, epoch = request.producer_id, request.producer_epoch
        committer = Committer(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            context.api_version,
            is_transactional=True,
        )
        try:
            host = self._coordinator.host_of(request.group_id)
            _check_committer(host, committer)
            if self._verifier is not None:
                await self._verifier.check_offsets(
                    producer_id,
                    epoch,
                    request.transactional_id,
                    CONSUMER_OFFSETS,
                    host.partition,
                )
                _check_committer(host, committer)
            refusal = host.shard.offsets.producer_refusal(producer_id, epoch)
            if refusal is not ErrorCode.NONE:
                text = (
                    f"producer {producer_id} has a newer epoch than {epoch}: a newer instance with "
                    "this transactional id is running, so stop this one"
                )
                raise TopicError(refusal, text)
            offsets = self._placed(host, _accepted(asked, errors), NO_EXPIRY)
            host.write(pending_records(request.group_id, producer_id, epoch, offsets))
            await host.settled()
        except TopicError as error:
            return _all_failed(errors, error.code)
        return errors

    def _offset_refusal(self, asked: AskedOffset) -> ErrorCode:
        if not 0 <= asked.partition < self._coordinator.topics.partition_count(asked.topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(asked.metadata) > self._coordinator.config.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _placed(
        self, host: GroupHost, asked: Iterable[AskedOffset], retention_ms: int
    ) -> Iterator[PlacedOffset]:
        wall_ms = host.clock.wall_clock_ms()
        expires_ms = NO_EXPIRY if retention_ms == NO_EXPIRY else wall_ms + retention_ms
        for each in asked:
            topic_id = self._coordinator.topics.topic_id_of(each.topic) or b""
            committed = CommittedOffset(
                each.offset,
                each.leader_epoch,
                each.metadata,
                wall_ms,
                expires_ms,
                topic_id,
                host.shard.offsets.next_order(),
            )
            yield PlacedOffset(each.topic, each.partition, committed)


def _shown(
    topics: Iterable[_CommittedTopic],
    errors: Iterable[ErrorCode],
    topic_kind: Callable[..., TopicT],
    partition_kind: Callable[..., object],
) -> list[TopicT]:
    answers = iter(errors)
    return [
        topic_kind(
            name=topic.name,
            partitions=[
                partition_kind(partition_index=each.partition_index, error_code=next(answers))
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]


def _asked_in(topics: Iterable[_CommittedTopic]) -> list[AskedOffset]:
    return [
        AskedOffset(
            topic.name,
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata or "",
        )
        for topic in topics
        for each in topic.partitions
    ]


def _check_committer(host: GroupHost, committer: Committer) -> None:
    """Raise TopicError if the group does not allow the commit."""
    consumers = host.shard.consumers.get(committer.group_id)
    if consumers is not None:
        _check_member_epoch(consumers, committer)
        return
    group = host.shard.classic(committer.group_id)
    if group is None:
        if committer.generation < 0:
            return  # a consumer that assigns partitions to itself
        is_newer = committer.api_version >= _GROUP_NOT_FOUND_VERSION
        knows_code = is_newer and not committer.is_transactional
        code = ErrorCode.GROUP_ID_NOT_FOUND if knows_code else ErrorCode.ILLEGAL_GENERATION
        raise TopicError(code, f"there is no group {committer.group_id}")
    refusal = group.commit_refusal(
        committer.member_id,
        committer.instance_id,
        committer.generation,
        is_transactional=committer.is_transactional,
    )
    if refusal is not ErrorCode.NONE:
        raise TopicError(refusal, f"{committer.member_id!r} may not commit: {refusal.name}")
    if not committer.is_transactional:
        group.touch(committer.member_id, host.clock.moment())


def _check_member_epoch(group: ConsumerGroup, committer: Committer) -> None:
    refusal = group.commit_refusal(
        committer.member_id,
        committer.instance_id,
        committer.generation,
        is_transactional=committer.is_transactional,
    )
    is_older = committer.api_version < _MEMBER_EPOCH_VERSION
    if refusal is ErrorCode.STALE_MEMBER_EPOCH and committer.is_transactional:
        refusal = ErrorCode.ILLEGAL_GENERATION
    elif not committer.is_transactional and committer.generation >= 0 and is_older:
        is_member = refusal is not ErrorCode.UNKNOWN_MEMBER_ID
        refusal = ErrorCode.UNSUPPORTED_VERSION if is_member else refusal
    if refusal is not ErrorCode.NONE:
        raise TopicError(refusal, f"{committer.member_id!r} may not commit: {refusal.name}")


def _accepted(asked: list[AskedOffset], errors: list[ErrorCode]) -> Iterator[AskedOffset]:
    for each, error in zip(asked, errors, strict=True):
        if error is ErrorCode.NONE:
            yield each


def _all_failed(errors: list[ErrorCode], code: ErrorCode) -> list[ErrorCode]:
    """Return `code` for all but topics that do not exist: Kafka checks for those first."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [each if each is unknown else code for each in errors]
