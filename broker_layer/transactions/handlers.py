"""Handlers of Kafka's transaction APIs.

Leaves the decisions to `coordinator`, WriteTxnMarkers to `marker_handler`, and describing and
listing to `admin_handlers`.

Invariants: each refusal is an error code in an answer. Clients that are too old to know
PRODUCER_FENCED get INVALID_PRODUCER_EPOCH.

Source: KIP-98, KIP-360, KIP-588 (fencing), KIP-890.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, INTERNAL_TOPICS
from broker_layer.errors import TopicError
from broker_layer.handlers import Handler, RequestContext
from broker_layer.java_hash import partition_of_key
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiMessage,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.transactions.admin_handlers import AdminHandlers
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.marker_handler import MarkerHandler
from broker_layer.transactions.ports import NoLeader, PartitionLeaders
from broker_layer.transactions.values import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Claim,
    ProducerIdentity,
    TopicPartition,
)

INIT_FENCED_VERSION: Final = 4
"""First version of InitProducerId for clients that know PRODUCER_FENCED."""
FENCED_VERSION: Final = 2
"""First version of the other messages for clients that know PRODUCER_FENCED."""
BATCH_VERSION: Final = 4
"""First version of AddPartitionsToTxn with several transactions. Only brokers send it."""

_Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_InnerTopic = _Result.AddPartitionsToTxnTopicResult
_InnerPartition = _InnerTopic.AddPartitionsToTxnPartitionResult
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Partition = _Topic.AddPartitionsToTxnPartitionResult

Codes = dict[TopicPartition, ErrorCode]
TopicT = TypeVar("TopicT")


class NamedTopic(Protocol):
    """A topic and some of its partitions, in any message."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def partitions(self) -> list[int]:
        """The partitions' numbers."""


def handlers(
    coordinator: TransactionCoordinator,
    leaders: PartitionLeaders,
    markers: MarkerHandler,
    group_partition_count: Callable[[], Awaitable[int]],
) -> dict[int, Handler]:
    """Return the handler of each transaction API by its key. `group_partition_count` returns the
    number of partitions of `__consumer_offsets`, and creates the topic if it does not exist: a
    producer adds offsets before any client asks for the coordinator of their group.
    """
    producers = ProducerHandlers(coordinator, leaders, group_partition_count)
    administrators = AdminHandlers(coordinator)
    return {
        ApiKey.INIT_PRODUCER_ID: producers.init_producer_id,
        ApiKey.ADD_PARTITIONS_TO_TXN: producers.add_partitions,
        ApiKey.ADD_OFFSETS_TO_TXN: producers.add_offsets,
        ApiKey.END_TXN: producers.end,
        ApiKey.WRITE_TXN_MARKERS: markers.write_markers,
        ApiKey.DESCRIBE_TRANSACTIONS: administrators.describe,
        ApiKey.LIST_TRANSACTIONS: administrators.list_all,
    }


