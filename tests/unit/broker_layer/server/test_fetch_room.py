"""Tests of a Fetch and room: for complete batches in its answer, and for the answer in memory."""

import asyncio

import pytest

from broker_layer.kafka.record_batch import read_header
from broker_layer.server.server_limits import BrokerLimits
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import (
    Ask,
    Client,
    ServedBroker,
    Wanted,
    batch,
    bytes_of,
    serving,
)
from tests.until import until

LONG_MS = 600_000


@pytest.mark.parametrize("is_there_before", [True, False])
async def test_full_fetch_does_not_wait(is_there_before: bool) -> None:
    topics = MemoryTopics({("orders", 0): MemoryLog()})
    async with serving(topics) as broker:
        reader, writer = await broker.connect(), await broker.connect()
        wanted = Wanted(bytes_max=5_000)
        ask = Ask({"orders": {0: wanted}}, max_wait_ms=LONG_MS, min_bytes=5_000)
        if not is_there_before:
            reader.send_fetch(ask)
            await until(lambda: not topics.logs["orders", 0].callbacks.is_empty)
        for _ in range(4):
            writer.send_produce({"orders": {0: batch(b"x" * 2_000)}})
            await writer.produced()
        if is_there_before:
            reader.send_fetch(ask)
        [row] = (await reader.fetched()).responses[0].partitions
        assert 4_000 < len(bytes_of(row)) < 5_000


async def test_min_bytes_above_max_bytes_does_not_wait() -> None:
    topics = MemoryTopics({("orders", 0): MemoryLog()})
    async with serving(topics) as broker:
        reader, writer = await broker.connect(), await broker.connect()
        ask = Ask({"orders": {0: Wanted()}}, max_wait_ms=LONG_MS, min_bytes=9_000, max_bytes=2_000)
        reader.send_fetch(ask)
        await until(lambda: not topics.logs["orders", 0].callbacks.is_empty)
        writer.send_produce({"orders": {0: batch(b"x" * 2_000)}})
        await writer.produced()
        [row] = (await reader.fetched()).responses[0].partitions
        assert len(bytes_of(row)) > 2_000


async def test_a_fetch_whose_connection_is_lost_when_records_come_keeps_no_room() -> None:
    log = MemoryLog()
    async with serving(MemoryTopics({("orders", 0): log})) as broker:
        counters, context = broker.services.counters, broker.services.context
        reader = await broker.connect()
        reader.send_fetch(Ask({"orders": {0: Wanted()}}, max_wait_ms=LONG_MS))
        await until(lambda: counters.fetches_waiting_now == 1)
        (connection,) = context.connections
        connection.abort()
        await asyncio.sleep(0)  # the Fetch is told of the loss, and has not run since
        data = batch(b"x")
        log.append(read_header(data), data)
        log.commit()
        await until(lambda: not (counters.fetches_waiting_now or context.connections))
        await until(lambda: len(context.unsent) == 0)


ROOM = BrokerLimits(drain_timeout_s=1.0, unsent_bytes_max=100_000)
"""Room for one answer of 60,000 bytes, and a part of another one."""


def _two_partitions() -> MemoryTopics:
    return MemoryTopics({("orders", number): MemoryLog() for number in range(2)})


def _ask_much(client: Client, partition: int) -> None:
    ask = Ask(
        {"orders": {partition: Wanted(bytes_max=60_000)}}, max_wait_ms=LONG_MS, min_bytes=60_000
    )
    client.send_fetch(ask)


async def _hold(broker: ServedBroker, partition: int, size: int) -> None:
    """Have a Fetch wait that has read `size` bytes and wants 60,000."""
    counters = broker.services.counters
    before = counters.fetches_waiting_now
    client = await broker.connect()
    client.send_produce({"orders": {partition: batch(b"x" * size)}})
    await client.produced()
    _ask_much(client, partition)
    await until(lambda: counters.fetches_waiting_now == before + 1)
    assert len(broker.services.context.unsent) >= size


async def test_fetches_do_not_wait_for_room_that_they_hold() -> None:
    async with serving(_two_partitions(), ROOM) as broker:
        await _hold(broker, 0, 38_000)
        await _hold(broker, 1, 38_000)
        first, second = broker.clients
        writer = await broker.connect()
        for size in (1_000, 1_000, 1_000, 25_000):  # there is no room for the third of both
            writer.send_produce({"orders": {n: batch(b"x" * size) for n in range(2)}})
            await writer.produced()
            await asyncio.sleep(0.01)
        found = [(await client.fetched()).responses[0].partitions[0] for client in (first, second)]
        assert all(38_000 < len(bytes_of(row)) < 60_000 for row in found)


async def test_a_fetch_that_waits_for_records_leaves_its_room_to_others() -> None:
    async with serving(_two_partitions(), ROOM) as broker:
        await _hold(broker, 0, 50_000)
        (slow,) = broker.clients
        other = await broker.connect()
        other.send_produce({"orders": {1: batch(b"x" * 50_000)}})
        await other.produced()
        other.send_fetch(Ask({"orders": {1: Wanted(bytes_max=60_000)}}))
        for client in (slow, other):
            [row] = (await client.fetched()).responses[0].partitions
            assert 50_000 < len(bytes_of(row)) < 60_000


async def test_no_fetch_begins_to_wait_with_room_that_others_wait_for() -> None:
    async with serving(_two_partitions(), ROOM) as broker:
        account = broker.services.context.unsent
        assert account.take("a client that reads slowly", 50_000)
        for partition in range(2):
            client = await broker.connect()
            client.send_produce({"orders": {partition: batch(b"x" * 50_000)}})
            await client.produced()
            _ask_much(client, partition)
        await until(lambda: broker.services._fetch._lacking_room == 2)
        account.give_back("a client that reads slowly", 50_000)
        [row] = (await broker.clients[0].fetched()).responses[0].partitions
        assert len(bytes_of(row)) > 50_000
        await until(lambda: broker.services.counters.fetches_waiting_now == 1)
