"""What a client may not see is left out, and what it may do is shown."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    bits_of,
)
from broker_layer.kafka.versions import ApiKey
from metadata.security.acls import Operation
from tests.support.broker_layer.asking import NO_ID, AskedTopic, topic
from tests.support.broker_layer.authorized_broker import (
    EVERYTHING,
    AuthorizedBroker,
    authorized_broker,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CHECKS_MAX = 600
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Answers of a coordinator that is not ready."""


async def _metadata(
    broker: AuthorizedBroker, asked: list[AskedTopic] | None, version: int = 12
) -> MetadataResponse:
    request = MetadataRequest(
        topics=asked,
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=True,
    )
    if version < 8:
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
    response = await broker.client.ask(ApiKey.METADATA, request, version)
    assert isinstance(response, MetadataResponse)
    return response


async def _commit(broker: AuthorizedBroker, group_id: str, *names: str) -> dict[str, int]:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    row = kind.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group_id, topics=[kind(name=name, partitions=[row]) for name in names]
    )
    response = await broker.client.ask(ApiKey.OFFSET_COMMIT, request, 8)
    assert isinstance(response, OffsetCommitResponse)
    return {
        response_topic.name: response_topic.partitions[0].error_code
        for response_topic in response.topics
    }


async def _begin(broker: AuthorizedBroker, transactional_id: str) -> int:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    response = await broker.client.ask(ApiKey.INIT_PRODUCER_ID, request, 4)
    assert isinstance(response, InitProducerIdResponse)
    return response.error_code


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncIterator[AuthorizedBroker]:
    async with authorized_broker() as broker:
        await broker.permit(*EVERYTHING)
        create = CreateTopicsRequest(
            topics=[topic(name, 1) for name in ("open-1", "open-2", "closed")], timeout_ms=10_000
        )
        await broker.client.ask(ApiKey.CREATE_TOPICS, create, 7)
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key="x", key_type=key_type)
            await broker.client.ask(ApiKey.FIND_COORDINATOR, find, 3)

        async def is_ready() -> bool:
            codes = [await _begin(broker, name) for name in ("open-x", "closed-x")]
            for group_id in ("open-g", "closed-g"):
                codes += (await _commit(broker, group_id, "open-1", "closed")).values()
            assert all(code in (ErrorCode.NONE, *RETRIABLE) for code in codes)
            return not any(codes)

        checks = 0
        while not await is_ready() and checks < CHECKS_MAX:
            checks += 1
            await asyncio.sleep(0.05)
        assert checks < CHECKS_MAX, "the coordinators are not ready"
        yield broker


async def test_metadata_of_all_topics(broker: AuthorizedBroker) -> None:
    for version in (0, 12):
        await broker.permit("TOPIC:open* DESCRIBE")
        found = await _metadata(broker, [] if version == 0 else None, version)
        assert sorted(response_topic.name or "" for response_topic in found.topics) == [
            "open-1",
            "open-2",
        ]
        assert all(response_topic.error_code == ErrorCode.NONE for response_topic in found.topics)
        await broker.permit()
        assert (await _metadata(broker, [] if version == 0 else None, version)).topics == []
    await broker.permit(*EVERYTHING)
    names = [response_topic.name for response_topic in (await _metadata(broker, None)).topics]
    assert {"open-1", "open-2", "closed"} < {*names}


async def test_metadata_shows_what_the_client_may_do(broker: AuthorizedBroker) -> None:
    await broker.permit("TOPIC:open* READ", "TOPIC:open-2 ALTER_CONFIGS")
    rows = {
        response_topic.name: response_topic
        for response_topic in (await _metadata(broker, None)).topics
    }
    shown = {name: response_topic.authorized_operations for name, response_topic in rows.items()}
    reader = {Operation.READ, Operation.DESCRIBE}
    configs = {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}
    assert shown == {"open-1": reader, "open-2": reader | configs}
    await broker.permit(*EVERYTHING, "deny TOPIC:open-1 WRITE")
    rows = {
        response_topic.name: response_topic
        for response_topic in (await _metadata(broker, None)).topics
    }
    assert Operation.WRITE not in rows["open-1"].authorized_operations
    assert Operation.WRITE in rows["open-2"].authorized_operations


async def test_an_id_does_not_reveal_a_name(broker: AuthorizedBroker) -> None:
    await broker.permit(*EVERYTHING)
    (row,) = (await _metadata(broker, [AskedTopic(name="closed", topic_id=NO_ID)])).topics
    by_id = AskedTopic(name=None, topic_id=row.topic_id)
    (known,) = (await _metadata(broker, [by_id])).topics
    assert known.name == "closed"
    await broker.permit("TOPIC:open* DESCRIBE")
    (hidden,) = (await _metadata(broker, [by_id])).topics
    absent_id = UUID(int=77)
    (absent,) = (await _metadata(broker, [AskedTopic(name=None, topic_id=absent_id)])).topics
    assert (hidden.error_code, hidden.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert (hidden.error_code, hidden.name) == (absent.error_code, absent.name)


async def test_a_refused_topic_looks_the_same_whether_it_exists(broker: AuthorizedBroker) -> None:
    await broker.permit()
    asked = [AskedTopic(name=name, topic_id=NO_ID) for name in ("closed", "absent")]
    rows = (await _metadata(broker, asked)).topics
    assert [row.error_code for row in rows] == [REFUSED, REFUSED]
    assert all(row.topic_id is None and not row.partitions for row in rows)


async def test_no_topic_is_made_without_the_right(broker: AuthorizedBroker) -> None:
    await broker.permit("TOPIC:made* DESCRIBE")
    (row,) = (await _metadata(broker, [AskedTopic(name="made-1", topic_id=NO_ID)], 3)).topics
    assert row.error_code == REFUSED
    await broker.permit(*EVERYTHING)
    names = [response_topic.name for response_topic in (await _metadata(broker, None)).topics]
    assert "made-1" not in names


async def test_pages_of_all_topics(broker: AuthorizedBroker) -> None:
    await broker.permit("TOPIC:open* DESCRIBE", "TOPIC:open-2 WRITE")
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10, cursor=None)
    found = await broker.client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)
    assert isinstance(found, DescribeTopicPartitionsResponse)
    shown = {
        response_topic.name: response_topic.topic_authorized_operations
        for response_topic in found.topics
    }
    assert shown == {
        "open-1": bits_of([Operation.DESCRIBE]),
        "open-2": bits_of([Operation.DESCRIBE, Operation.WRITE]),
    }


