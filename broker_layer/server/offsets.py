"""The offset APIs: ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers.

Leaves finding the offsets to the partitions' logs.

Invariants: the latest offset is the high watermark, or for read_committed the last stable offset,
never the log's end; a client with a wrong leader epoch gets an error; a request for a log that is
being taken over waits briefly, because not every client retries; the partitions of one
DeleteRecords have a common deadline, and no deletion begins after it.

Source: KIP-79, KIP-98, KIP-107, KIP-320, KIP-405 (timestamps -4 and -5), KIP-664, KIP-734.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from broker_layer.errors import TopicError
from broker_layer.handlers import Handler, RequestContext, Turns
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.fetch_codec import READ_COMMITTED
from broker_layer.kafka.messages import (
    ApiMessage,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.server.exchange import timeout_of
from broker_layer.server.ports import PartitionLog, PartitionLogs
from broker_layer.server.service_tools import UnreadableRecords, check_leader_epoch

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
VERSIONS_MIN: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}
"""First version of ListOffsets in which each of these special timestamps is valid."""
NONE_FOUND: Final = (-1, -1, -1)
"""Timestamp, offset, leader epoch."""
READ_UNCOMMITTED: Final = 0
DELETE_TIMEOUT_S_MAX: Final = 300.0
DELETIONS_AT_ONCE_MAX: Final = 64
"""Maximum number of concurrent deletions of one DeleteRecords: each is a change in ZooKeeper."""
OPENING_WAIT_S_MAX: Final = 2.0
"""Maximum time that a request waits for logs that are being taken over, in seconds. The requests
behind it on its connection wait too."""

Asked = TypeVar("Asked")
Row = TypeVar("Row")

_AskedTopic = ListOffsetsRequest.ListOffsetsTopic | DeleteRecordsRequest.DeleteRecordsTopic
_AskedTime = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
_AskedEpoch = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
_AskedDeletion = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition
_Found = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
_FoundEnd = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset
_Described = DescribeProducersResponse.TopicResponse.PartitionResponse
_Deleted = DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult


class OffsetService:
    """The offset APIs of one broker."""

    def __init__(self, logs: PartitionLogs, unreadable: UnreadableRecords) -> None:
        self._logs = logs
        self._unreadable = unreadable

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handlers of this service, by API key."""
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
            ApiKey.DELETE_RECORDS: self.delete_records,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
        }

    async def list_offsets(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer ListOffsets."""
        assert isinstance(request, ListOffsetsRequest)
        await self._wait_for_logs(request.topics)
        rows = await _by_topic(
            [(topic.name, topic.partitions) for topic in request.topics],
            partial(self._find, request.isolation_level, context.api_version),
        )
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = [kind(name=name, partitions=some) for name, some in rows]
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    async def offset_for_leader_epoch(self, request: ApiMessage, _: RequestContext) -> ApiMessage:
        """Answer OffsetForLeaderEpoch."""
        assert isinstance(request, OffsetForLeaderEpochRequest)
        asked = [(topic.topic, topic.partitions) for topic in request.topics]
        rows = await _by_topic(asked, self._find_end)
        kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = [kind(topic=name, partitions=some) for name, some in rows]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    async def delete_records(self, request: ApiMessage, _: RequestContext) -> ApiMessage:
        """Answer DeleteRecords."""
        assert isinstance(request, DeleteRecordsRequest)
        timeout_s = timeout_of(request.timeout_ms, DELETE_TIMEOUT_S_MAX)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        await self._wait_for_logs(request.topics, min(timeout_s, OPENING_WAIT_S_MAX))
        asked = [(topic.name, topic.partitions) for topic in request.topics]
        answer = partial(self._delete, deadline_s)
        rows = await _by_topic(asked, answer, at_once_max=DELETIONS_AT_ONCE_MAX)
        kind = DeleteRecordsResponse.DeleteRecordsTopicResult
        topics = [kind(name=name, partitions=some) for name, some in rows]
        return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)

    async def describe_producers(self, request: ApiMessage, _: RequestContext) -> ApiMessage:
        """Answer DescribeProducers; describe each partition once, because it may have many."""
        assert isinstance(request, DescribeProducersRequest)
        asked: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        named = [(name, list(partitions)) for name, partitions in asked.items()]
        rows = await _by_topic(named, self._describe)
        kind = DescribeProducersResponse.TopicResponse
        topics = [kind(name=name, partitions=some) for name, some in rows]
        return DescribeProducersResponse(throttle_time_ms=0, topics=topics)

    async def _wait_for_logs(
        self,
        topics: Sequence[_AskedTopic],
        wait_s: float = OPENING_WAIT_S_MAX,
    ) -> None:
        """Wait until none of these logs is being taken over, for at most `wait_s`."""
        openings = [
            self._logs.opening(topic.name, partition.partition_index)
            for topic in topics
            for partition in topic.partitions
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                for event in openings:
                    if event is not None:
                        await event.wait()

    # -- one partition

    async def _find(self, isolation: int, version: int, topic: str, asked: _AskedTime) -> _Found:
        error, place = ErrorCode.NONE, NONE_FOUND
        try:
            log = self._logs.log_of(topic, asked.partition_index)
            check_leader_epoch(log, asked.current_leader_epoch)
            _check_askable(isolation, asked.timestamp, version)
            committed = isolation == READ_COMMITTED
            place = await _find_offset(log, asked.timestamp, read_committed=committed)
        except TopicError as refusal:
            self._unreadable.note(topic, asked.partition_index, refusal)
            error = refusal.code
        timestamp, offset, epoch = place
        return _Found(
            partition_index=asked.partition_index,
            error_code=error,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=epoch,
        )

    async def _find_end(self, topic: str, asked: _AskedEpoch) -> _FoundEnd:
        error, epoch, end = ErrorCode.NONE, -1, -1
        try:
            log = self._logs.log_of(topic, asked.partition)
            check_leader_epoch(log, asked.current_leader_epoch)
            epoch, end = log.end_offset_of_epoch(asked.leader_epoch)
        except TopicError as refusal:
            error = refusal.code
        return _FoundEnd(
            error_code=error, partition=asked.partition, leader_epoch=epoch, end_offset=end
        )

    async def _delete(self, deadline_s: float, topic: str, asked: _AskedDeletion) -> _Deleted:
        """Delete a partition's records unless the deadline has passed; return its row."""
        error, low_watermark = ErrorCode.NONE, -1
        try:
            log = self._logs.log_of(topic, asked.partition_index)
            if asyncio.get_running_loop().time() >= deadline_s:
                text = "the deadline passed before this partition's deletion began: send it again"
                raise TopicError(ErrorCode.REQUEST_TIMED_OUT, text)
            async with asyncio.timeout_at(deadline_s):
                low_watermark = await log.delete_records(asked.offset)
        except TopicError as refusal:
            error = refusal.code
        except TimeoutError:
            error = ErrorCode.REQUEST_TIMED_OUT
        return _Deleted(
            partition_index=asked.partition_index, low_watermark=low_watermark, error_code=error
        )

    async def _describe(self, topic: str, partition: int) -> _Described:
        try:
            producers = self._logs.log_of(topic, partition).active_producers()
        except TopicError as refusal:
            return _Described(
                partition_index=partition,
                error_code=refusal.code,
                error_message=refusal.text,
                active_producers=[],
            )
        states = [
            _Described.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start_offset,
            )
            for producer in producers
        ]
        return _Described(
            partition_index=partition, error_code=0, error_message=None, active_producers=states
        )


