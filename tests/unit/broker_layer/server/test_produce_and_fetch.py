"""Tests of Produce and Fetch over a real connection, with topics in memory."""

import asyncio
import uuid

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import Producer, parse_records
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import Ask, Wanted, batch, bytes_of, serving
from tests.until import until

TOPIC_ID = uuid.UUID(int=77)
BOTH = {0: Wanted(), 1: Wanted()}


def topics_of(*names: str) -> MemoryTopics:
    topics = MemoryTopics(
        {(name, partition): MemoryLog() for name in names for partition in (0, 1)}
    )
    topics.ids[TOPIC_ID.bytes] = "orders"
    topics.may_verify.set()
    return topics


@pytest.mark.parametrize("version", [3, 5, 7, 8, 9, 10, 11])
async def test_batch_is_appended_and_fetched(version: int) -> None:
    async with serving(topics_of("orders")) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one", b"two")}}, version)
        client.send_produce({"orders": {0: batch(b"three")}}, version)
        first, second = await client.produced(version), await client.produced(version)
        assert first.responses[0].partition_responses[0].error_code == 0
        assert first.responses[0].partition_responses[0].base_offset == 0
        assert second.responses[0].partition_responses[0].base_offset == 2
        client.send_fetch(Ask({"orders": {0: Wanted()}}))
        found = (await client.fetched()).responses[0].partitions[0]
        assert found.high_watermark == 3
        data = bytes_of(found)
        assert [record.value for record in parse_records(data, bytes_max=1000)] == [b"one", b"two"]


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12, 13, 16])
async def test_every_fetch_version_is_answered(version: int) -> None:
    async with serving(topics_of("orders")) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one"), 1: batch(b"two")}})
        await client.produced()
        name = TOPIC_ID if version >= 13 else "orders"
        client.send_fetch(Ask({name: BOTH}), version)
        answer = await client.fetched(version)
        assert [partition.high_watermark for partition in answer.responses[0].partitions] == [1, 1]
        assert all(partition.records for partition in answer.responses[0].partitions)


async def test_answers_keep_the_order_of_requests() -> None:
    topics = topics_of("slow", "quick")
    topics.logs["slow", 0].commits_itself = False
    async with serving(topics) as broker:
        client = await broker.connect()
        first = client.send_produce({"slow": {0: batch(b"one")}})
        second = client.send_produce({"quick": {0: batch(b"two")}})
        await until(lambda: topics.logs["quick", 0].high_watermark > 0)
        topics.logs["slow", 0].commit()
        assert [(await client.frame())[0], (await client.frame())[0]] == [first, second]


async def test_large_frame_among_small_ones() -> None:
    topics = topics_of("orders")
    async with serving(topics) as broker:
        client = await broker.connect()
        for size in (10, 1_000_000, 10, 300_000, 70_000):
            client.send_produce({"orders": {0: batch(b"x" * size)}})
        for offset in range(5):
            answer = await client.produced()
            assert answer.responses[0].partition_responses[0].base_offset == offset
        sizes = [len(data) for _, _, data in topics.logs["orders", 0].batches]
        assert [size // 10_000 for size in sizes] == [0, 100, 0, 30, 7]


async def test_acks_0_gets_no_answer() -> None:
    topics = topics_of("orders")
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}}, acks=0)
        client.sent.clear()
        client.send_produce({"orders": {0: batch(b"two")}})
        answer = await client.produced()
        assert answer.responses[0].partition_responses[0].base_offset == 1


async def test_acks_0_waits_for_news_of_topic() -> None:
    topics = topics_of("orders")
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"new": {0: batch(b"one")}}, acks=0)
        client.send_produce({"orders": {0: batch(b"behind it")}}, acks=0)
        client.sent.clear()
        await asyncio.sleep(0.02)
        assert not topics.logs["orders", 0].batches
        topics.logs["new", 0] = MemoryLog()
        client.send_produce({"new": {0: batch(b"two")}})
        answer = await client.produced()
        assert answer.responses[0].partition_responses[0].base_offset == 1
        assert topics.logs["orders", 0].batches


