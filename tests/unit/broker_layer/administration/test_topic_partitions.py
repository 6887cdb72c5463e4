"""Topics that are described in parts."""

from uuid import UUID

import pytest

from broker_layer.control.topic_changes import NewTopic
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.asking import Admin, topic

Cursor = DescribeTopicPartitionsRequest.Cursor
Place = tuple[str, int]


async def described(
    admin: Admin, *names: str, limit: int = 2_000, cursor: Place | None = None
) -> DescribeTopicPartitionsResponse:
    kind = DescribeTopicPartitionsRequest.TopicRequest
    request = DescribeTopicPartitionsRequest(
        topics=[kind(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    return await admin.ask(key, request, DescribeTopicPartitionsResponse)


def places(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [
        (
            response_topic.name,
            [partition.partition_index for partition in response_topic.partitions],
        )
        for response_topic in answer.topics
    ]


async def test_a_topic_is_described_as_in_metadata(admin: Admin) -> None:
    await admin.create(topic("a", 2))
    answer = await described(admin, "a")
    (shown,), (expected,) = answer.topics, (await admin.metadata("a")).topics
    assert (shown.name, shown.error_code, shown.is_internal) == ("a", ErrorCode.NONE, False)
    assert shown.topic_id == UUID(bytes=bytes(admin.broker.view.topics["a"].topic_id))
    assert shown.topic_authorized_operations == sum(
        1 << each for each in (3, 4, 5, 6, 7, 8, 10, 11)
    )
    assert answer.next_cursor is None
    for ours, theirs in zip(shown.partitions, expected.partitions, strict=True):
        assert ours.partition_index == theirs.partition_index
        assert (ours.leader_id, ours.leader_epoch) == (1, theirs.leader_epoch)
        assert (ours.replica_nodes, ours.isr_nodes) == (theirs.replica_nodes, theirs.isr_nodes)
        assert (ours.eligible_leader_replicas, ours.last_known_elr) == ([], [])
        assert (ours.error_code, ours.offline_replicas) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 6, 2_000])
@pytest.mark.parametrize("names", [(), ("c", "a", "b", "a")])
async def test_the_parts_together_are_all_partitions(
    admin: Admin, limit: int, names: tuple[str, ...]
) -> None:
    await admin.create(topic("b", 1), topic("a", 3), topic("c", 2))
    found: list[tuple[str | None, int]] = []
    cursor: Place | None = None
    while True:
        answer = await described(admin, *names, limit=limit, cursor=cursor)
        part = [(name, number) for name, numbers in places(answer) for number in numbers]
        assert len(part) <= max(limit, 1)
        found += part
        assert len(found) <= 6
        if answer.next_cursor is None:
            break
        cursor = answer.next_cursor.topic_name, answer.next_cursor.partition_index
    assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


async def test_a_cursor_of_a_topic_that_is_gone_continues_behind_it(admin: Admin) -> None:
    await admin.create(topic("a"), topic("c", 2))
    assert places(await described(admin, cursor=("b", 5))) == [("c", [0, 1])]
    assert places(await described(admin, cursor=("c", 9))) == [("c", [])]


async def test_unknown_topics_are_named(admin: Admin) -> None:
    await admin.create(topic("a"))
    answer = await described(admin, "a", "none", "a b", limit=2)
    assert [
        (response_topic.name, response_topic.error_code) for response_topic in answer.topics
    ] == [
        ("a", ErrorCode.NONE),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_a_topic_that_another_broker_has_just_created_is_described(admin: Admin) -> None:
    broker = admin.broker
    record = broker.changes.plan(NewTopic("late", 2))
    await broker.view.aclose()
    await broker.topics.create(record)
    assert places(await described(admin, "late")) == [("late", [0, 1])]
