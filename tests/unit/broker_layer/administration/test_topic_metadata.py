"""Answers to clients about topics, brokers and coordinators."""

from uuid import UUID

import pytest

from broker_layer.control.control_config import ControlConfig
from broker_layer.control.topic_changes import NewTopic
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker_layer.kafka.versions import ApiKey
from metadata.topics.replica_numbers import REPLICA_ID_FIRST
from tests.support.broker_layer.asking import Admin, AskedTopic, topic
from tests.support.broker_layer.control_setting import Setting
from tests.support.broker_layer.log_setting import append, batch


@pytest.mark.parametrize("version", range(13))
async def test_metadata_in_every_version(admin: Admin, version: int) -> None:
    await admin.create(topic("a", 2), topic("b"))

    for answer in (
        await admin.metadata(version=version),
        await admin.metadata("a", "b", version=version),
    ):
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
            (1, "host-1", 9001)
        ]
        topics = {str(response_topic.name): response_topic for response_topic in answer.topics}
        assert sorted(topics) == ["a", "b"]
        partition = topics["a"].partitions[1]
        assert (partition.error_code, partition.leader_id) == (0, 1)
        assert partition.replica_nodes == partition.isr_nodes
        assert [node >= REPLICA_ID_FIRST for node in partition.replica_nodes] == [True]
        if version >= 1:
            assert answer.controller_id == 1
        if version >= 2:
            assert answer.cluster_id == "cluster-1"


async def test_an_empty_request_is_answered_without_topics(admin: Admin) -> None:
    await admin.create(topic("a"))
    request = MetadataRequest(topics=[], allow_auto_topic_creation=True)

    answer = await admin.ask(ApiKey.METADATA, request, MetadataResponse, 4)

    assert list(answer.topics) == []


async def test_a_duplicate_topic_is_answered_once(admin: Admin) -> None:
    await admin.create(topic("a"))
    answer = await admin.metadata("a", "b", "a", creates=False)
    assert [response_topic.name for response_topic in answer.topics] == ["a", "b"]


async def test_a_topic_that_another_broker_has_just_created_is_looked_up(admin: Admin) -> None:
    broker = admin.broker
    record = broker.changes.plan(NewTopic("late", 2))
    await broker.view.aclose()
    assert (await admin.metadata("early", creates=False)).topics[0].error_code == 3
    await broker.topics.create(record)
    assert "late" not in broker.view.topics

    (answered,) = (await admin.metadata("late", creates=False)).topics

    assert (answered.error_code, len(answered.partitions)) == (0, 2)


