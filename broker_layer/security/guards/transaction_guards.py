"""Guards of producers and transactions.

Leaves Produce to its service.

Invariants: a transaction gets partitions only if the client may write to all of them; markers are
written only for clients with the right of a broker.

Source: KIP-11, KIP-98, KIP-679 (idempotence); Kafka's KafkaApis.
"""

from typing import Final

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
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker_layer.security.guards.guard import GuardedCall
from broker_layer.security.rights import may_on_cluster, sees_topic
from metadata.security.acls import CLUSTER_NAME, Operation, ResourceType

BROKERS_ASK_FROM: Final = 4
"""First version of AddPartitionsToTxn that brokers send (KIP-890)."""

_ID_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CLUSTER_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

_Added = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_AskedAddition = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Committed = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_AskedCommit = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Marked = WriteTxnMarkersResponse.WritableTxnMarkerResult
_MarkedTopic = _Marked.WritableTxnMarkerTopicResult
_Described = DescribeTransactionsResponse.TransactionState


def _writes(call: GuardedCall, transactional_id: str) -> bool:
    kind = ResourceType.TRANSACTIONAL_ID
    return call.rights.check(Operation.WRITE, kind, transactional_id)


async def init_producer_id(call: GuardedCall) -> ApiMessage:
    """Guard InitProducerId: a right on the transactional id, or to produce to some topic."""
    request = call.request
    assert isinstance(request, InitProducerIdRequest), "the guard of this API"
    code = ErrorCode.NONE
    if request.transactional_id is not None:
        if not _writes(call, request.transactional_id):
            code = _ID_REFUSED
    elif not _may_be_idempotent(call):
        code = _CLUSTER_REFUSED
    if code is ErrorCode.NONE:
        return await call.serve(InitProducerIdResponse)
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _may_be_idempotent(call: GuardedCall) -> bool:
    operation = Operation.IDEMPOTENT_WRITE
    return call.rights.may_any(Operation.WRITE, ResourceType.TOPIC) or may_on_cluster(
        call.rights, operation
    )


async def add_partitions(call: GuardedCall) -> ApiMessage:
    """Guard AddPartitionsToTxn: producers write to the topics; brokers have another right."""
    request = call.request
    assert isinstance(request, AddPartitionsToTxnRequest), "the guard of this API"
    if call.context.api_version >= BROKERS_ASK_FROM:
        if may_on_cluster(call.rights, Operation.CLUSTER_ACTION):
            return await call.serve(AddPartitionsToTxnResponse)
        return AddPartitionsToTxnResponse(error_code=_CLUSTER_REFUSED, results_by_transaction=[])
    topics = list(request.v3_and_below_topics)
    if not _writes(call, request.v3_and_below_transactional_id):
        rows = [_not_added(topic, _ID_REFUSED) for topic in topics]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
    allowed, refused = call.split(
        topics, Operation.WRITE, ResourceType.TOPIC, lambda topic: topic.name
    )
    if not refused:
        return await call.serve(AddPartitionsToTxnResponse)
    rows = [_not_added(topic, _TOPIC_REFUSED) for topic in refused]
    rows += [_not_added(topic, ErrorCode.OPERATION_NOT_ATTEMPTED) for topic in allowed]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


def _not_added(topic: _AskedAddition, code: ErrorCode) -> _Added:
    kind = _Added.AddPartitionsToTxnPartitionResult
    return _Added(
        name=topic.name,
        results_by_partition=[
            kind(partition_index=each, partition_error_code=code) for each in topic.partitions
        ],
    )


async def add_offsets(call: GuardedCall) -> ApiMessage:
    """Guard AddOffsetsToTxn."""
    request = call.request
    assert isinstance(request, AddOffsetsToTxnRequest), "the guard of this API"
    if not _writes(call, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=_ID_REFUSED)
    if not call.rights.check(Operation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=_GROUP_REFUSED)
    return await call.serve(AddOffsetsToTxnResponse)


async def end_transaction(call: GuardedCall) -> ApiMessage:
    """Guard EndTxn."""
    assert isinstance(call.request, EndTxnRequest), "the guard of this API"
    if not _writes(call, call.request.transactional_id):
        return EndTxnResponse(error_code=_ID_REFUSED)
    return await call.serve(EndTxnResponse)


async def txn_offset_commit(call: GuardedCall) -> ApiMessage:
    """Guard TxnOffsetCommit."""
    request = call.request
    assert isinstance(request, TxnOffsetCommitRequest), "the guard of this API"
    code = ErrorCode.NONE
    if not _writes(call, request.transactional_id):
        code = _ID_REFUSED
    elif not call.rights.check(Operation.READ, ResourceType.GROUP, request.group_id):
        code = _GROUP_REFUSED
    if code is not ErrorCode.NONE:
        return TxnOffsetCommitResponse(
            topics=[_uncommitted(topic, code) for topic in request.topics]
        )
    request.topics, refused = call.split(
        request.topics, Operation.READ, ResourceType.TOPIC, lambda topic: topic.name
    )
    rows = [_uncommitted(topic, _TOPIC_REFUSED) for topic in refused]
    if rows and not request.topics:
        return TxnOffsetCommitResponse(topics=rows)
    response = await call.serve(TxnOffsetCommitResponse)
    response.topics = [*response.topics, *rows]
    return response


def _uncommitted(topic: _AskedCommit, code: ErrorCode) -> _Committed:
    kind = _Committed.TxnOffsetCommitResponsePartition
    return _Committed(
        name=topic.name,
        partitions=[
            kind(partition_index=each.partition_index, error_code=code) for each in topic.partitions
        ],
    )


async def write_markers(call: GuardedCall) -> ApiMessage:
    """Guard WriteTxnMarkers: for brokers, and for administrators who end transactions."""
    request = call.request
    assert isinstance(request, WriteTxnMarkersRequest), "the guard of this API"
    if call.rights.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) or may_on_cluster(
        call.rights, Operation.CLUSTER_ACTION
    ):
        return await call.serve(WriteTxnMarkersResponse)
    kind = _MarkedTopic.WritableTxnMarkerPartitionResult
    return WriteTxnMarkersResponse(
        markers=[
            _Marked(
                producer_id=marker.producer_id,
                topics=[
                    _MarkedTopic(
                        name=topic.name,
                        partitions=[
                            kind(partition_index=each, error_code=_CLUSTER_REFUSED)
                            for each in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def describe_transactions(call: GuardedCall) -> ApiMessage:
    """Guard DescribeTransactions; leave out topics that the client may not see."""
    request = call.request
    assert isinstance(request, DescribeTransactionsRequest), "the guard of this API"
    request.transactional_ids, refused = call.split(
        request.transactional_ids,
        Operation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        lambda each: each,
    )
    response = await call.serve(DescribeTransactionsResponse)
    for state in response.transaction_states:
        state.topics = [each for each in state.topics if sees_topic(call.rights, each.topic)]
    rows = [
        _Described(
            error_code=_ID_REFUSED,
            transactional_id=each,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
        for each in dict.fromkeys(refused)
    ]
    response.transaction_states = [*response.transaction_states, *rows]
    return response


async def list_transactions(call: GuardedCall) -> ApiMessage:
    """Guard ListTransactions: leave out transactions that the client may not describe."""
    response = await call.serve(ListTransactionsResponse)
    kind = ResourceType.TRANSACTIONAL_ID
    response.transaction_states = [
        each
        for each in response.transaction_states
        if call.rights.may(Operation.DESCRIBE, kind, each.transactional_id)
    ]
    return response
