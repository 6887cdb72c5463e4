"""Rights on transactional ids, API by API."""

from broker_layer.kafka.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.authorization_case import CLUSTER, ON_CLUSTER, ON_TXN, TXN, Case

TXN_COMMIT = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
MARKER = WriteTxnMarkersRequest.WritableTxnMarker


def _added(version: int) -> Case:
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[kind(name="t", partitions=[0])],
    )
    needs = [f"{ON_TXN} WRITE", "TOPIC:t WRITE"]
    return Case(ApiKey.ADD_PARTITIONS_TO_TXN, request, needs, TXN, version)


TRANSACTION_CASES = [
    Case(
        ApiKey.INIT_PRODUCER_ID,
        InitProducerIdRequest(
            transactional_id="x",
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        ),
        [f"{ON_TXN} WRITE"],
        TXN,
    ),
    *(
        Case(
            ApiKey.INIT_PRODUCER_ID,
            InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
            [need],
            CLUSTER,
        )
        for need in (f"{ON_CLUSTER} IDEMPOTENT_WRITE", "TOPIC:any WRITE", "TOPIC:an* WRITE")
    ),
    _added(3),
    Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        AddOffsetsToTxnRequest(transactional_id="x", producer_id=7, producer_epoch=0, group_id="g"),
        [f"{ON_TXN} WRITE", "GROUP:g READ"],
        TXN,
    ),
    Case(
        ApiKey.END_TXN,
        EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=0, committed=True),
        [f"{ON_TXN} WRITE"],
        TXN,
    ),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=7,
            producer_epoch=0,
            topics=[
                TXN_COMMIT(
                    name="t",
                    partitions=[
                        TXN_COMMIT.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
            ],
        ),
        [f"{ON_TXN} WRITE", "GROUP:g READ", "TOPIC:t READ"],
        TXN,
    ),
    *(
        Case(
            ApiKey.WRITE_TXN_MARKERS,
            WriteTxnMarkersRequest(
                markers=[
                    MARKER(
                        producer_id=7,
                        producer_epoch=0,
                        transaction_result=False,
                        topics=[
                            MARKER.WritableTxnMarkerTopic(name="absent", partition_indexes=[0])
                        ],
                        coordinator_epoch=0,
                    )
                ]
            ),
            [f"{ON_CLUSTER} {operation}"],
            CLUSTER,
        )
        for operation in ("CLUSTER_ACTION", "ALTER")
    ),
    Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        DescribeTransactionsRequest(transactional_ids=["x"]),
        [f"{ON_TXN} DESCRIBE"],
        TXN,
    ),
]
