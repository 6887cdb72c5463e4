"""Requests whose answer needs several parts of a broker: administration, groups, transactions."""

import asyncio

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.served_broker import Client
from tests.support.broker_layer.whole_broker import whole_broker

RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
WAIT_S = 20.0


async def begin_producing(client: Client, transactional_id: str) -> InitProducerIdResponse:
    """Find the coordinator of transactions and begin, as producers do."""
    async with asyncio.timeout(WAIT_S):
        while True:
            request = FindCoordinatorRequest(key=transactional_id, key_type=1)
            found = await client.ask(ApiKey.FIND_COORDINATOR, request, 3)
            assert isinstance(found, FindCoordinatorResponse)
            begin = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            answer = await client.ask(ApiKey.INIT_PRODUCER_ID, begin, 4)
            assert isinstance(answer, InitProducerIdResponse)
            if found.error_code == answer.error_code == ErrorCode.NONE:
                return answer
            assert answer.error_code in RETRIABLE
            await asyncio.sleep(0.05)


async def test_offsets_join_a_transaction_before_any_group_was_used() -> None:
    async with whole_broker() as client:
        producer = await begin_producing(client, "t")
        request = AddOffsetsToTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id="g",
        )
        answer = await client.ask(ApiKey.ADD_OFFSETS_TO_TXN, request, 3)
        assert isinstance(answer, AddOffsetsToTxnResponse)
        assert answer.error_code == ErrorCode.NONE