async def test_acks_0_refusal_closes_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker_layer.server.produce.LEADER_CHECK_PERIOD_S", 0.0)
    async with serving(topics_of("orders")) as broker:
        client = await broker.connect()
        client.send_produce({"unknown": {0: batch(b"one")}}, acks=0)
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (batch(b"one")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"one") + batch(b"two"), ErrorCode.INVALID_RECORD),
        (batch(b"one")[:60] + b"\0" + batch(b"one")[61:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.INVALID_RECORD),
        (batch(b"x" * 2**21), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
async def test_invalid_batch_does_not_affect_others(records: bytes, error: ErrorCode) -> None:
    async with serving(topics_of("orders")) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: records, 1: batch(b"fine")}})
        rows = (await client.produced()).responses[0].partition_responses
        assert [row.error_code for row in rows] == [error, 0]


async def test_invalid_acks_are_refused() -> None:
    async with serving(topics_of("orders")) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}}, acks=2)
        answer = await client.produced()
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_uncommitted_batch_times_out() -> None:
    topics = topics_of("orders")
    log = topics.logs["orders", 0]
    log.commits_itself = False
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one"), 1: batch(b"two")}}, timeout_ms=20)
        rows = (await client.produced()).responses[0].partition_responses
        assert [row.error_code for row in rows] == [ErrorCode.REQUEST_TIMED_OUT, 0]
        log.commit()  # too late: the request is answered already
        client.send_produce({"orders": {1: batch(b"three")}})
        assert (await client.produced()).responses[0].partition_responses[0].base_offset == 1


@pytest.mark.parametrize(("timeout_ms", "acks"), [(0, -1), (0, 1), (-1, -1)])
async def test_produce_without_a_timeout_waits_for_the_commit(timeout_ms: int, acks: int) -> None:
    topics = topics_of("orders")
    log = topics.logs["orders", 0]
    log.commits_itself = False
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}}, timeout_ms=timeout_ms, acks=acks)
        await until(lambda: bool(log.pending))
        await asyncio.sleep(0.05)
        log.commit()
        row = (await client.produced()).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)


async def test_failed_append_returns_code() -> None:
    topics = topics_of("orders")
    log = topics.logs["orders", 0]
    log.commits_itself = False
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}})
        await until(lambda: bool(log.pending))
        log.fail_pending(TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "deposed"))
        row = (await client.produced()).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert row.error_message == "deposed"


async def test_refusal_names_leader() -> None:
    topics = topics_of("orders")
    topics.leaders["moved", 0] = (4, 9)
    async with serving(topics) as broker:
        client = await broker.connect(listener=1)
        client.send_produce({"moved": {0: batch(b"one")}}, 10)
        produced = await client.produced(10)
        row = produced.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (4, 9)
        expected = [(4, "outer-4", "rack-4")]  # as in Metadata, including the rack
        assert [
            (endpoint.node_id, endpoint.host, endpoint.rack) for endpoint in produced.node_endpoints
        ] == expected
        topics.ids[uuid.UUID(int=78).bytes] = "moved"
        client.send_fetch(Ask({uuid.UUID(int=78): {0: Wanted()}}), 16)
        answer = await client.fetched(16)
        assert [
            (endpoint.node_id, endpoint.host, endpoint.rack) for endpoint in answer.node_endpoints
        ] == expected
        fetched = answer.responses[0].partitions[0]
        assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetched.current_leader.leader_id == 4


async def test_reading_stops_while_log_has_no_room() -> None:
    topics = topics_of("orders")
    log = topics.logs["orders", 0]
    log.has_room = False
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}})
        await client.produced()
        client.send_produce({"orders": {0: batch(b"two")}})
        for _ in range(20):
            await asyncio.sleep(0)
        assert log.log_end_offset == 1
        log.has_room = True
        log.room.set()
        await client.produced()
        assert log.log_end_offset == 2