@dataclass(eq=False, repr=False)
class ProducerHandlers:
    """Handlers of requests that producers, and leaders for them, send to their coordinator."""

    _coordinator: TransactionCoordinator
    _leaders: PartitionLeaders
    _group_partition_count: Callable[[], Awaitable[int]]

    async def init_producer_id(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer InitProducerId."""
        assert isinstance(request, InitProducerIdRequest), "the dispatcher selects by API"
        try:
            identity = await self._coordinator.init_producer_id(
                request.transactional_id,
                request.transaction_timeout_ms,
                _claim_in(request.producer_id, request.producer_epoch),
            )
        except TopicError as error:
            code = _known_to(error.code, context, INIT_FENCED_VERSION)
            return InitProducerIdResponse(
                error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
            )
        return InitProducerIdResponse(
            error_code=ErrorCode.NONE,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )

    async def add_partitions(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer AddPartitionsToTxn; producers send versions up to 3, brokers send later ones."""
        assert isinstance(request, AddPartitionsToTxnRequest), "the dispatcher selects by API"
        if context.api_version < BATCH_VERSION:
            claim = Claim(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
            )
            codes = await self._add(claim, _partitions_in(request.v3_and_below_topics))
            codes = {each: _known_to(code, context, FENCED_VERSION) for each, code in codes.items()}
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_shown(codes, _Topic, _Partition)
            )
        results = [
            _Result(
                transactional_id=each.transactional_id,
                topic_results=_shown(await self._answer_one(each), _InnerTopic, _InnerPartition),
            )
            for each in request.transactions
        ]
        return AddPartitionsToTxnResponse(error_code=ErrorCode.NONE, results_by_transaction=results)

    async def add_offsets(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer AddOffsetsToTxn: add the partition of the group's offsets to the transaction."""
        assert isinstance(request, AddOffsetsToTxnRequest), "the dispatcher selects by API"
        claim = Claim(request.transactional_id, request.producer_id, request.producer_epoch)
        try:
            count = await self._group_partition_count()
        except TopicError:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = TopicPartition(CONSUMER_OFFSETS, partition_of_key(request.group_id, count))
        code = await _code_of(self._coordinator.add_partitions(claim, [partition]))
        return AddOffsetsToTxnResponse(error_code=_known_to(code, context, FENCED_VERSION))

    async def end(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer EndTxn."""
        assert isinstance(request, EndTxnRequest), "the dispatcher selects by API"
        claim = Claim(request.transactional_id, request.producer_id, request.producer_epoch)
        code = await _code_of(self._coordinator.end(claim, committed=request.committed))
        return EndTxnResponse(error_code=_known_to(code, context, FENCED_VERSION))

    async def _answer_one(self, asked: _Asked) -> Codes:
        claim = Claim(asked.transactional_id, asked.producer_id, asked.producer_epoch)
        partitions = _partitions_in(asked.topics)
        if not asked.verify_only:
            return await self._add(claim, partitions)
        try:
            return self._coordinator.verify(claim, partitions)
        except TopicError as error:
            return dict.fromkeys(partitions, error.code)

    async def _add(self, claim: Claim, partitions: list[TopicPartition]) -> Codes:
        """Add all partitions or none."""
        wrong: Codes = {}
        for partition in partitions:
            if partition.topic in INTERNAL_TOPICS:
                wrong[partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif self._leaders.leader_of(partition) in (NoLeader.ABSENT, NoLeader.DELETED):
                wrong[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if wrong:
            return {each: wrong.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
        code = await _code_of(self._coordinator.add_partitions(claim, partitions))
        return dict.fromkeys(partitions, code)


def _claim_in(producer_id: int, epoch: int) -> ProducerIdentity | None:
    if producer_id == NO_PRODUCER_ID and epoch == NO_EPOCH:
        return None
    if producer_id < 0 or epoch < 0:
        raise TopicError(
            ErrorCode.INVALID_REQUEST, "the producer id and the epoch must both be given"
        )
    return ProducerIdentity(producer_id, epoch)


async def _code_of(decision: Awaitable[None]) -> ErrorCode:
    try:
        await decision
    except TopicError as error:
        return error.code
    return ErrorCode.NONE


def _known_to(code: ErrorCode, context: RequestContext, fenced_version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _partitions_in(topics: Iterable[NamedTopic]) -> list[TopicPartition]:
    members = [
        TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
    ]
    return list(dict.fromkeys(members))


def _shown(
    codes: Codes, topic_kind: Callable[..., TopicT], partition_kind: Callable[..., object]
) -> list[TopicT]:
    topics: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (topic, number), code in codes.items():
        topics.setdefault(topic, []).append((number, code))
    return [
        topic_kind(
            name=name,
            results_by_partition=[
                partition_kind(partition_index=number, partition_error_code=code)
                for number, code in results
            ],
        )
        for name, results in topics.items()
    ]