async def test_a_topic_is_deleted_by_its_id_only_with_the_right(broker: AuthorizedBroker) -> None:
    await broker.permit(*EVERYTHING)
    (row,) = (await _metadata(broker, [AskedTopic(name="closed", topic_id=NO_ID)])).topics
    wanted = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=row.topic_id)
    request = DeleteTopicsRequest(topics=[wanted], timeout_ms=5_000)
    answers = []
    for rules in ((), ("TOPIC:closed DESCRIBE",)):
        await broker.permit(*rules)
        found = await broker.client.ask(ApiKey.DELETE_TOPICS, request, 6)
        assert isinstance(found, DeleteTopicsResponse)
        (answer,) = found.responses
        answers.append((answer.error_code, answer.name))
    assert answers == [(ErrorCode.UNKNOWN_TOPIC_ID, None), (REFUSED, "closed")]
    await broker.permit(*EVERYTHING)
    (still,) = (await _metadata(broker, [AskedTopic(name="closed", topic_id=NO_ID)])).topics
    assert still.topic_id == row.topic_id


async def test_settings_of_a_new_topic(broker: AuthorizedBroker) -> None:
    await broker.permit("TOPIC:new CREATE")
    request = CreateTopicsRequest(topics=[topic("new", 3)], timeout_ms=5_000, validate_only=True)
    found = await broker.client.ask(ApiKey.CREATE_TOPICS, request, 7)
    assert isinstance(found, CreateTopicsResponse)
    (row,) = found.topics
    assert (row.error_code, row.topic_config_error_code) == (ErrorCode.NONE, REFUSED)
    assert (row.num_partitions, row.configs) == (-1, None)


async def test_lists_of_groups_and_transactions(broker: AuthorizedBroker) -> None:
    async def groups() -> list[str]:
        request = ListGroupsRequest(states_filter=[], types_filter=[])
        found = await broker.client.ask(ApiKey.LIST_GROUPS, request, 5)
        assert isinstance(found, ListGroupsResponse)
        return sorted(group.group_id for group in found.groups)

    async def transactions() -> list[str]:
        request = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=-1
        )
        found = await broker.client.ask(ApiKey.LIST_TRANSACTIONS, request, 1)
        assert isinstance(found, ListTransactionsResponse)
        return sorted(
            transaction_state.transactional_id for transaction_state in found.transaction_states
        )

    await broker.permit()
    assert (await groups(), await transactions()) == ([], [])
    await broker.permit("GROUP:open* DESCRIBE", "TRANSACTIONAL_ID:open* DESCRIBE")
    assert (await groups(), await transactions()) == (["open-g"], ["open-x"])
    await broker.permit("CLUSTER:kafka-cluster DESCRIBE")
    assert (await groups(), await transactions()) == (["closed-g", "open-g"], [])


async def test_offsets_of_hidden_topics(broker: AuthorizedBroker) -> None:
    await broker.permit("GROUP:open-g READ", "TOPIC:open-1 READ")
    codes = await _commit(broker, "open-g", "open-1", "closed")
    assert codes == {"open-1": ErrorCode.NONE, "closed": REFUSED}
    for version in (7, 8):
        if version == 7:
            request = OffsetFetchRequest(group_id="open-g", topics=None)
        else:
            group = OffsetFetchRequest.OffsetFetchRequestGroup
            request = OffsetFetchRequest(groups=[group(group_id="open-g", topics=None)])
        found = await broker.client.ask(ApiKey.OFFSET_FETCH, request, version)
        assert isinstance(found, OffsetFetchResponse)
        topics = found.topics if version == 7 else found.groups[0].topics
        assert [each.name for each in topics] == ["open-1"]


async def test_operations_on_groups_and_the_cluster(broker: AuthorizedBroker) -> None:
    await broker.permit("GROUP:open-g READ", "CLUSTER:kafka-cluster CREATE")
    request = DescribeGroupsRequest(groups=["open-g"], include_authorized_operations=True)
    found = await broker.client.ask(ApiKey.DESCRIBE_GROUPS, request, 5)
    assert isinstance(found, DescribeGroupsResponse)
    assert found.groups[0].authorized_operations == {Operation.READ, Operation.DESCRIBE}
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)
    shown = await broker.client.ask(ApiKey.DESCRIBE_CLUSTER, asked, 1)
    assert isinstance(shown, DescribeClusterResponse)
    assert shown.authorized_operations == set()
    await broker.permit("CLUSTER:kafka-cluster CREATE", "CLUSTER:kafka-cluster DESCRIBE")
    shown = await broker.client.ask(ApiKey.DESCRIBE_CLUSTER, asked, 1)
    assert isinstance(shown, DescribeClusterResponse)
    assert shown.authorized_operations == {Operation.CREATE, Operation.DESCRIBE}