async def test_transaction_is_verified_before_first_batch() -> None:
    topics = topics_of("orders")
    topics.may_verify.clear()
    log = topics.logs["orders", 0]
    async with serving(topics) as broker:
        client = await broker.connect()
        producer = Producer(9, 0, 0)
        transactional = batch(b"one", producer=producer, is_transactional=True)
        client.send_produce({"orders": {0: transactional}}, transactional_id="t")
        client.send_produce({"orders": {0: batch(b"behind")}})
        for _ in range(20):
            await asyncio.sleep(0)
        assert log.log_end_offset == 0
        topics.may_verify.set()
        first, second = await client.produced(), await client.produced()
        assert first.responses[0].partition_responses[0].base_offset == 0
        assert second.responses[0].partition_responses[0].base_offset == 1
        following = batch(b"two", producer=Producer(9, 0, 1), is_transactional=True)
        client.send_produce({"orders": {0: following}}, transactional_id="t")
        await client.produced()
        assert topics.verified == [("orders", 0)]


async def test_unknown_transaction_is_refused() -> None:
    topics = topics_of("orders")
    topics.unverified["orders", 0] = TopicError(ErrorCode.INVALID_TXN_STATE, "none is open")
    topics.overtaken.append(("orders", 1))
    async with serving(topics) as broker:
        client = await broker.connect()
        records = batch(b"one", producer=Producer(9, 0, 0), is_transactional=True)
        client.send_produce({"orders": {0: records, 1: records}}, transactional_id="t")
        rows = (await client.produced()).responses[0].partition_responses
        errors = [row.error_code for row in rows]
        assert errors == [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE]
        assert topics.logs["orders", 0].log_end_offset == 0
        assert topics.logs["orders", 1].log_end_offset == 0
        assert not topics.guards._live


@pytest.mark.parametrize("bytes_max", [0, 1])
async def test_fetch_with_no_room_returns_one_batch(bytes_max: int) -> None:
    async with serving(topics_of("orders")) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}})
        await client.produced()
        client.send_fetch(Ask({"orders": {0: Wanted(bytes_max=bytes_max)}}, max_bytes=bytes_max))
        row = (await client.fetched()).responses[0].partitions[0]
        assert len(bytes_of(row)) == len(batch(b"one"))


async def test_fetch_waits_for_append() -> None:
    topics = topics_of("orders")
    async with serving(topics) as broker:
        reader, writer = await broker.connect(), await broker.connect()
        reader.send_fetch(Ask({"orders": BOTH}, max_wait_ms=15_000))
        await until(lambda: not topics.logs["orders", 1].callbacks.is_empty)
        reads = topics.logs["orders", 0].reads
        writer.send_produce({"orders": {1: batch(b"one")}})
        answer = await reader.fetched()
        assert [partition.high_watermark for partition in answer.responses[0].partitions] == [0, 1]
        assert topics.logs["orders", 0].reads == reads, "nothing was looked up where nothing moved"
        assert topics.logs["orders", 1].callbacks.is_empty


async def test_waiting_fetch_follows_log_that_replaces_another_one() -> None:
    topics = topics_of("orders")
    old, new = topics.logs["orders", 1], MemoryLog(leader_epoch=4)
    async with serving(topics) as broker:
        reader, writer = await broker.connect(), await broker.connect()
        reader.send_fetch(Ask({"orders": BOTH}, max_wait_ms=15_000))
        await until(lambda: not old.callbacks.is_empty)
        topics.logs["orders", 1] = new
        old.callbacks.notify()  # it has ended
        await until(lambda: not new.callbacks.is_empty)
        assert old.callbacks.is_empty
        writer.send_produce({"orders": {1: batch(b"one")}})
        answer = await reader.fetched()
        assert [partition.high_watermark for partition in answer.responses[0].partitions] == [0, 1]
        assert new.callbacks.is_empty


async def test_fetch_waits_for_min_bytes() -> None:
    topics = topics_of("orders")
    async with serving(topics) as broker:
        reader, writer = await broker.connect(), await broker.connect()
        reader.send_fetch(Ask({"orders": BOTH}, max_wait_ms=15_000, min_bytes=5_000))
        await until(lambda: not topics.logs["orders", 1].callbacks.is_empty)
        for partition, size in ((1, 10), (0, 10), (0, 6_000)):
            writer.send_produce({"orders": {partition: batch(b"x" * size)}})
            await writer.produced()
        rows = (await reader.fetched()).responses[0].partitions
        assert sum(len(bytes_of(row)) for row in rows) > 5_000