async def test_topics_are_found_by_id(admin: Admin) -> None:
    await admin.create(topic("a"))
    topic_id = UUID(bytes=bytes(admin.broker.view.topics["a"].topic_id))
    request = MetadataRequest(
        topics=[
            AskedTopic(name=None, topic_id=topic_id),
            AskedTopic(name=None, topic_id=UUID(int=9)),
        ]
    )

    answer = await admin.ask(ApiKey.METADATA, request, MetadataResponse)

    assert [
        (response_topic.name, response_topic.error_code) for response_topic in answer.topics
    ] == [
        ("a", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_metadata_creates_topics_if_allowed(setting: Setting, admin: Admin) -> None:
    refused = await admin.metadata("a", "a b", creates=False)
    assert [response_topic.error_code for response_topic in refused.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]

    made = await admin.metadata("a", "a b")
    assert [response_topic.error_code for response_topic in made.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert made.topics[0].partitions[0].leader_id == 1

    strict = Admin(admin.broker, ControlConfig(creates_topics=False))
    answer = await strict.metadata("c")
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_cached_answer_follows_all_changes(admin: Admin) -> None:
    assert [response_topic.name for response_topic in (await admin.metadata()).topics] == []
    await admin.create(topic("a"))
    assert [response_topic.name for response_topic in (await admin.metadata()).topics] == ["a"]
    assert [response_topic.name for response_topic in (await admin.metadata()).topics] == ["a"]


async def test_a_led_partition_shows_the_bookies_of_its_ledger(admin: Admin) -> None:
    await admin.create(topic("a", 1, 3))
    await append(await admin.broker.log("a"), batch(b"one"))

    partition = (await admin.metadata("a")).topics[0].partitions[0]

    assert sorted(partition.replica_nodes) == [REPLICA_ID_FIRST + n for n in range(3)]
    assert sorted(partition.isr_nodes) == sorted(partition.replica_nodes)
    assert partition.offline_replicas == []


@pytest.mark.parametrize("version", [0, 1])
async def test_the_cluster_is_described(admin: Admin, version: int) -> None:
    answer = await admin.ask(
        ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), DescribeClusterResponse, version
    )

    assert (answer.cluster_id, answer.controller_id) == ("cluster-1", 1)
    assert [broker.broker_id for broker in answer.brokers] == [1]


NOT_ASKED = None
"""The library reads the bit field -2**31 as None."""
OF_TOPIC = {3, 4, 5, 6, 7, 8, 10, 11}
OF_CLUSTER = {5, 7, 8, 9, 10, 11, 12}


@pytest.mark.parametrize("version", [8, 10, 11, 12])
async def test_metadata_shows_the_allowed_operations_if_asked(admin: Admin, version: int) -> None:
    await admin.create(topic("a"))
    for asked in (None, [AskedTopic(name="a", topic_id=UUID(int=0))]):
        for of_topics, of_cluster in ((False, False), (True, False), (False, version < 11)):
            request = MetadataRequest(
                topics=asked,
                include_topic_authorized_operations=of_topics,
                include_cluster_authorized_operations=of_cluster,
            )
            answer = await admin.ask(ApiKey.METADATA, request, MetadataResponse, version)
            (shown,) = answer.topics
            expected = OF_TOPIC if of_topics else NOT_ASKED
            assert shown.authorized_operations == expected
            if version <= 10:
                expected = OF_CLUSTER if of_cluster else NOT_ASKED
                assert answer.authorized_operations == expected


async def test_the_operations_of_an_unknown_topic_are_not_shown(admin: Admin) -> None:
    asked = [AskedTopic(name="none", topic_id=UUID(int=0))]
    request = MetadataRequest(
        topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )
    answer = await admin.ask(ApiKey.METADATA, request, MetadataResponse)
    assert answer.topics[0].authorized_operations == NOT_ASKED


@pytest.mark.parametrize("is_asked", [False, True])
async def test_the_cluster_shows_the_allowed_operations_if_asked(
    admin: Admin, is_asked: bool
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=is_asked)
    answer = await admin.ask(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse)
    assert answer.authorized_operations == (OF_CLUSTER if is_asked else NOT_ASKED)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("kind", [0, 1])
async def test_coordinators_are_found_and_their_topics_created(
    admin: Admin, version: int, kind: int
) -> None:
    request = FindCoordinatorRequest(key="group", key_type=kind, coordinator_keys=["group", "b"])

    answer = await admin.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, version)

    name = "__transaction_state" if kind and version else "__consumer_offsets"
    record = admin.broker.view.topics[name]
    assert (record.is_internal, len(record.partitions)) == (True, 2)
    found = [answer] if version < 4 else list(answer.coordinators)
    assert [(each.error_code, each.node_id, each.port) for each in found] == [(0, 1, 9001)] * len(
        found
    )


async def test_an_unknown_kind_of_coordinator_is_refused(admin: Admin) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["a"])

    answer = await admin.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)

    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_internal_topics_are_not_grown_or_deleted(admin: Admin) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a"])
    await admin.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
    asked = CreatePartitionsRequest.CreatePartitionsTopic
    more = CreatePartitionsRequest(
        topics=[asked(name="__consumer_offsets", count=9, assignments=None)], timeout_ms=1
    )
    grown = await admin.ask(ApiKey.CREATE_PARTITIONS, more, CreatePartitionsResponse)
    gone = await admin.ask(
        ApiKey.DELETE_TOPICS,
        DeleteTopicsRequest(topic_names=["__consumer_offsets"]),
        DeleteTopicsResponse,
        3,
    )

    assert grown.results[0].error_code == ErrorCode.INVALID_PARTITIONS
    assert gone.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_log_directories_show_sizes(admin: Admin) -> None:
    await admin.create(topic("a"), topic("b"))
    await append(await admin.broker.log("a"), batch(b"x" * 1000))
    await admin.broker.log("b")
    request = DescribeLogDirsRequest(topics=None)

    answer = await admin.ask(ApiKey.DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponse)

    sizes = {
        dirs_topic.name: dirs_topic.partitions[0].partition_size
        for dirs_topic in answer.results[0].topics
    }
    assert sizes["a"] > 1000
    assert sizes["b"] < 1000
    some = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(topics=[some(topic="b", partitions=[0, 1])])
    answer = await admin.ask(ApiKey.DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponse)
    assert [dirs_topic.name for dirs_topic in answer.results[0].topics] == ["b"]
