"""Rights on topics and settings, API by API."""

from uuid import UUID

from broker_layer.kafka.messages import (
    AlterConfigsRequest,
    ApiMessage,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.asking import NO_ID, AskedTopic, topic
from tests.support.broker_layer.authorization_case import (
    CLUSTER,
    GROUP,
    ON_CLUSTER,
    ON_TXN,
    TOPIC,
    TXN,
    Case,
)
from tests.support.broker_layer.served_broker import (
    Ask,
    Wanted,
    batch,
    fetch_body,
    produce_body,
)


def _described(kind: int, name: str) -> ApiMessage:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = resource(resource_type=kind, resource_name=name, configuration_keys=None)
    return DescribeConfigsRequest(resources=[asked])


def _altered(kind: int, name: str) -> ApiMessage:
    resource = AlterConfigsRequest.AlterConfigsResource
    asked = resource(resource_type=kind, resource_name=name, configs=[])
    return AlterConfigsRequest(resources=[asked])


def _stepped(kind: int, name: str) -> ApiMessage:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    asked = resource(resource_type=kind, resource_name=name, configs=[])
    return IncrementalAlterConfigsRequest(resources=[asked])


TOPIC_CASES = [
    Case(ApiKey.PRODUCE, produce_body(9, {"t": {0: batch(b"a")}}), ["TOPIC:t WRITE"], TOPIC, 9),
    Case(
        ApiKey.PRODUCE,
        produce_body(9, {"t": {0: batch(b"a")}}, transactional_id="x"),
        [f"{ON_TXN} WRITE", "TOPIC:t WRITE"],
        TXN,
        9,
    ),
    Case(
        ApiKey.FETCH, fetch_body(12, Ask(topics={"t": {0: Wanted()}})), ["TOPIC:t READ"], TOPIC, 12
    ),
    Case(
        ApiKey.METADATA,
        MetadataRequest(topics=[AskedTopic(name="t", topic_id=NO_ID)]),
        ["TOPIC:t DESCRIBE"],
        TOPIC,
    ),
    Case(
        ApiKey.METADATA,
        MetadataRequest(
            topics=[AskedTopic(name="made", topic_id=NO_ID)], allow_auto_topic_creation=True
        ),
        ["TOPIC:made DESCRIBE", "TOPIC:made CREATE"],
        TOPIC,
    ),
    Case(
        ApiKey.METADATA,
        MetadataRequest(
            topics=[AskedTopic(name="made-too", topic_id=NO_ID)], allow_auto_topic_creation=True
        ),
        ["TOPIC:made-too DESCRIBE", f"{ON_CLUSTER} CREATE"],
        TOPIC,
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")],
            response_partition_limit=10,
            cursor=None,
        ),
        ["TOPIC:t DESCRIBE"],
        TOPIC,
    ),
    Case(
        ApiKey.LIST_OFFSETS,
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name="t",
                    partitions=[
                        ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                            partition_index=0, current_leader_epoch=-1, timestamp=-1
                        )
                    ],
                )
            ],
        ),
        ["TOPIC:t DESCRIBE"],
        TOPIC,
    ),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
                            partition=0, current_leader_epoch=-1, leader_epoch=0
                        )
                    ],
                )
            ],
        ),
        ["TOPIC:t DESCRIBE"],
        TOPIC,
    ),
    Case(
        ApiKey.DELETE_RECORDS,
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name="t",
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(
                            partition_index=0, offset=0
                        )
                    ],
                )
            ],
            timeout_ms=5_000,
        ),
        ["TOPIC:t DELETE"],
        TOPIC,
    ),
    Case(
        ApiKey.DESCRIBE_PRODUCERS,
        DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
        ),
        ["TOPIC:t READ"],
        TOPIC,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        CreateTopicsRequest(topics=[topic("new", 1)], timeout_ms=5_000, validate_only=True),
        ["TOPIC:new CREATE", "TOPIC:new DESCRIBE_CONFIGS"],
        TOPIC,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        CreateTopicsRequest(topics=[topic("new", 1)], timeout_ms=5_000, validate_only=True),
        [f"{ON_CLUSTER} CREATE", "TOPIC:new DESCRIBE_CONFIGS"],
        TOPIC,
    ),
    Case(
        ApiKey.CREATE_PARTITIONS,
        CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=9, assignments=None)
            ],
            timeout_ms=5_000,
            validate_only=True,
        ),
        ["TOPIC:t ALTER"],
        TOPIC,
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name="absent", topic_id=UUID(int=0))],
            timeout_ms=5_000,
        ),
        ["TOPIC:absent DELETE"],
        TOPIC,
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        DeleteTopicsRequest(topic_names=["absent"], timeout_ms=5_000),
        ["TOPIC:absent DELETE"],
        TOPIC,
        5,
    ),
    Case(ApiKey.DESCRIBE_CONFIGS, _described(2, "t"), ["TOPIC:t DESCRIBE_CONFIGS"], TOPIC),
    Case(ApiKey.DESCRIBE_CONFIGS, _described(4, "0"), [f"{ON_CLUSTER} DESCRIBE_CONFIGS"], CLUSTER),
    Case(ApiKey.DESCRIBE_CONFIGS, _described(32, "g"), ["GROUP:g DESCRIBE_CONFIGS"], GROUP),
    Case(ApiKey.ALTER_CONFIGS, _altered(2, "t"), ["TOPIC:t ALTER_CONFIGS"], TOPIC),
    Case(ApiKey.ALTER_CONFIGS, _altered(4, "0"), [f"{ON_CLUSTER} ALTER_CONFIGS"], CLUSTER),
    Case(ApiKey.INCREMENTAL_ALTER_CONFIGS, _stepped(2, "t"), ["TOPIC:t ALTER_CONFIGS"], TOPIC),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, _stepped(4, "0"), [f"{ON_CLUSTER} ALTER_CONFIGS"], CLUSTER
    ),
]
