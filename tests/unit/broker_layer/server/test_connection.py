"""Tests of one connection's limits: invalid requests, fast senders, and slow readers."""

import asyncio
import struct

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    encode_request,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.server import connections as connection
from broker_layer.server.server_limits import BrokerLimits
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import Ask, Wanted, batch, bytes_of, serving
from tests.until import until


def topics_of() -> MemoryTopics:
    return MemoryTopics({("orders", 0): MemoryLog(), ("orders", 1): MemoryLog()})


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_api_versions_are_answered(version: int) -> None:
    async with serving(topics_of()) as broker:
        client = await broker.connect()
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        answer = await client.ask(ApiKey.API_VERSIONS, request, version)
        assert isinstance(answer, ApiVersionsResponse)
        assert answer.error_code == 0
        told = {
            api_key.api_key: (api_key.min_version, api_key.max_version)
            for api_key in answer.api_keys
        }
        assert told[ApiKey.PRODUCE] == (0, 11)


@pytest.mark.parametrize("names", [("", "1"), ("a b", "1"), ("a", "-1"), ("a-", "1"), ("a", "")])
async def test_invalid_software_name_is_refused(names: tuple[str, str]) -> None:
    async with serving(topics_of()) as broker:
        client = await broker.connect()
        request = ApiVersionsRequest(
            client_software_name=names[0], client_software_version=names[1]
        )
        for version, code in ((2, ErrorCode.NONE), (3, ErrorCode.INVALID_REQUEST)):
            client.send(ApiKey.API_VERSIONS, version, encode_request(request, version))
            body = await client.body()
            assert int.from_bytes(body[:2], "big") == code


async def test_unknown_api_versions_version_is_answered_in_version_0() -> None:
    async with serving(topics_of()) as broker:
        client = await broker.connect()
        client.send_bytes(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 99, 7, -1))
        correlation_id, data = await client.frame()
        answer = ApiVersionsResponse.decode(data, version=0)
        assert correlation_id == 7
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert answer.api_keys


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">i", -5) + bytes(20),
        struct.pack(">i", 2) + bytes(20),
        struct.pack(">i", 101 * 2**20) + bytes(20),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 7, -1),
        struct.pack(">ihhih", 10, 7_000, 0, 7, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 7, 30),
        struct.pack(">ihhihi", 14, ApiKey.LIST_OFFSETS, 1, 7, -1, -1),
        struct.pack(">ihhihi", 14, ApiKey.PRODUCE, 3, 7, -1, -1),
        struct.pack(">ihhihi", 14, ApiKey.FETCH, 4, 7, -1, -1),
    ],
)
async def test_invalid_request_closes_connection(data: bytes) -> None:
    async with serving(topics_of()) as broker:
        client, other = await broker.connect(), await broker.connect()
        client.send_bytes(data)
        assert await client.is_closed()
        other.send_produce({"orders": {0: batch(b"fine")}})
        assert (await other.produced()).responses[0].partition_responses[0].error_code == 0


async def test_broker_apis_are_served_on_broker_listener_only() -> None:
    request = encode_request(AddPartitionsToTxnRequest(transactions=[]), 4)
    async with serving(topics_of()) as broker:
        outer = await broker.connect(listener=1)
        outer.send(ApiKey.ADD_PARTITIONS_TO_TXN, 4, request)
        assert await outer.is_closed()


async def test_frame_arrives_byte_by_byte() -> None:
    async with serving(topics_of()) as broker:
        client = await broker.connect()
        body = encode_request(ListOffsetsRequest(topics=[]), 1)
        frame = struct.pack(">hhih", ApiKey.LIST_OFFSETS, 1, 1, -1) + body
        for byte in struct.pack(">i", len(frame)) + frame:
            client.send_bytes(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.frame())[0] == 1


