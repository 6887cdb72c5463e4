"""Tests of a Fetch and room: for complete batches in its answer, and for the answer in memory."""

import asyncio

import pytest

from broker_layer.kafka.record_batch import read_header
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import Ask, Wanted, batch, bytes_of, serving
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
