"""A request with many names lets other work run, and costs a bounded number of look-ups."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import pytest

from broker_layer import handlers as turns
from broker_layer.administration import config_admin
from broker_layer.control import topic_changes
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.security.authorizer import Rights
from metadata.security.acls import Operation, ResourceType
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicChange
from quire.server.overriding import override
from tests.support.broker_layer.asking import Admin, AskedTopic, topic
from tests.support.broker_layer.control_setting import LISTENER
from tests.until import until

NAMES = [f"missing-{number}" for number in range(50)]


class Ticks:
    """Counts how often other work of the loop runs."""

    def __init__(self) -> None:
        self.count = 0
        self._tick()

    def _tick(self) -> None:
        self._handle = asyncio.get_running_loop().call_soon(self._tick)
        self.count += 1

    def stop(self) -> int:
        self._handle.cancel()
        return self.count


def _settings(*names: str) -> DescribeConfigsRequest:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            kind(resource_type=2, resource_name=name, configuration_keys=None) for name in names
        ]
    )


@pytest.mark.parametrize(
    "api",
    [
        "metadata",
        "coordinators",
        "settings",
        "changes",
        "partitions",
        "creations",
        "deletions",
        "moves",
    ],
)
async def test_other_work_runs_meanwhile(
    admin: Admin, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_changes, "LOOK_UPS_MAX", 0)
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    ticks = Ticks()
    if api == "metadata":
        await admin.metadata(*NAMES, creates=False)
    elif api == "coordinators":
        wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES)
        await admin.ask(ApiKey.FIND_COORDINATOR, wanted, FindCoordinatorResponse)
    elif api == "settings":
        request = _settings(*NAMES)
        await admin.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
    elif api == "changes":
        row = AlterConfigsRequest.AlterConfigsResource
        rows = [row(resource_type=2, resource_name=name, configs=[]) for name in NAMES]
        change = AlterConfigsRequest(resources=rows, validate_only=True)
        await admin.ask(ApiKey.ALTER_CONFIGS, change, AlterConfigsResponse)
    elif api == "creations":
        at_once = "broker_layer.administration.topic_admin.CHANGES_AT_ONCE_MAX"
        monkeypatch.setattr(at_once, len(NAMES))
        await admin.create(*[topic(name, replication=9) for name in NAMES])
    elif api == "moves":
        moved = AlterPartitionReassignmentsRequest.ReassignableTopic
        moves = AlterPartitionReassignmentsRequest(
            timeout_ms=1_000, topics=[moved(name=name, partitions=[]) for name in NAMES]
        )
        key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
        await admin.ask(key, moves, AlterPartitionReassignmentsResponse)
    elif api == "partitions":
        kind = DescribeTopicPartitionsRequest.TopicRequest
        asked = DescribeTopicPartitionsRequest(
            topics=[kind(name=name) for name in NAMES], response_partition_limit=10, cursor=None
        )
        key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
        await admin.ask(key, asked, DescribeTopicPartitionsResponse)
    else:
        monkeypatch.setattr("broker_layer.administration.topic_admin.CHANGES_AT_ONCE_MAX", 1)
        deletion = DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1_000)
        await admin.ask(ApiKey.DELETE_TOPICS, deletion, DeleteTopicsResponse, 3)
    assert ticks.stop() >= len(NAMES)


async def test_other_work_runs_while_sizes_of_logs_are_read(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.create(topic("a", 20))
    await until(lambda: admin.broker.manager.led_count == 20)
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    some = DescribeLogDirsRequest.DescribableLogDirTopic(topic="a", partitions=list(range(20)))
    ticks = Ticks()
    request = DescribeLogDirsRequest(topics=[some])
    answer = await admin.ask(ApiKey.DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponse)
    assert ticks.stop() >= 20
    assert len(answer.results[0].topics[0].partitions) == 20


async def test_other_work_runs_while_new_partitions_are_planned(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    at_once = "broker_layer.administration.topic_admin.CHANGES_AT_ONCE_MAX"
    monkeypatch.setattr(at_once, len(NAMES))
    grown = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(
        topics=[grown(name=name, count=2, assignments=None) for name in NAMES],
        timeout_ms=1_000,
        validate_only=False,
    )
    ticks = Ticks()
    answer = await admin.ask(ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse)
    assert ticks.stop() >= len(NAMES)
    assert len(answer.results) == len(NAMES)


class MostTopics(Rights):
    """Rights of a client that may not describe one topic."""

    def __init__(self) -> None:
        """Decide without an authorizer."""

    @override
    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return name != "t0"

    @override
    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        return True

    @override
    def check(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self.may(operation, kind, name)


async def test_other_work_runs_while_visible_topics_are_described(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.create(*[topic(f"t{number}") for number in range(21)])
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    context = RequestContext(12, "client", "host", LISTENER, 1, rights=MostTopics())
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    ticks = Ticks()
    answer = await admin.handlers[ApiKey.METADATA](request, context)
    assert ticks.stop() >= 20
    assert isinstance(answer, MetadataResponse)
    assert len(answer.topics) == 20


@pytest.mark.parametrize("kind", [0, 1])
async def test_other_work_runs_during_elections(
    admin: Admin, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    named = ElectLeadersRequest.TopicPartitions
    rows = [named(topic=name, partitions=[0]) for name in NAMES]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=1_000)
    ticks = Ticks()
    answer = await admin.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)
    assert ticks.stop() >= (2 + kind) * len(NAMES)
    assert len(answer.replica_election_results) == len(NAMES)


async def test_a_request_looks_up_a_bounded_number_of_topics(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_changes, "LOOK_UPS_MAX", 3)
    await admin.create(topic("known"))
    found = await admin.metadata(*NAMES, "known", creates=False)
    codes = {str(response_topic.name): response_topic.error_code for response_topic in found.topics}
    assert codes == {**dict.fromkeys(NAMES, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "known": 0}
    assert list(admin.broker.changes._missed_s) == NAMES[:3]


async def test_a_topic_that_is_named_with_several_ids_is_described_once(admin: Admin) -> None:
    await admin.create(topic("a"))
    asked = [AskedTopic(name="a", topic_id=UUID(int=number)) for number in range(5)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    answer = await admin.ask(ApiKey.METADATA, request, MetadataResponse)
    assert [response_topic.name for response_topic in answer.topics] == ["a"]


async def test_a_resource_that_is_named_several_times_is_described_once(admin: Admin) -> None:
    await admin.create(topic("a"))
    request = _settings("a", "a", "b")
    answer = await admin.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
    assert [result.resource_name for result in answer.results] == ["a", "b"]


async def test_a_change_of_settings_looks_up_a_bounded_number_of_topics(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_admin, "LOOK_UPS_MAX", 3)
    await admin.create(topic("known"))
    sought, change = list[str](), admin.broker.topics.change

    async def counted(name: str, wanted: TopicChange) -> TopicRecord:
        sought.append(name)
        return await change(name, wanted)

    monkeypatch.setattr(admin.broker.topics, "change", counted)
    codes = await _altered(admin, *NAMES, "known")
    assert codes == [*[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(NAMES), ErrorCode.NONE]
    assert sought == [*NAMES[:3], "known"]


async def test_a_resource_that_is_named_several_times_is_not_altered(admin: Admin) -> None:
    await admin.create(topic("a"), topic("b"))
    token = admin.broker.view.topics["a"].token
    refused = ErrorCode.INVALID_REQUEST
    assert await _altered(admin, "a", "b", "a") == [refused, ErrorCode.NONE, refused]
    assert admin.broker.view.topics["a"].token == token


async def _altered(admin: Admin, *names: str) -> list[int]:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    step = kind.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    rows = [kind(resource_type=2, resource_name=name, configs=[step]) for name in names]
    request = IncrementalAlterConfigsRequest(resources=rows, validate_only=False)
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    answer = await admin.ask(key, request, IncrementalAlterConfigsResponse)
    assert [response.resource_name for response in answer.responses] == list(names)
    return [response.error_code for response in answer.responses]


async def test_all_partitions_of_a_topic_are_reassigned_in_one_step(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.create(topic("a", assigned=[[1]] * 20))
    steps, name_leaders = list[int](), TopicRecord.with_preferred

    def counted(record: TopicRecord, preferred: Mapping[int, int]) -> TopicRecord:
        steps.append(len(preferred))
        return name_leaders(record, preferred)

    monkeypatch.setattr(TopicRecord, "with_preferred", counted)
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic
    partitions = [
        moved.ReassignablePartition(partition_index=number, replicas=[1]) for number in range(20)
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=1_000, topics=[moved(name="a", partitions=partitions)]
    )
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    answer = await admin.ask(key, request, AlterPartitionReassignmentsResponse)
    assert [partition.error_code for partition in answer.responses[0].partitions] == [
        ErrorCode.NONE
    ] * 20
    assert set(steps) == {20}, "each copies all partitions of the topic"
