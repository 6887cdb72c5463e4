"""A console beside a whole broker in memory, with topics and groups that a test makes.

Leaves real processes to the integration tests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddPartitionsToTxnRequest,
    ApiMessage,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from broker_layer.kafka.record_batch import Record, build_batch
from broker_layer.kafka.versions import ApiKey
from ledger_client import cluster_access
from metadata.store.memory import MemoryMetadataStore
from quire.console.options import ConsoleOptions
from tests.support.broker_layer.served_broker import Client
from tests.support.broker_layer.whole_broker import whole_broker_parts
from tests.support.quire.console import Browser, open_console
from tests.until import WAIT_S

OPTIONS = ConsoleOptions(metadata="zk://nowhere:1/cluster", port=0, allow_writes=True)
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
WITH_CODE = (
    InitProducerIdResponse,
    ConsumerGroupHeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
TIME_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class BrokerConsole:
    """A console with a login, and a connection to the broker."""

    browser: Browser
    client: Client

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic."""
        kind = CreateTopicsRequest.CreatableTopic
        topic = kind(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
        answer = await self.client.ask(ApiKey.CREATE_TOPICS, request, 7)
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE

    async def produce(self, topic: str, *records: Record) -> None:
        """Append a batch to partition 0, once its leader serves it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                self.client.send_produce({topic: {0: bytes(build_batch(records))}})
                answer = await self.client.produced()
                code = answer.responses[0].partition_responses[0].error_code
                if code == ErrorCode.NONE:
                    return
                assert code in RETRIABLE, code
                await asyncio.sleep(0.05)

    async def commit(self, group_id: str, topic: str, offset: int) -> None:
        """Commit an offset of partition 0 for a group without members."""
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        row = kind.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="<i>note</i>"
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[kind(name=topic, partitions=[row])],
        )
        answer = await self._until_served(group_id, 0, ApiKey.OFFSET_COMMIT, request, 9)
        assert isinstance(answer, OffsetCommitResponse)

    async def join(self, group_id: str, topic: str) -> None:
        """Become a member of a group of the newer protocol."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id="<member>",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        await self._until_served(group_id, 0, ApiKey.CONSUMER_GROUP_HEARTBEAT, request, 1)

    async def join_classic(self, group_id: str, assignment: bytes) -> None:
        """Become the one member of a classic group, with an assignment."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = await self._until_served(group_id, 0, ApiKey.JOIN_GROUP, join, 3)
        assert isinstance(joined, JoinGroupResponse)
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[kind(member_id=joined.member_id, assignment=assignment)],
        )
        await self._until_served(group_id, 0, ApiKey.SYNC_GROUP, sync, 3)

    async def begin_transaction(self, transactional_id: str, topic: str) -> None:
        """Open a transaction that writes to partition 0 of a topic."""
        begin = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = await self._until_served(transactional_id, 1, ApiKey.INIT_PRODUCER_ID, begin, 4)
        assert isinstance(answer, InitProducerIdResponse)
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=answer.producer_id,
            v3_and_below_producer_epoch=answer.producer_epoch,
            v3_and_below_topics=[kind(name=topic, partitions=[0])],
        )
        await self._until_served(transactional_id, 1, ApiKey.ADD_PARTITIONS_TO_TXN, add, 3)

    async def _until_served(
        self, key: str, key_type: int, api_key: ApiKey, request: ApiMessage, version: int
    ) -> ApiMessage:
        async with asyncio.timeout(WAIT_S):
            while True:
                find = FindCoordinatorRequest(key=key, key_type=key_type)
                await self.client.ask(ApiKey.FIND_COORDINATOR, find, 3)
                answer = await self.client.ask(api_key, request, version)
                code = _code_of(answer)
                if code == ErrorCode.NONE:
                    return answer
                assert code in RETRIABLE, code
                await asyncio.sleep(0.05)


def _code_of(answer: ApiMessage) -> int:
    if isinstance(answer, OffsetCommitResponse):
        return answer.topics[0].partitions[0].error_code
    if isinstance(answer, WITH_CODE):
        return int(answer.error_code)
    rows = answer.results_by_topic_v3_and_below
    return int(rows[0].results_by_partition[0].partition_error_code)


@asynccontextmanager
async def broker_console(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerConsole]:
    """Run one broker and one bookie, and a console in which somebody has logged in."""
    async with whole_broker_parts() as broker:

        async def open_store(_address: str, *, rng: Random) -> MemoryMetadataStore:
            del rng
            return MemoryMetadataStore(broker.server)

        monkeypatch.setattr(cluster_access, "open_cluster_store", open_store)
        monkeypatch.setenv("QUIRE_METADATA", OPTIONS.metadata)
        async with open_console(OPTIONS) as (_, browser):
            await browser.log_in()
            yield BrokerConsole(browser, broker.client)
