"""Large requests of a broker run one step in each pass of the loop, and so do many small ones."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_layer import handlers as turns
from broker_layer.handlers import SLICE_ELEMENTS, Turns
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.versions import ApiKey
from broker_layer.server import produce
from broker_layer.server.connections import BrokerConnection
from broker_layer.server.produce import (
    PARTITIONS_AT_ONCE,
    PartitionOutcome,
    PendingProduce,
    ProduceService,
)
from broker_layer.server.produce_verification import Verified
from quire.server import connection
from quire.server import connection_context as step_turns
from quire.server.connection_context import LARGE_BYTES
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import Ask, Wanted, batch, serving
from tests.support.loop_passes import counting_passes
from tests.until import until

if TYPE_CHECKING:
    from broker_layer.log.pending_batches import Appended


async def test_large_fetches_of_many_connections_run_one_step_in_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted = list[int]()

    partitions = 5 * SLICE_ELEMENTS
    logs = {("orders", number): MemoryLog() for number in range(partitions)}
    async with serving(MemoryTopics(logs)) as broker:
        clients = [await broker.connect() for _ in range(5)]
        async with counting_passes() as passes:

            async def pass_on(_: Turns) -> None:
                noted.append(passes.now)
                await asyncio.sleep(0)  # every slice ends a turn

            monkeypatch.setattr(Turns, "pass_on", pass_on)
            for client in clients:
                client.send_fetch(
                    Ask({"orders": {number: Wanted() for number in range(partitions)}})
                )
            answers = [await client.fetched() for client in clients]
    assert all(len(answer.responses[0].partitions) == partitions for answer in answers)
    assert len(noted) >= len(clients) * partitions // SLICE_ELEMENTS
    assert len(set(noted)) == len(noted)


async def test_too_many_large_requests_end_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_turns, "LARGE_WAITING_MAX", 0)
    async with serving(MemoryTopics({})) as broker:
        clients = [await broker.connect() for _ in range(2)]
        for client in clients:
            client.send(ApiKey.METADATA, 1, b"\0\0\x20\0" + b"\0\0" * LARGE_BYTES)
        await until(lambda: broker.services.counters.peers_dropped > 0)


async def test_a_produce_that_is_refused_before_it_begins_leaves_no_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_turns, "LARGE_WAITING_MAX", 0)
    opening = asyncio.Event()
    topics = MemoryTopics({("orders", 0): MemoryLog()}, openings={("orders", 0): opening})
    async with serving(topics) as broker:
        for client in [await broker.connect() for _ in range(3)]:
            for _ in range(2):
                client.send_produce({"orders": {0: batch(b"x" * LARGE_BYTES)}})
        await until(lambda: broker.services.counters.peers_dropped > 0)
        topics.openings.clear()
        opening.set()
        await until(lambda: not broker.services._produce._queues)


async def test_many_small_requests_are_served_in_turns_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "FRAMES_S", 0.0)  # each frame ends a turn
    noted, begin = list[int](), BrokerConnection._begin
    async with serving(MemoryTopics({})) as broker, counting_passes() as passes:

        def note(self: BrokerConnection, frame: memoryview, now_s: float) -> None:
            noted.append(passes.now)
            begin(self, frame, now_s)

        monkeypatch.setattr(BrokerConnection, "_begin", note)
        clients = [await broker.connect() for _ in range(5)]
        for client in clients:
            for _ in range(20):
                client.send(ApiKey.API_VERSIONS, 0, b"")
        for client in clients:
            assert [(await client.frame())[0] for _ in range(20)] == list(range(1, 21))
    assert len(noted) == 100
    most_in_a_pass = max(noted.count(each) for each in noted)
    assert most_in_a_pass <= len(clients) + 1, "the first of each connection, and one more"
    assert len(set(noted)) >= 100 - 2 * len(clients)


async def test_what_is_left_of_a_lost_connection_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "FRAMES_S", 0.0)
    async with serving(MemoryTopics({})) as broker:
        client = await broker.connect()
        await until(lambda: bool(broker.services.context.connections))
        (server_side,) = broker.services.context.connections
        for _ in range(2_000):
            client.send(ApiKey.API_VERSIONS, 0, b"")
        for _ in range(10_000):
            if server_side.has_frames_left:
                break
            await asyncio.sleep(0)
        assert not server_side.is_idle
        server_side.abort()
        await until(lambda: not broker.services.context.connections)
        assert server_side.is_idle
        assert sum(broker.services.counters.requests_by_api.values()) < 2_000


async def test_large_produces_of_many_connections_are_appended_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted, append = list[int](), ProduceService._append_one
    count = PARTITIONS_AT_ONCE + 1
    async with serving(MemoryTopics({})) as broker, counting_passes() as passes:

        def note(
            self: ProduceService,
            pending: PendingProduce,
            verified: Verified,
            outcome: PartitionOutcome,
            records: memoryview | None,
        ) -> None:
            if not outcome.partition:
                noted.append(passes.now)
            append(self, pending, verified, outcome, records)

        monkeypatch.setattr(ProduceService, "_append_one", note)
        clients = [await broker.connect() for _ in range(5)]
        for client in clients:
            client.send_produce({"orders": dict.fromkeys(range(count))})
            client.send_produce({"orders": {0: None}})
        for client in clients:
            sizes = [len((await client.produced()).responses[0].partition_responses)]
            sizes.append(len((await client.produced()).responses[0].partition_responses))
            assert sizes == [count, 1], "in their order"
    assert len(noted) == 2 * len(clients)
    assert len(set(noted)) >= len(clients)


async def test_other_requests_are_served_between_two_batches_that_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce, "APPENDING_S", -1.0)
    monkeypatch.setattr(turns, "TURN_S", -1.0)  # each batch takes a turn
    noted, append, logs = list[int](), MemoryLog.append, [MemoryLog() for _ in range(6)]
    topics = MemoryTopics({("orders", number): log for number, log in enumerate(logs)})
    async with serving(topics) as broker, counting_passes() as passes:

        def note(self: MemoryLog, *args: Any, **named: Any) -> "asyncio.Future[Appended]":
            noted.append(passes.now)
            return append(self, *args, **named)

        monkeypatch.setattr(MemoryLog, "append", note)
        client = await broker.connect()
        client.send_produce({"orders": {number: batch(b"x") for number in range(6)}})
        client.send_produce({"orders": {number: batch(b"later") for number in range(6)}})
        for offset in range(2):
            [topic] = (await client.produced()).responses
            found = [
                (response.error_code, response.base_offset)
                for response in topic.partition_responses
            ]
            assert found == [(ErrorCode.NONE, offset)] * 6
    assert len(noted) == len(set(noted)) == 12
