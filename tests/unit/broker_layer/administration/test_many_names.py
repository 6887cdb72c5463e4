"""A request with many names lets other work run, and costs a bounded number of look-ups."""

import asyncio
from uuid import UUID

import pytest

from broker_layer import turns
from broker_layer.control import topic_changes
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.asking import Admin, AskedTopic, topic

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
            kind(resource_type=2, resource_name=each, configuration_keys=None) for each in names
        ]
    )


@pytest.mark.parametrize(
    "api", ["metadata", "coordinators", "settings", "changes", "partitions", "deletions"]
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
        rows = [row(resource_type=2, resource_name=each, configs=[]) for each in NAMES]
        change = AlterConfigsRequest(resources=rows, validate_only=True)
        await admin.ask(ApiKey.ALTER_CONFIGS, change, AlterConfigsResponse)
    elif api == "partitions":
        kind = DescribeTopicPartitionsRequest.TopicRequest
        asked = DescribeTopicPartitionsRequest(
            topics=[kind(name=each) for each in NAMES], response_partition_limit=10, cursor=None
        )
        key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
        await admin.ask(key, asked, DescribeTopicPartitionsResponse)
    else:
        monkeypatch.setattr("broker_layer.administration.topic_admin.CHANGES_AT_ONCE_MAX", 1)
        deletion = DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1_000)
        await admin.ask(ApiKey.DELETE_TOPICS, deletion, DeleteTopicsResponse, 3)
    assert ticks.stop() >= len(NAMES)


async def test_a_request_looks_up_a_bounded_number_of_topics(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_changes, "LOOK_UPS_MAX", 3)
    await admin.create(topic("known"))
    found = await admin.metadata(*NAMES, "known", creates=False)
    codes = {str(each.name): each.error_code for each in found.topics}
    assert codes == {**dict.fromkeys(NAMES, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "known": 0}
    assert list(admin.broker.changes._missed_s) == NAMES[:3]


async def test_a_topic_that_is_named_with_several_ids_is_described_once(admin: Admin) -> None:
    await admin.create(topic("a"))
    asked = [AskedTopic(name="a", topic_id=UUID(int=each)) for each in range(5)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    answer = await admin.ask(ApiKey.METADATA, request, MetadataResponse)
    assert [each.name for each in answer.topics] == ["a"]


async def test_a_resource_that_is_named_several_times_is_described_once(admin: Admin) -> None:
    await admin.create(topic("a"))
    request = _settings("a", "a", "b")
    answer = await admin.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
    assert [each.resource_name for each in answer.results] == ["a", "b"]
