"""Tests of offset requests during a takeover, and of slow deletions."""

import asyncio

import pytest

from broker_layer import handlers as turns
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.offsets import DELETIONS_AT_ONCE_MAX, _by_topic
from quire.server.overriding import override
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import serving
from tests.support.loop_passes import counting_passes


async def answer_once_taken_over(api_key: ApiKey, request: ApiMessage, version: int) -> ApiMessage:
    topics = MemoryTopics()
    topics.leaders["orders", 0] = (1, 1)
    opening = topics.openings["orders", 0] = asyncio.Event()
    async with serving(topics) as broker:
        client = await broker.connect()
        asking = asyncio.ensure_future(client.ask(api_key, request, version))
        await asyncio.sleep(0.02)
        assert not asking.done()
        topics.logs["orders", 0] = MemoryLog(log_end_offset=5, high_watermark=5)
        del topics.openings["orders", 0]
        opening.set()
        return await asking


async def test_list_offsets_waits_for_takeover() -> None:
    kind = ListOffsetsRequest.ListOffsetsTopic
    wanted = kind.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[kind(name="orders", partitions=[wanted])]
    )
    answer = await answer_once_taken_over(ApiKey.LIST_OFFSETS, request, 3)
    assert isinstance(answer, ListOffsetsResponse)
    row = answer.topics[0].partitions[0]
    assert (row.error_code, row.offset) == (0, 5)