async def test_requests_in_flight_are_limited() -> None:
    topics = topics_of()
    log = topics.logs["orders", 0]
    log.commits_itself = False
    limits = BrokerLimits(requests_in_flight_max=3, drain_timeout_s=0.1)
    async with serving(topics, limits) as broker:
        client = await broker.connect()
        for _ in range(3):
            client.send_produce({"orders": {0: batch(b"x" * 300_000)}})
        for _ in range(4):
            client.send_produce({"orders": {0: batch(b"y" * 300_000)}})
        await until(lambda: len(log.pending) == 3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(log.pending) == 3
        while log.log_end_offset < 7 or log.pending:
            log.commit()
            await asyncio.sleep(0)
        for offset in range(7):
            row = (await client.produced()).responses[0].partition_responses[0]
            assert row.base_offset == offset


async def test_memory_of_all_connections_is_limited() -> None:
    topics = topics_of()
    log = topics.logs["orders", 0]
    log.commits_itself = False
    limits = BrokerLimits(request_bytes_max=500_000, drain_timeout_s=0.1)
    async with serving(topics, limits) as broker:
        clients = [await broker.connect() for _ in range(4)]
        for client in clients:
            client.send_produce({"orders": {0: batch(b"x" * 600_000)}})
        await until(lambda: len(log.pending) == 1)
        await asyncio.sleep(0.05)
        assert len(log.pending) == 1
        while log.log_end_offset < 4 or log.pending:
            log.commit()
            await asyncio.sleep(0)
        offsets = [
            (await client.produced()).responses[0].partition_responses[0].base_offset
            for client in clients
        ]
        assert sorted(offsets) == [0, 1, 2, 3]
        await until(lambda: broker.services.context.budget.used_bytes == 0)


async def test_announced_frame_does_not_block_other_connections() -> None:
    limits = BrokerLimits(request_bytes_max=4_000_000, frame_bytes_max=3_000_000)
    async with serving(topics_of(), limits) as broker:
        hostile = [await broker.connect() for _ in range(8)]
        for each in hostile:
            each.send_bytes(struct.pack(">ihhi", 3_000_000, 0, 11, 1))
        announced = broker.services.context.announced
        await until(lambda: announced.waiting_count == 7)
        client = await broker.connect()
        for _ in range(3):
            client.send_produce({"orders": {0: batch(b"small")}})
            await client.produced()


async def test_large_frame_must_keep_minimum_rate_while_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "SLOW_START_S", 0.05)
    limits = BrokerLimits(
        request_bytes_max=4_000_000, frame_bytes_max=3_000_000, sweep_interval_s=0.02
    )
    async with serving(topics_of(), limits) as broker:
        hostile = [await broker.connect() for _ in range(2)]
        for each in hostile:
            each.send_bytes(struct.pack(">ihhi", 3_000_000, 0, 11, 1))
        context = broker.services.context
        await until(lambda: context.announced.waiting_count == 1)
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"x" * 1_000_000)}})
        answer = await client.produced()
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert broker.services.counters.peers_dropped == 2
        assert context.announced.used_bytes == 0


async def test_closed_connections_release_memory() -> None:
    topics = topics_of()
    log = topics.logs["orders", 0]
    log.commits_itself = False
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}})
        client.send_fetch(Ask({"orders": {1: Wanted()}}, max_wait_ms=15_000))
        waiting = await broker.connect()
        waiting.send_fetch(Ask({"orders": {1: Wanted()}}, max_wait_ms=15_000))
        await until(lambda: bool(log.pending) and not topics.logs["orders", 1].callbacks.is_empty)
        client.writer.close()
        waiting.writer.close()
        await until(lambda: not broker.services.context.connections)
        await until(lambda: topics.logs["orders", 1].callbacks.is_empty)
        assert broker.services.context.budget.used_bytes == 0
        log.commit()


async def test_peer_that_does_not_read_is_disconnected() -> None:
    topics = topics_of()
    limits = BrokerLimits(write_buffer_bytes_max=1_000, write_stall_s=0.05, sweep_interval_s=0.02)
    async with serving(topics, limits) as broker:
        client = await broker.connect()
        for _ in range(40):
            client.send_produce({"orders": {0: batch(b"x" * 1_000_000)}})
            await client.produced()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport can also pause reading
        for _ in range(3):
            client.send_fetch(Ask({"orders": {0: Wanted(bytes_max=2**26)}}, max_bytes=2**26))
        await until(lambda: broker.services.counters.peers_dropped == 1)


