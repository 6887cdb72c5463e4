"""Creation, growth and deletion of topics through Kafka's APIs."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from broker_layer.control.cluster_view import TopicChanged, ViewSettled
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker_layer.kafka.versions import ApiKey
from metadata.topics.topic import PARTITIONS_MAX, TOPIC_ID_BYTES, TopicId, TopicRecord
from tests.support.broker_layer.asking import NO_ID, Admin, Creatable, topic
from tests.support.broker_layer.control_setting import Setting
from tests.until import WAIT_S, until


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created_in_every_version(admin: Admin, version: int) -> None:
    (answer,) = await admin.create(topic("orders", 3, 2), version=version)

    assert (answer.name, answer.error_code) == ("orders", ErrorCode.NONE)
    record = admin.broker.view.topics["orders"]
    assert len(record.partitions) == 3
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 2)
        assert any(config.name == "retention.ms" for config in answer.configs or [])
    if version >= 7:
        assert answer.topic_id.bytes == record.topic_id


async def test_minus_one_requests_the_defaults(admin: Admin) -> None:
    (answer,) = await admin.create(topic("orders"))

    assert (answer.num_partitions, answer.replication_factor) == (1, 1)


async def test_validating_stores_nothing(admin: Admin) -> None:
    (answer,) = await admin.create(topic("orders", 2), is_dry=True)
    assert answer.error_code == ErrorCode.NONE
    assert answer.topic_id != NO_ID
    (refused,) = await admin.create(topic("orders", 0), is_dry=True)

    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert not admin.broker.view.topics


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("th.ere"), ErrorCode.NONE),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("new", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("new", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (topic("new", configs={"min.insync.replicas": "2"}), ErrorCode.INVALID_CONFIG),
        (topic("new", configs={"retenshun.ms": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("new", configs={"quire.unclean": "0:1"}), ErrorCode.INVALID_CONFIG),
        (topic("new", 2, -1, assigned=[[1]]), ErrorCode.INVALID_REQUEST),
        (topic("new", assigned=[[7]]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (topic("new", assigned=[[1], []]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (topic("new", assigned=[[1, 1]]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (topic("new", assigned=[[1], [1]]), ErrorCode.NONE),
    ],
)
async def test_each_refusal_has_its_code(admin: Admin, wanted: Creatable, code: ErrorCode) -> None:
    await admin.create(topic("there"), topic("a.b"))

    (answer,) = await admin.create(wanted)

    assert answer.error_code == code
    assert bool(answer.error_message) == (code is not ErrorCode.NONE)


async def test_a_request_adds_a_bounded_number_of_partitions(admin: Admin) -> None:
    """Else 200 KB, which only ask whether topics could be created, take gigabytes."""
    sizes = {"a": PARTITIONS_MAX - 1, "b": 2, "c": 1, "d": 1}
    planned = await admin.create(*[topic(*size) for size in sizes.items()], is_dry=True)
    assert [topic_result.error_code for topic_result in planned] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    await admin.create(*[topic(name) for name in sizes])
    grown = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(
        topics=[grown(name=size, count=1 + sizes[size], assignments=None) for size in sizes],
        timeout_ms=1_000,
        validate_only=True,
    )
    answer = await admin.ask(ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse)
    assert [result.error_code for result in answer.results] == [
        topic_result.error_code for topic_result in planned
    ]


async def test_a_duplicate_name_is_refused_and_others_are_created(admin: Admin) -> None:
    answers = await admin.create(topic("a"), topic("b"), topic("a", 2))

    assert sorted((answer.name, answer.error_code) for answer in answers) == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]


async def test_a_topic_with_a_write_quorum_has_that_many_replicas(admin: Admin) -> None:
    (answer,) = await admin.create(
        topic("orders", configs={"replication.mode": "quorum", "write.quorum": "3"})
    )

    assert (answer.error_code, answer.replication_factor) == (ErrorCode.NONE, 3)
    assert (await admin.configs("orders"))["ack.quorum"][0] == "2"


async def test_partitions_are_spread_over_all_brokers(setting: Setting, admin: Admin) -> None:
    await setting.broker(2)
    await until(lambda: len(admin.broker.view.brokers) == 2)

    await admin.create(topic("a", 1), topic("b", 1), topic("c", 4))

    leaders = [admin.broker.leaders(name) for name in ("a", "b", "c")]
    assert leaders[0] != leaders[1]
    assert sorted(leaders[2]) == [1, 1, 2, 2]


async def test_topics_are_deleted_by_name_and_by_id(admin: Admin) -> None:
    await admin.create(topic("a"), topic("b"), topic("d"))
    topic_id = UUID(bytes=bytes(admin.broker.view.topics["b"].topic_id))
    state = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(
        topics=[
            state(name="a", topic_id=NO_ID),
            state(name=None, topic_id=topic_id),
            state(name=None, topic_id=UUID(int=5)),
            state(name="c", topic_id=NO_ID),
            state(name="a", topic_id=topic_id),
            state(name=None, topic_id=NO_ID),
            state(name="d", topic_id=NO_ID),
            state(name="d", topic_id=NO_ID),
        ],
        timeout_ms=1000,
    )

    answer = await admin.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)

    assert [(response.name, response.error_code) for response in answer.responses] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.INVALID_REQUEST),
        (None, ErrorCode.INVALID_REQUEST),
        ("d", ErrorCode.INVALID_REQUEST),
    ]
    assert list(admin.broker.view.topics) == ["d"]


@pytest.mark.parametrize("version", range(1, 6))
async def test_old_versions_delete_by_name(admin: Admin, version: int) -> None:
    await admin.create(topic("a"))
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1000)

    answer = await admin.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, version)

    assert [(response.name, response.error_code) for response in answer.responses] == [
        ("a", 0),
        ("b", 3),
    ]


async def test_a_duplicate_topic_gets_no_partitions(admin: Admin) -> None:
    await admin.create(topic("a", 2))
    asked = CreatePartitionsRequest.CreatePartitionsTopic
    rows = [asked(name="a", count=count, assignments=None) for count in (3, 4)]
    request = CreatePartitionsRequest(topics=rows, timeout_ms=1000, validate_only=False)
    answer = await admin.ask(ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse)
    found = [(result.name, result.error_code) for result in answer.results]
    assert found == [("a", ErrorCode.INVALID_REQUEST)]
    assert len(admin.broker.view.topics["a"].partitions) == 2


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(admin: Admin, version: int) -> None:
    await admin.create(topic("a", 2))
    asked = CreatePartitionsRequest.CreatePartitionsTopic
    given = asked.CreatePartitionsAssignment
    request = CreatePartitionsRequest(
        topics=[
            asked(name="a", count=4, assignments=None),
            asked(name="b", count=4, assignments=None),
        ],
        timeout_ms=1000,
        validate_only=False,
    )
    answer = await admin.ask(ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, version)

    assert [result.error_code for result in answer.results] == [0, 3]
    assert len(admin.broker.view.topics["a"].partitions) == 4
    for row, code in (
        (asked(name="a", count=4, assignments=None), ErrorCode.INVALID_PARTITIONS),
        (asked(name="a", count=6, assignments=[given(broker_ids=[1])]), 39),
        (asked(name="a", count=5, assignments=[given(broker_ids=[9])]), 39),
        (asked(name="a", count=5, assignments=[given(broker_ids=[1])]), 0),
    ):
        request = CreatePartitionsRequest(topics=[row], timeout_ms=1000, validate_only=True)
        answer = await admin.ask(
            ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, version
        )
        assert answer.results[0].error_code == code
    assert len(admin.broker.view.topics["a"].partitions) == 4


async def grown(admin: Admin, name: str, count: int) -> tuple[int, str | None]:
    row = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[row], timeout_ms=1000, validate_only=False)
    answer = await admin.ask(ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse)
    return answer.results[0].error_code, answer.results[0].error_message


async def test_two_brokers_add_the_same_partitions_once(setting: Setting, admin: Admin) -> None:
    other = Admin(await setting.broker(2))
    await admin.create(topic("a", 2))
    await until(lambda: "a" in other.broker.view.topics)

    both = await asyncio.gather(grown(admin, "a", 4), grown(other, "a", 4))

    refused = (
        ErrorCode.INVALID_PARTITIONS,
        "a has 4 partitions: the new number must be higher than that, not 4",
    )
    assert sorted(both) == [(ErrorCode.NONE, None), refused]
    record, _ = await admin.broker.topics.get("a", fresh=True)
    assert len(record.partitions) == 4


async def test_a_plan_is_checked_against_the_partitions_at_storing(
    setting: Setting, admin: Admin
) -> None:
    changes, other = admin.broker.changes, (await setting.broker(2)).changes
    await admin.create(topic("a", 1))
    await changes.add_partitions("a", 3, changes.plan_partitions("a", 3, None))
    with pytest.raises(TopicError) as caught:
        await other.add_partitions("a", 2, [2])
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    record = await other.add_partitions("a", 4, [2, 2, 2])
    assert [partition.leader for partition in record.partitions[3:]] == [2]


async def test_a_plan_is_not_applied_to_a_new_topic_of_the_same_name(
    setting: Setting, admin: Admin
) -> None:
    await admin.create(topic("a", 2))
    changes = admin.broker.changes
    leaders = changes.plan_partitions("a", 4, None)
    await changes.delete("a")
    await until(lambda: "a" not in admin.broker.view.topics)
    await setting.brokers[0].create("a", 1)
    with pytest.raises(TopicError) as caught:
        await changes.add_partitions("a", 4, leaders)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_of_one_request_are_stored_together_and_answered_in_order(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, arrived = admin.broker.topics.create, asyncio.Barrier(3)

    async def together(record: TopicRecord) -> TopicRecord:
        await arrived.wait()
        return await create(record)

    monkeypatch.setattr(admin.broker.topics, "create", together)
    async with asyncio.timeout(WAIT_S):
        answers = await admin.create(topic("c"), topic("a", 0), topic("b"), topic("d.e"))
    assert [(answer.name, answer.error_code) for answer in answers] == [
        ("c", ErrorCode.NONE),
        ("a", ErrorCode.INVALID_PARTITIONS),
        ("b", ErrorCode.NONE),
        ("d.e", ErrorCode.NONE),
    ]


async def test_colliding_names_in_one_request_are_refused(admin: Admin) -> None:
    answers = await admin.create(topic("a.b"), topic("a_b"))
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


async def test_a_name_collides_with_the_topic_that_is_there_now(admin: Admin) -> None:
    await admin.create(topic("a.b"))
    view = admin.broker.view
    old = view.topics["a.b"]
    view.learn(replace(old, name="a_b", topic_id=TopicId(bytes(TOPIC_ID_BYTES))))
    view.learn(old.with_deletion())  # the news came in the other order
    assert dict(view.topic_names_alike) == {"a_b": "a_b"}
    (answer,) = await admin.create(topic("a.b"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_one_of_two_brokers_that_create_colliding_names_is_refused(
    setting: Setting, admin: Admin
) -> None:
    other = Admin(await setting.broker(2))
    answers = await asyncio.gather(admin.create(topic("a.b")), other.create(topic("a_b")))
    codes = sorted(answer.error_code for (answer,) in answers)
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_leaders_are_planned_only_if_a_change_needs_them(
    setting: Setting, admin: Admin
) -> None:
    await admin.create(topic("a", 2))
    controller, view = admin.broker.controller, admin.broker.view
    await until(lambda: controller._since_s is not None)
    await controller.aclose()
    controller._wake.clear()
    for event in (TopicChanged("a"), TopicChanged("nothing"), ViewSettled()):
        controller._on_event(event)
        assert not controller._wake.is_set()
    view.learn(view.topics["a"].with_leaders({1: 7}))
    controller._on_event(TopicChanged("a"))
    assert controller._wake.is_set()
