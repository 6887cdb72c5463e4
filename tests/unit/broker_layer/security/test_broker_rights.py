"""APIs of brokers, on a listener of their own and on one that they share with clients."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    MetadataRequest,
    MetadataResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.asking import NO_ID, AskedTopic
from tests.support.broker_layer.authorized_broker import (
    EVERYTHING,
    authorized_broker,
    refusals_in,
)
from tests.support.broker_layer.served_broker import Client
from tests.support.broker_layer.whole_broker import OPTIONS, whole_broker

CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
SHARED = OPTIONS
SEPARATE = replace(
    OPTIONS,
    listeners="BROKERS://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    listener_security_protocol_map="BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
    inter_broker_listener="BROKERS",
)
OF_CLIENTS = replace(
    SEPARATE,
    listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
)
"""As `SEPARATE`; the client of the test is at the listener of clients."""
VERIFICATION_VERSION = 4


async def _mark(client: Client) -> list[int]:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=7,
                producer_epoch=0,
                transaction_result=False,
                topics=[marker.WritableTxnMarkerTopic(name="absent", partition_indexes=[0])],
                coordinator_epoch=0,
            )
        ]
    )
    answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, request, 1)
    assert isinstance(answer, WriteTxnMarkersResponse)
    return refusals_in(answer)


async def _verify(client: Client) -> list[int]:
    request = AddPartitionsToTxnRequest(transactions=[])
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, VERIFICATION_VERSION)
    assert isinstance(answer, AddPartitionsToTxnResponse)
    return refusals_in(answer)


async def test_a_transaction_gets_all_its_topics_or_none() -> None:
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[kind(name=name, partitions=[0, 1]) for name in ("a", "b")],
    )
    async with authorized_broker(SHARED) as broker:
        await broker.permit("TRANSACTIONAL_ID:x WRITE", "TOPIC:a WRITE")
        answer = await broker.client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
        assert isinstance(answer, AddPartitionsToTxnResponse)
        codes = {
            topic.name: [result.partition_error_code for result in topic.results_by_partition]
            for topic in answer.results_by_topic_v3_and_below
        }
        refused, not_attempted = (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.OPERATION_NOT_ATTEMPTED,
        )
        assert codes == {"a": [not_attempted] * 2, "b": [refused] * 2}


@pytest.mark.parametrize("ask", [_mark, _verify])
async def test_clients_of_a_shared_listener_need_the_right_of_a_broker(
    ask: Callable[[Client], Awaitable[list[int]]],
) -> None:
    async with authorized_broker(SHARED) as broker:
        await broker.permit(*EVERYTHING[:2], *EVERYTHING[3:])
        assert await ask(broker.client) == [CLUSTER]
        others = ("DESCRIBE", "CREATE", "ALTER_CONFIGS", "IDEMPOTENT_WRITE")
        await broker.permit(*(f"CLUSTER:kafka-cluster {other}" for other in others))
        assert await ask(broker.client) == [CLUSTER]
        await broker.permit("CLUSTER:kafka-cluster CLUSTER_ACTION")
        assert await ask(broker.client) == []


async def test_a_listener_of_brokers_has_the_rights_of_brokers_only() -> None:
    async with authorized_broker(SEPARATE) as broker:
        assert await _mark(broker.client) == []
        assert await _verify(broker.client) == []
        asked = [AskedTopic(name="absent", topic_id=NO_ID)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
        answer = await broker.client.ask(ApiKey.METADATA, request, 12)
        assert isinstance(answer, MetadataResponse)
        assert refusals_in(answer) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = await broker.client.ask(ApiKey.METADATA, request, 12)
        assert refusals_in(answer) == []


async def test_administrators_write_markers_at_each_listener() -> None:
    async with authorized_broker(OF_CLIENTS) as broker:
        await broker.permit(*EVERYTHING[:2], "CLUSTER:kafka-cluster DESCRIBE")
        assert await _mark(broker.client) == [CLUSTER]
        for operation in ("ALTER", "CLUSTER_ACTION"):
            await broker.permit(f"CLUSTER:kafka-cluster {operation}")
            assert await _mark(broker.client) == []


async def test_only_brokers_verify_transactions() -> None:
    async with authorized_broker(OF_CLIENTS) as broker:
        await broker.permit(*EVERYTHING)
        with pytest.raises(asyncio.IncompleteReadError):
            await _verify(broker.client)


async def test_without_an_authorizer_markers_are_for_the_listener_of_brokers() -> None:
    async with whole_broker(SEPARATE) as client:
        assert await _mark(client) == []
    async with whole_broker(OF_CLIENTS) as client:
        with pytest.raises(asyncio.IncompleteReadError):
            await _mark(client)


async def test_super_users_may_do_everything() -> None:
    options = replace(SHARED, super_users="User:admin;User:ANONYMOUS")
    async with authorized_broker(options) as broker:
        await broker.permit("deny CLUSTER:kafka-cluster ALL")
        assert await _mark(broker.client) == []
        assert await _verify(broker.client) == []