async def test_answers_of_all_peers_have_a_limit() -> None:
    room = 12_000_000
    limits = BrokerLimits(unsent_bytes_max=room, write_stall_crowded_s=0.2, sweep_interval_s=0.02)
    async with serving(topics_of(), limits) as broker:
        writer = await broker.connect()
        for _ in range(20):
            writer.send_produce({"orders": {0: batch(b"x" * 1_000_000)}})
            await writer.produced()
        ask = Ask({"orders": {0: Wanted(bytes_max=10_000_000)}}, max_bytes=2**26)
        context, most = broker.services.context, 0
        deaf = [await broker.connect() for _ in range(4)]
        for client in deaf:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # ours reads
            client.send_fetch(ask)
        for _ in range(10):
            await asyncio.sleep(0.01)
            most = max(
                most,
                sum(server_connection.unread_bytes for server_connection in context.connections),
            )
        assert 0 < most <= room
        writer.send_fetch(ask)
        found = await writer.fetched()
        assert found, "peers that take nothing make room"
        assert broker.services.counters.peers_dropped > 0
    assert len(context.unsent) == 0


async def test_peer_with_unfinished_frame_is_disconnected() -> None:
    limits = BrokerLimits(frame_deadline_s=0.05, sweep_interval_s=0.02)
    async with serving(topics_of(), limits) as broker:
        client = await broker.connect()
        client.send_bytes(struct.pack(">i", 100) + bytes(10))
        assert await client.is_closed()


async def test_idle_peer_is_disconnected() -> None:
    limits = BrokerLimits(idle_s_max=0.05, sweep_interval_s=0.02)
    async with serving(topics_of(), limits) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}})
        await client.produced()
        assert await client.is_closed()
        assert broker.services.counters.connections_idle_closed == 1


async def test_connections_are_limited() -> None:
    limits = BrokerLimits(connections_max=2)
    async with serving(topics_of(), limits) as broker:
        first, second = await broker.connect(), await broker.connect()
        for client in (first, second):
            client.send_produce({"orders": {0: batch(b"one")}})
            await client.produced()
        third = await broker.connect()
        assert await third.is_closed()


async def test_quota_delays_next_request() -> None:
    limits = BrokerLimits(produce_bytes_per_s=100_000)
    async with serving(topics_of(), limits) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"x" * 110_000)}})
        answer = await client.produced()
        assert 0 < answer.throttle_time_ms < 1_000
        client.send_produce({"orders": {0: batch(b"y")}})
        assert (await client.produced()).responses[0].partition_responses[0].base_offset == 1
        assert broker.services.counters.throttled >= 1


async def test_closing_server_answers_read_requests() -> None:
    topics = topics_of()
    log = topics.logs["orders", 0]
    log.commits_itself = False
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}})
        await until(lambda: bool(log.pending))
        closing = asyncio.create_task(broker.server.close())
        await asyncio.sleep(0)
        log.commit()
        assert (await client.produced()).responses[0].partition_responses[0].base_offset == 0
        await closing
        assert await client.is_closed()


async def test_offsets_are_listed() -> None:
    topics = topics_of()
    log = topics.logs["orders", 0]
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one", b"two", b"three")}})
        await client.produced()
        log.last_stable_offset = 2
        kind = ListOffsetsRequest.ListOffsetsTopic
        expected = {-1: 3, -2: 0, -3: 2, -4: 0, -5: -1, 1_001: 1, 9_999: -1}
        for isolation, latest in ((0, 3), (1, 2)):
            rows = [
                kind.ListOffsetsPartition(partition_index=0, timestamp=each) for each in expected
            ]
            request = ListOffsetsRequest(
                isolation_level=isolation, topics=[kind(name="orders", partitions=rows)]
            )
            answer = await client.ask(ApiKey.LIST_OFFSETS, request, 8)
            assert isinstance(answer, ListOffsetsResponse)
            found = [partition.offset for partition in answer.topics[0].partitions]
            wanted = {**expected, -1: latest, -3: 2 if isolation == 0 else -1}
            assert found == list(wanted.values())


async def test_pipelined_fetches_are_answered_in_order() -> None:
    topics = topics_of()
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}})
        await client.produced()
        client.send_fetch(Ask({"orders": {1: Wanted()}}, max_wait_ms=15_000))
        client.send_fetch(Ask({"orders": {0: Wanted()}}))
        await until(lambda: not topics.logs["orders", 1].callbacks.is_empty)
        assert topics.logs["orders", 0].reads == 0
        topics.logs["orders", 1].callbacks.notify()  # woken without news, it continues to wait
        writer = await broker.connect()
        writer.send_produce({"orders": {1: batch(b"two")}})
        first, second = await client.fetched(), await client.fetched()
        assert bytes_of(first.responses[0].partitions[0])
        assert bytes_of(second.responses[0].partitions[0])
