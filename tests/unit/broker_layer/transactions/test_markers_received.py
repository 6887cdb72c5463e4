"""Received markers are appended at once and in order, and answered in time."""

import asyncio
from collections.abc import Awaitable

import pytest

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from broker_layer.kafka.record_batch import ControlKind, RecordBatchHeader, read_control
from broker_layer.transactions.markers import LocalMarkerWriter, MarkerHandler, markers_request
from broker_layer.transactions.values import MARKERS_MAX, Marker, TopicPartition
from broker_layer.transactions.verification import VerificationGuards

A0, A1, G0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition(CONSUMER_OFFSETS, 0)
COMMIT = Marker(7, 3, committed=True, coordinator_epoch=5)
ABORT = Marker(8, 1, committed=False, coordinator_epoch=6)
NOW_MS = 1_700_000_000_000


class Logs:
    """The logs and groups of one broker; appended batches stay uncommitted until released."""

    def __init__(self) -> None:
        self.appended: list[tuple[str, int, int, ControlKind, int]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.group_markers: list[tuple[int, int, int, int, bool]] = []
        self.refusals: dict[str, ErrorCode] = {}
        self.guards = VerificationGuards()
        self.writer = LocalMarkerWriter(self.log_of, self, self.guards, lambda: NOW_MS)

    def log_of(self, topic: str, partition: int) -> "Log":
        if topic != "a":
            raise TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere")
        return Log(self, f"{topic}-{partition}")

    async def write_markers(
        self, partition: int, producer_id: int, epoch: int, coordinator_epoch: int, committed: bool
    ) -> None:
        marker = partition, producer_id, epoch, coordinator_epoch, committed
        self.group_markers.append(marker)
        await asyncio.sleep(0)
        if CONSUMER_OFFSETS in self.refusals:
            raise TopicError(self.refusals[CONSUMER_OFFSETS], "refused")

    def commit(self) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_result(None)


class Log:
    def __init__(self, logs: Logs, name: str) -> None:
        self._logs = logs
        self._name = name

    def append(
        self, header: RecordBatchHeader, data: bytearray, *, coordinator_epoch: int | None
    ) -> Awaitable[object]:
        if self._name in self._logs.refusals:
            raise TopicError(self._logs.refusals[self._name], "refused")
        kind, epoch = read_control(data)
        assert epoch == coordinator_epoch
        assert header.max_timestamp_ms == NOW_MS
        producer = header.producer_id, header.producer_epoch
        self._logs.appended.append((self._name, *producer, kind, epoch))
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._logs.answers.append(answer)
        return answer


async def test_a_marker_is_appended_before_write_returns() -> None:
    logs = Logs()
    confirmation = logs.guards.begin(A0, 7)
    outcome = logs.writer.write(A0, COMMIT)
    assert logs.appended == [("a-0", 7, 3, ControlKind.COMMIT, 5)]
    assert not confirmation.holds()
    logs.commit()
    assert await outcome is ErrorCode.NONE


async def test_a_marker_that_is_being_appended_is_not_appended_twice() -> None:
    logs = Logs()
    first = asyncio.ensure_future(logs.writer.write(A0, ABORT))
    second = logs.writer.write(A0, ABORT)
    other = logs.writer.write(A1, ABORT)
    assert [name for name, *_ in logs.appended] == ["a-0", "a-1"]
    first.cancel()
    await asyncio.sleep(0)
    logs.commit()
    assert await second is ErrorCode.NONE
    assert await other is ErrorCode.NONE
    again = logs.writer.write(A0, ABORT)
    assert len(logs.appended) == 3
    logs.commit()
    assert await again is ErrorCode.NONE


async def test_refusals_are_codes() -> None:
    logs = Logs()
    logs.refusals = {
        "a-0": ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        CONSUMER_OFFSETS: ErrorCode.NOT_COORDINATOR,
    }
    elsewhere = TopicPartition("b", 0)
    assert await logs.writer.write(A0, COMMIT) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await logs.writer.write(G0, COMMIT) is ErrorCode.NOT_COORDINATOR
    assert await logs.writer.write(elsewhere, COMMIT) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    pending = logs.writer.write(A1, COMMIT)
    logs.answers[0].set_exception(TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"))
    assert await pending is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_groups_marker_goes_to_its_coordinator() -> None:
    logs = Logs()
    assert await logs.writer.write(G0, COMMIT) is ErrorCode.NONE
    assert logs.group_markers == [(0, 7, 3, 5, True)]


async def answer(
    handler: MarkerHandler,
    request: WriteTxnMarkersRequest,
    client_id: str = "tool",
    listener: str = "BROKERS",
) -> list[tuple[int, str, int, int]]:
    context = RequestContext(1, client_id, "host", listener, 1)
    response = await handler.write_markers(request, context)
    assert isinstance(response, WriteTxnMarkersResponse)
    return [
        (marker.producer_id, topic.name, partition.partition_index, partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


async def test_one_request_carries_markers_of_many_transactions() -> None:
    logs = Logs()
    logs.refusals = {"a-1": ErrorCode.INVALID_PRODUCER_EPOCH}
    handler = MarkerHandler(logs.writer, 2.0)
    request = markers_request([(A0, COMMIT), (A0, ABORT), (A1, COMMIT), (G0, COMMIT)])
    asyncio.get_running_loop().call_later(0.5, logs.commit)
    assert await answer(handler, request) == [
        (7, "a", 0, 0),
        (7, "a", 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (7, CONSUMER_OFFSETS, 0, 0),
        (8, "a", 0, 0),
    ]


async def test_a_request_with_too_many_markers_is_refused_as_a_whole() -> None:
    logs = Logs()
    handler = MarkerHandler(logs.writer, 2.0)
    many = [TopicPartition("a", number) for number in range(MARKERS_MAX + 1)]
    with pytest.raises(KafkaFrameError, match="at most 1000"):
        await answer(handler, markers_request([(partition, COMMIT) for partition in many]))
    assert not logs.appended


async def test_an_uncommitted_marker_times_out_and_continues() -> None:
    logs = Logs()
    handler = MarkerHandler(logs.writer, 2.0)
    request = markers_request([(A0, COMMIT), (G0, COMMIT)])
    assert await answer(handler, request) == [
        (7, "a", 0, ErrorCode.REQUEST_TIMED_OUT),
        (7, CONSUMER_OFFSETS, 0, 0),
    ]
    asyncio.get_running_loop().call_later(0.5, logs.commit)
    assert await answer(handler, request) == [(7, "a", 0, 0), (7, CONSUMER_OFFSETS, 0, 0)]
    assert len(logs.appended) == 1


async def test_a_client_of_another_listener_replaces_no_connection_of_a_broker() -> None:
    logs = Logs()
    handler = MarkerHandler(logs.writer, 2.0)
    asyncio.get_running_loop().call_later(0.5, logs.commit)
    request = markers_request([(A0, COMMIT)])
    assert await answer(handler, request, "broker-1#999", "CLIENTS") == [(7, "a", 0, 0)]
    asyncio.get_running_loop().call_later(0.5, logs.commit)
    assert await answer(handler, request, "broker-1#2") == [(7, "a", 0, 0)]


async def test_markers_of_a_replaced_connection_are_refused() -> None:
    logs = Logs()
    handler = MarkerHandler(logs.writer, 2.0)
    request = markers_request([(A0, COMMIT)])
    logs_commit = asyncio.get_running_loop().call_later(0.5, logs.commit)
    assert await answer(handler, request, "broker-1#2") == [(7, "a", 0, 0)]
    assert logs_commit.when() > 0
    late = await answer(handler, request, "broker-1#1")
    assert late == [(7, "a", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert len(logs.appended) == 1