async def _by_topic(
    topics: Sequence[tuple[str, Sequence[Asked]]],
    answer: Callable[[str, Asked], Awaitable[Row]],
    *,
    at_once_max: int = 1,
) -> list[tuple[str, list[Row]]]:
    """Call `answer` for each partition of each topic; return the rows by topic, in request order.

    A request can name very many partitions, so there are only `at_once_max` tasks, and other work
    runs between two partitions.
    """
    asked = [(name, partition) for name, partitions in topics for partition in partitions]
    left = iter(enumerate(asked))
    rows = dict[int, Row]()

    async def work() -> None:
        turns = Turns()
        for index, (name, item) in left:
            rows[index] = await answer(name, item)
            await turns.pass_on()

    if at_once_max == 1:
        await work()  # in the task of the request, which has turns with other requests
    else:
        await asyncio.gather(*[work() for _ in range(min(at_once_max, len(asked)))])
    answers = (rows[index] for index in range(len(asked)))
    return [(name, [next(answers) for _ in partitions]) for name, partitions in topics]


def _check_askable(isolation: int, timestamp_ms: int, version: int) -> None:
    if isolation not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise TopicError(ErrorCode.INVALID_REQUEST, f"isolation level {isolation} is unknown")
    if timestamp_ms < 0 and version < VERSIONS_MIN.get(timestamp_ms, version + 1):
        text = f"timestamp {timestamp_ms} is not valid in version {version} of ListOffsets"
        raise TopicError(ErrorCode.UNSUPPORTED_VERSION, text)


async def _find_offset(
    log: PartitionLog, timestamp_ms: int, *, read_committed: bool
) -> tuple[int, int, int]:
    end = log.last_stable_offset if read_committed else log.high_watermark
    if timestamp_ms == LATEST:
        return -1, end, log.leader_epoch
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.leader_epoch
    if timestamp_ms == LATEST_TIERED:
        return NONE_FOUND
    if timestamp_ms == MAX_TIMESTAMP:
        position = await log.max_timestamp()
    else:
        position = await log.offset_for_timestamp(timestamp_ms)
    if position is None or position.offset >= end:
        return NONE_FOUND
    return position.timestamp_ms, position.offset, position.leader_epoch