async def test_fetch_returns_empty_after_max_wait() -> None:
    topics = topics_of("orders")
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_fetch(Ask({"orders": {0: Wanted()}}, max_wait_ms=30))
        row = (await client.fetched()).responses[0].partitions[0]
        assert (row.error_code, row.high_watermark, bytes_of(row)) == (0, 0, b"")
        assert topics.logs["orders", 0].callbacks.is_empty


async def test_epochs_and_offsets_are_checked() -> None:
    topics = topics_of("orders")
    async with serving(topics) as broker:
        client = await broker.connect()
        for wanted, error in (
            (Wanted(leader_epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
            (Wanted(leader_epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (Wanted(leader_epoch=3), ErrorCode.NONE),
            (Wanted(offset=5), ErrorCode.OFFSET_OUT_OF_RANGE),
        ):
            client.send_fetch(Ask({"orders": {0: wanted}}))
            assert (await client.fetched()).responses[0].partitions[0].error_code == error
        client.send_fetch(Ask({uuid.UUID(int=1): {0: Wanted()}}), 13)
        row = (await client.fetched(13)).responses[0].partitions[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_fetch_bytes_are_limited_to_one_complete_batch() -> None:
    topics = topics_of("orders")
    async with serving(topics) as broker:
        client = await broker.connect()
        for _ in range(3):
            for partition in (0, 1):
                client.send_produce({"orders": {partition: batch(b"x" * 1_000)}})
                await client.produced()
        for max_bytes, counts in (
            (10, [1, 0]),
            (2_500, [2, 0]),
            (3_900, [3, 0]),
            (5_000, [3, 1]),
            (1_000_000, [3, 3]),
        ):
            client.send_fetch(Ask({"orders": BOTH}, max_bytes=max_bytes))
            rows = (await client.fetched()).responses[0].partitions
            assert [len(bytes_of(row)) // 1_000 for row in rows] == counts
        small = Wanted(bytes_max=1_100)
        client.send_fetch(Ask({"orders": {0: small, 1: small}}))
        rows = (await client.fetched()).responses[0].partitions
        assert [len(bytes_of(row)) // 1_000 for row in rows] == [1, 1]


async def test_session_omits_unchanged_partitions() -> None:
    topics = topics_of("orders", "other")
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_fetch(Ask({"orders": BOTH, "other": {0: Wanted()}}, session_epoch=0))
        first = await client.fetched()
        assert first.session_id > 0
        assert sum(len(response.partitions) for response in first.responses) == 3
        number = first.session_id
        client.send_fetch(Ask(session_id=number, session_epoch=1))
        assert (await client.fetched()).responses == []
        client.send_produce({"orders": {1: batch(b"one")}})
        await client.produced()
        client.send_fetch(Ask(session_id=number, session_epoch=2))
        changed = await client.fetched()
        assert [response.topic for response in changed.responses] == ["orders"]
        assert [partition.partition_index for partition in changed.responses[0].partitions] == [1]
        client.send_fetch(Ask(session_id=number, session_epoch=9))
        assert (await client.fetched()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        client.send_fetch(Ask(session_id=12345, session_epoch=3))
        assert (await client.fetched()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_produce_waits_for_takeover() -> None:
    topics = topics_of("orders")
    log = topics.logs.pop(("orders", 0))
    topics.leaders["orders", 0] = (1, 1)
    opening = topics.openings["orders", 0] = asyncio.Event()
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: batch(b"one")}}, acks=0)
        client.send_produce({"orders": {0: batch(b"two")}})
        await asyncio.sleep(0.02)
        topics.logs["orders", 0] = log
        del topics.openings["orders", 0]
        opening.set()
        answer = await client.produced()
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.responses[0].partition_responses[0].base_offset == 1