@pytest.mark.parametrize(
    ("timestamp", "version", "isolation", "code"),
    [
        (-3, 6, 0, ErrorCode.UNSUPPORTED_VERSION),
        (-3, 7, 0, ErrorCode.NONE),
        (-4, 7, 1, ErrorCode.UNSUPPORTED_VERSION),
        (-4, 8, 1, ErrorCode.NONE),
        (-5, 8, 0, ErrorCode.UNSUPPORTED_VERSION),
        (-7, 8, 0, ErrorCode.UNSUPPORTED_VERSION),
        (-1, 5, 7, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_timestamp_unknown_to_version_is_refused(
    timestamp: int, version: int, isolation: int, code: ErrorCode
) -> None:
    kind = ListOffsetsRequest.ListOffsetsTopic
    wanted = kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[kind(name="orders", partitions=[wanted])]
    )
    async with serving(MemoryTopics({("orders", 0): MemoryLog()})) as broker:
        client = await broker.connect()
        answer = await client.ask(ApiKey.LIST_OFFSETS, request, version)
    assert isinstance(answer, ListOffsetsResponse)
    assert answer.topics[0].partitions[0].error_code == code


def deletion_of(partitions: int, timeout_ms: int) -> DeleteRecordsRequest:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = [
        kind.DeleteRecordsPartition(partition_index=number, offset=2)
        for number in range(partitions)
    ]
    return DeleteRecordsRequest(
        topics=[kind(name="orders", partitions=wanted)], timeout_ms=timeout_ms
    )


async def rows_of_deletion(
    logs: dict[tuple[str, int], MemoryLog], timeout_ms: int
) -> list[tuple[int, int, int]]:
    async with serving(MemoryTopics(dict(logs))) as broker:
        client = await broker.connect()
        answer = await client.ask(ApiKey.DELETE_RECORDS, deletion_of(len(logs), timeout_ms), 1)
    assert isinstance(answer, DeleteRecordsResponse)
    (topic,) = answer.topics
    return [
        (partition.partition_index, partition.error_code, partition.low_watermark)
        for partition in topic.partitions
    ]


class MeetingLog(MemoryLog):
    """Log whose deletions complete once a given number of them are in progress."""

    def __init__(self, under_way: list[int], meeting: asyncio.Event) -> None:
        super().__init__(log_end_offset=5, high_watermark=5)
        self.under_way = under_way
        self.meeting = meeting

    @override
    async def delete_records(self, before_offset: int) -> int:
        self.under_way.append(before_offset)
        if len(self.under_way) == DELETIONS_AT_ONCE_MAX:
            self.meeting.set()
        await self.meeting.wait()
        assert len(self.under_way) <= DELETIONS_AT_ONCE_MAX
        self.under_way.pop()
        return await super().delete_records(before_offset)


async def test_concurrent_deletions_are_limited() -> None:
    count = DELETIONS_AT_ONCE_MAX + 3
    under_way: list[int] = []
    meeting = asyncio.Event()
    logs = {("orders", number): MeetingLog(under_way, meeting) for number in range(count)}
    rows = await rows_of_deletion({**logs}, 60_000)
    assert rows == [(number, ErrorCode.NONE, 2) for number in range(count)]


class StuckLog(MemoryLog):
    """Log whose deletions never complete; it counts them."""

    @override
    async def delete_records(self, before_offset: int) -> int:
        self.reads += 1
        await asyncio.Event().wait()
        return before_offset


async def test_deletion_has_one_deadline() -> None:
    count = 2 * DELETIONS_AT_ONCE_MAX
    logs: dict[tuple[str, int], MemoryLog] = {
        ("orders", number): StuckLog() for number in range(count - 1)
    }
    logs["orders", 0] = MemoryLog(log_end_offset=5, high_watermark=5)
    logs["orders", count - 1] = MemoryLog(log_end_offset=5, high_watermark=5)
    rows = await rows_of_deletion(logs, 400)
    late = [(number, ErrorCode.REQUEST_TIMED_OUT, -1) for number in range(1, count)]
    assert rows == [(0, ErrorCode.NONE, 2), *late]
    assert sum(log.reads for log in logs.values()) == DELETIONS_AT_ONCE_MAX
    assert logs["orders", count - 1].log_start_offset == 0


class SlowLog(MemoryLog):
    """Log whose deletions take a moment, as each is a change in the metadata service."""

    @override
    async def delete_records(self, before_offset: int) -> int:
        await asyncio.sleep(0.05)
        return await super().delete_records(before_offset)


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_deletion_without_a_timeout_is_done(timeout_ms: int) -> None:
    logs: dict[tuple[str, int], MemoryLog] = {
        ("orders", number): SlowLog(log_end_offset=5, high_watermark=5) for number in range(2)
    }
    rows = await rows_of_deletion(logs, timeout_ms)
    assert rows == [(0, ErrorCode.NONE, 2), (1, ErrorCode.NONE, 2)]


async def test_delete_records_waits_for_takeover() -> None:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = kind.DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(
        topics=[kind(name="orders", partitions=[wanted])], timeout_ms=1000
    )
    answer = await answer_once_taken_over(ApiKey.DELETE_RECORDS, request, 1)
    assert isinstance(answer, DeleteRecordsResponse)
    row = answer.topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (0, 2)


async def test_the_producers_of_a_partition_are_described_once() -> None:
    """Else a request of 60 KB has an answer of any size."""
    kind = DescribeProducersRequest.TopicRequest
    asked = [
        kind(name="orders", partition_indexes=[0, 1, 0, 0]),
        kind(name="none", partition_indexes=[0]),
        kind(name="orders", partition_indexes=[1, 0, 2]),
    ]
    logs = {("orders", number): MemoryLog() for number in range(2)}
    async with serving(MemoryTopics(logs)) as broker:
        client = await broker.connect()
        request = DescribeProducersRequest(topics=asked)
        answer = await client.ask(ApiKey.DESCRIBE_PRODUCERS, request, 0)
    assert isinstance(answer, DescribeProducersResponse)
    assert [
        (topic.name, partition.partition_index, len(partition.active_producers))
        for topic in answer.topics
        for partition in topic.partitions
    ] == [("orders", 0, 1), ("orders", 1, 1), ("orders", 2, 0), ("none", 0, 0)]


async def test_other_work_runs_between_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    others = 0

    async def answer(topic: str, partition: int) -> int:
        loop.call_soon(note)
        return others

    def note() -> None:
        nonlocal others
        others += 1

    loop = asyncio.get_running_loop()
    assert await _by_topic([("orders", range(20))], answer) == [("orders", list(range(20)))]


@pytest.mark.parametrize("at_once_max", [1, 8, 10_000])
async def test_answers_keep_order_with_few_tasks(at_once_max: int) -> None:
    most = 0

    async def answer(topic: str, partition: int) -> tuple[str, int]:
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        for _ in range(partition % 3):
            await asyncio.sleep(0)
        return topic, partition

    asked = [("orders", range(300)), ("none", range(0)), ("clicks", range(300))]
    rows = await _by_topic(asked, answer, at_once_max=at_once_max)
    assert rows == [(name, [(name, each) for each in some]) for name, some in asked]
    assert most <= 1 + min(at_once_max, 600)


async def test_other_work_runs_between_the_partitions_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    found = list[int]()
    async with counting_passes() as passes:

        async def answer(_: str, partition: int) -> int:
            found.append(passes.now)
            return partition

        rows = await _by_topic([("orders", range(50))], answer)
    assert rows == [("orders", list(range(50)))]
    assert len(set(found)) == len(found)
