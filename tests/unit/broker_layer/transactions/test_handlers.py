"""Kafka's transaction APIs, through encoded requests and answers."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from broker_layer import handlers as turns
from broker_layer.coordinator_partitions import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    partition_of_key,
)
from broker_layer.errors import TopicError
from broker_layer.handlers import SLICE_ELEMENTS
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
    decode_response,
    encode_request,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.transactions.values import TopicPartition
from tests.support.broker_layer.model_cluster import NOW_MS, STATE_PARTITIONS, Cluster
from tests.support.loop_passes import counting_passes

STATE_OF_T = partition_of_key("t", STATE_PARTITIONS)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster(Random(5), 1, 0.0)
    for number in range(2):
        cluster.add_partition("a", number)
    cluster.add_partition(CONSUMER_OFFSETS, 0)
    cluster.brokers[0].coordinator.start()
    for number in range(STATE_PARTITIONS):
        await cluster.move_state(number, is_graceful=True)
    yield cluster
    await cluster.aclose()


async def ask(cluster: Cluster, key: ApiKey, version: int, request: ApiMessage) -> ApiMessage:
    body = bytes(encode_request(request, version))
    return decode_response(key, version, await cluster.brokers[0].serve(key, version, body, "", 0))


async def init(
    cluster: Cluster, version: int = 4, producer_id: int = -1, epoch: int = -1
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id="t",
        transaction_timeout_ms=5000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    answer = await ask(cluster, ApiKey.INIT_PRODUCER_ID, version, request)
    assert isinstance(answer, InitProducerIdResponse)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def add(
    cluster: Cluster, version: int, producer: tuple[int, int], topics: dict[str, list[int]]
) -> dict[tuple[str, int], int]:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[topic(name=name, partitions=topics[name]) for name in topics],
    )
    answer = await ask(cluster, ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
    assert isinstance(answer, AddPartitionsToTxnResponse)
    return {
        (result.name, partition_result.partition_index): partition_result.partition_error_code
        for result in answer.results_by_topic_v3_and_below
        for partition_result in result.results_by_partition
    }


async def end(cluster: Cluster, version: int, producer: tuple[int, int], *, commit: bool) -> int:
    request = EndTxnRequest(
        transactional_id="t",
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=commit,
    )
    answer = await ask(cluster, ApiKey.END_TXN, version, request)
    assert isinstance(answer, EndTxnResponse)
    return answer.error_code


@pytest.mark.parametrize("version", range(5))
async def test_init_producer_id(cluster: Cluster, version: int) -> None:
    assert await init(cluster, version) == (0, 1000, 0)
    assert await init(cluster, version) == (0, 1000, 1)


@pytest.mark.parametrize("version", range(5))
async def test_init_producer_id_without_a_transactional_id(cluster: Cluster, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    answer = await ask(cluster, ApiKey.INIT_PRODUCER_ID, version, request)
    assert isinstance(answer, InitProducerIdResponse)
    found = answer.error_code, answer.producer_id, answer.producer_epoch
    assert found == (0, 1000, 0)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)],
)
async def test_a_replaced_producer_gets_a_code_that_its_version_knows(
    cluster: Cluster, version: int, code: ErrorCode
) -> None:
    await init(cluster)
    await init(cluster)
    assert await init(cluster, version, 1000, 0) == (code, -1, -1)
    assert await init(cluster, version, 1000, 1) == (0, 1000, 2)
    assert await init(cluster, version, 1000, 1) == (0, 1000, 2)


@pytest.mark.parametrize("claim", [(5, -1), (-1, 5), (-2, -2), (5, -2)])
async def test_an_incomplete_claim_is_refused(cluster: Cluster, claim: tuple[int, int]) -> None:
    assert await init(cluster, 4, *claim) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_and_the_transaction_ended(
    cluster: Cluster, version: int
) -> None:
    await init(cluster)
    added = await add(cluster, version, (1000, 0), {"a": [0, 1]})
    assert added == {("a", 0): 0, ("a", 1): 0}
    assert await end(cluster, version, (1000, 0), commit=True) == 0
    wrong = await end(cluster, version, (1000, 0), commit=False)
    assert wrong == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
async def test_the_code_of_a_fenced_producer_depends_on_the_version(
    cluster: Cluster, version: int, code: ErrorCode
) -> None:
    await init(cluster)
    await init(cluster)
    assert await add(cluster, version, (1000, 0), {"a": [0]}) == {("a", 0): code}
    assert await end(cluster, version, (1000, 0), commit=True) == code
    assert await add_offsets(cluster, version, (1000, 0)) == code


async def test_all_partitions_are_added_or_none(cluster: Cluster) -> None:
    await init(cluster)
    cluster.deleted[TopicPartition("a", 1)] = None
    asked = {"a": [0, 1, 7], CONSUMER_OFFSETS: [0], TRANSACTION_STATE: [0]}
    assert await add(cluster, 3, (1000, 0), asked) == {
        ("a", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("a", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (CONSUMER_OFFSETS, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (TRANSACTION_STATE, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert await end(cluster, 3, (1000, 0), commit=True) == ErrorCode.INVALID_TXN_STATE


async def add_offsets(cluster: Cluster, version: int, producer: tuple[int, int]) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], group_id="g"
    )
    answer = await ask(cluster, ApiKey.ADD_OFFSETS_TO_TXN, version, request)
    assert isinstance(answer, AddOffsetsToTxnResponse)
    return answer.error_code


@pytest.mark.parametrize("version", range(4))
async def test_offsets_of_a_group_join_the_transaction(cluster: Cluster, version: int) -> None:
    await init(cluster)
    assert await add_offsets(cluster, version, (1000, 0)) == 0
    (described,) = (await describe(cluster, "t")).transaction_states
    topics = [(topic.topic, topic.partitions) for topic in described.topics]
    assert topics == [(CONSUMER_OFFSETS, [0])]


async def test_offsets_are_refused_while_their_topic_cannot_be_created(cluster: Cluster) -> None:
    await init(cluster)
    cluster.offsets_refusal = TopicError(ErrorCode.REQUEST_TIMED_OUT, "no metadata service")
    code = await add_offsets(cluster, 3, (1000, 0))
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_brokers_verify_and_add_for_many_transactions_at_once(cluster: Cluster) -> None:
    await init(cluster)
    await add(cluster, 3, (1000, 0), {"a": [0]})
    asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic = asked.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        transactions=[
            asked(
                transactional_id=name,
                producer_id=1000,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=[topic(name="a", partitions=[0, 1])],
            )
            for name, epoch, verify_only in [("t", 0, True), ("u", 0, True), ("t", 0, False)]
        ]
    )
    answer = await ask(cluster, ApiKey.ADD_PARTITIONS_TO_TXN, 4, request)
    assert isinstance(answer, AddPartitionsToTxnResponse)
    assert answer.error_code == 0
    codes = [
        (
            result.transactional_id,
            [
                partition_result.partition_error_code
                for partition_result in topic.results_by_partition
            ],
        )
        for result in answer.results_by_transaction
        for topic in result.topic_results
    ]
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert codes == [
        ("t", [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]),
        ("u", [unknown, unknown]),
        ("t", [ErrorCode.NONE, ErrorCode.NONE]),
    ]


async def describe(cluster: Cluster, *names: str) -> DescribeTransactionsResponse:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    answer = await ask(cluster, ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    assert isinstance(answer, DescribeTransactionsResponse)
    return answer


async def test_describe(cluster: Cluster) -> None:
    await init(cluster)
    await add(cluster, 3, (1000, 0), {"a": [0, 1]})
    open_one, unknown, empty = (await describe(cluster, "t", "u", "")).transaction_states
    assert open_one.error_code == 0
    assert open_one.transaction_state == "Ongoing"
    assert open_one.transaction_timeout_ms == 5000
    assert open_one.transaction_start_time_ms >= NOW_MS
    assert (open_one.producer_id, open_one.producer_epoch) == (1000, 0)
    assert [(topic.topic, topic.partitions) for topic in open_one.topics] == [("a", [0, 1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    await cluster.brokers[0].coordinator.resign(STATE_OF_T)
    (moved,) = (await describe(cluster, "t")).transaction_states
    assert (moved.transactional_id, moved.error_code) == ("t", ErrorCode.NOT_COORDINATOR)


async def list_all(
    cluster: Cluster,
    version: int = 1,
    *,
    states: tuple[str, ...] = (),
    producer_ids: tuple[int, ...] = (),
    longer_than_ms: int = -1,
) -> tuple[list[tuple[str, int, str]], list[str]]:
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=longer_than_ms,
    )
    answer = await ask(cluster, ApiKey.LIST_TRANSACTIONS, version, request)
    assert isinstance(answer, ListTransactionsResponse)
    assert answer.error_code == 0
    found = [
        (
            transaction_state.transactional_id,
            transaction_state.producer_id,
            transaction_state.transaction_state,
        )
        for transaction_state in answer.transaction_states
    ]
    return sorted(found), answer.unknown_state_filters


async def test_list_and_its_filters(cluster: Cluster) -> None:
    await init(cluster)
    await add(cluster, 3, (1000, 0), {"a": [0]})
    coordinator = cluster.brokers[0].coordinator
    await coordinator.init_producer_id("u", 1000, None)
    t, u = ("t", 1000, "Ongoing"), ("u", 1001, "Empty")
    assert await list_all(cluster, 0) == ([t, u], [])
    assert await list_all(cluster) == ([t, u], [])
    assert await list_all(cluster, states=("Ongoing", "Odd")) == ([t], ["Odd"])
    assert await list_all(cluster, states=("Odd",)) == ([], ["Odd"])
    assert await list_all(cluster, producer_ids=(1001, 5)) == ([u], [])
    assert await list_all(cluster, longer_than_ms=1000) == ([u], [])


@pytest.mark.parametrize("api", ["list", "describe"])
async def test_other_work_runs_while_many_ids_are_shown(
    cluster: Cluster, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    names = [f"t{number}" for number in range(3 * SLICE_ELEMENTS)]
    for name in names:
        await cluster.brokers[0].coordinator.init_producer_id(name, 1000, None)
    async with counting_passes() as passes:
        if api == "list":
            found, _ = await list_all(cluster)
            assert len(found) == len(names)
        else:
            answer = await describe(cluster, *names)
            assert all(
                transaction_state.error_code == 0 for transaction_state in answer.transaction_states
            )
        assert passes.now >= len(names) // SLICE_ELEMENTS


async def test_a_stopping_broker_refuses_requests(cluster: Cluster) -> None:
    await cluster.brokers[0].coordinator.aclose()
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    answer = await ask(cluster, ApiKey.LIST_TRANSACTIONS, 1, request)
    assert isinstance(answer, ListTransactionsResponse)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (described,) = (await describe(cluster, "t")).transaction_states
    assert described.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await init(cluster) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
