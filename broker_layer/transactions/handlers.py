"""Handlers of Kafka's transaction APIs.

Leaves the decisions to `coordinator`, and WriteTxnMarkers to `markers`.

Invariants: each refusal is an error code in an answer; a request on a connection that its producer
has left closes the connection. Clients that are too old to know PRODUCER_FENCED get
INVALID_PRODUCER_EPOCH. Expired transactional ids are not listed.

Source: KIP-98, KIP-360, KIP-588 (fencing), KIP-664, KIP-890, KIP-994.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, INTERNAL_TOPICS, partition_of_key
from broker_layer.errors import TopicError, code_in
from broker_layer.handlers import Handler, RequestContext, Turns, answer, error_of, grouped, slices
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiMessage,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.leaders import NoLeader, PartitionLeaders
from broker_layer.transactions.markers import MarkerHandler
from broker_layer.transactions.values import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Claim,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
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

_Described = DescribeTransactionsResponse.TransactionState
_DescribedTopic = _Described.TopicData
_Listed = ListTransactionsResponse.TransactionState

_STATES = {state.title: state for state in TransactionState}

Codes = dict[TopicPartition, ErrorCode]
TopicT = TypeVar("TopicT")


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
    own = TransactionHandlers(coordinator, leaders, group_partition_count)
    return {
        ApiKey.INIT_PRODUCER_ID: own.init_producer_id,
        ApiKey.ADD_PARTITIONS_TO_TXN: own.add_partitions,
        ApiKey.ADD_OFFSETS_TO_TXN: own.add_offsets,
        ApiKey.END_TXN: own.end,
        ApiKey.WRITE_TXN_MARKERS: markers.write_markers,
        ApiKey.DESCRIBE_TRANSACTIONS: own.describe,
        ApiKey.LIST_TRANSACTIONS: own.list_all,
    }


@dataclass(eq=False, repr=False)
class TransactionHandlers:
    """Handlers of requests of producers, of leaders for them, and of administrators."""

    _coordinator: TransactionCoordinator
    _leaders: PartitionLeaders
    _group_partition_count: Callable[[], Awaitable[int]]

    async def init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer InitProducerId."""
        try:
            identity = await self._coordinator.init_producer_id(
                request.transactional_id,
                request.transaction_timeout_ms,
                _claim_in(request.producer_id, request.producer_epoch),
            )
        except TopicError as error:
            code = _known_to(context, error.code, INIT_FENCED_VERSION)
            return InitProducerIdResponse(
                error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
            )
        return InitProducerIdResponse(
            producer_id=identity.producer_id, producer_epoch=identity.epoch
        )

    async def add_partitions(
        self, request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer AddPartitionsToTxn; producers send versions up to 3, brokers send later ones."""
        if context.api_version < BATCH_VERSION:
            claim = Claim(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                context.connection_id,
            )
            codes = await self._add(claim, _partitions_in(request.v3_and_below_topics))
            codes = {partition: _known_to(context, code) for partition, code in codes.items()}
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_shown(codes, _Topic, _Partition)
            )
        results = [
            _Result(
                transactional_id=row.transactional_id,
                topic_results=_shown(await self._answer_one(row), _InnerTopic, _InnerPartition),
            )
            for row in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    async def add_offsets(
        self, request: AddOffsetsToTxnRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer AddOffsetsToTxn: add the partition of the group's offsets to the transaction."""
        claim = _claim_of(request, context)
        try:
            count = await self._group_partition_count()
        except TopicError:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = TopicPartition(CONSUMER_OFFSETS, partition_of_key(request.group_id, count))
        error = await error_of(self._coordinator.add_partitions(claim, [partition]))
        return AddOffsetsToTxnResponse(error_code=_known_to(context, code_in(error)))

    async def end(self, request: EndTxnRequest, context: RequestContext) -> ApiMessage:
        """Answer EndTxn."""
        claim = _claim_of(request, context)
        error = await error_of(self._coordinator.end(claim, committed=request.committed))
        return EndTxnResponse(error_code=_known_to(context, code_in(error)))

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
            return {part: wrong.get(part, ErrorCode.OPERATION_NOT_ATTEMPTED) for part in partitions}
        error = await error_of(self._coordinator.add_partitions(claim, partitions))
        return dict.fromkeys(partitions, code_in(error))

    # -- requests of administrators --------------------------------------------------------------

    async def describe(self, request: DescribeTransactionsRequest, _: RequestContext) -> ApiMessage:
        """Answer DescribeTransactions."""
        states, turns = [], Turns()
        for transactional_id in dict.fromkeys(request.transactional_ids):
            states.append(self._described(transactional_id))
            await turns.pass_on()
        return DescribeTransactionsResponse(transaction_states=states)

    async def list_all(self, request: ListTransactionsRequest, _: RequestContext) -> ApiMessage:
        """Answer ListTransactions, for the partitions that this broker leads."""
        unknown = [name for name in request.state_filters if name not in _STATES]
        try:
            transactions = self._coordinator.list_all()
        except TopicError as error:
            return ListTransactionsResponse(error_code=error.code)
        now_ms = self._coordinator.now_ms()
        listed, turns = list[_Listed](), Turns()
        for some in slices(transactions):
            listed += [
                _Listed(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.title,
                )
                for transaction in some
                if _is_wanted(transaction, request, now_ms)
            ]
            await turns.pass_on()
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)

    def _described(self, transactional_id: str) -> _Described:
        try:
            transaction, partitions = self._coordinator.describe(transactional_id)
        except TopicError as error:
            return answer(_Described, error, transactional_id=transactional_id)
        return answer(
            _Described,
            transactional_id=transactional_id,
            transaction_state=transaction.state.title,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.started_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                _DescribedTopic(topic=name, partitions=numbers)
                for name, numbers in grouped(partitions).items()
            ],
        )


def _claim_of(request: AddOffsetsToTxnRequest | EndTxnRequest, context: RequestContext) -> Claim:
    identity = request.producer_id, request.producer_epoch
    return Claim(request.transactional_id, *identity, context.connection_id)


def _claim_in(producer_id: int, epoch: int) -> ProducerIdentity | None:
    if producer_id == NO_PRODUCER_ID and epoch == NO_EPOCH:
        return None
    if producer_id < 0 or epoch < 0:
        raise TopicError(
            ErrorCode.INVALID_REQUEST, "the producer id and the epoch must both be given"
        )
    return ProducerIdentity(producer_id, epoch)


def _known_to(
    context: RequestContext, code: ErrorCode, fenced_version: int = FENCED_VERSION
) -> ErrorCode:
    """Return the code that clients of this version know."""
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _partitions_in(topics: Iterable[Any]) -> list[TopicPartition]:
    members = [
        TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
    ]
    return list(dict.fromkeys(members))


def _shown(
    codes: Codes, topic_kind: Callable[..., TopicT], partition_kind: Callable[..., object]
) -> list[TopicT]:
    topics = grouped((topic, (number, code)) for (topic, number), code in codes.items())
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


def _is_wanted(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if transaction.state is TransactionState.DEAD:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and transaction.state.title not in request.state_filters:
        return False
    longer_than_ms = request.duration_filter
    return longer_than_ms < 0 or now_ms - transaction.started_ms > longer_than_ms
