"""Markers of transactions: written to the partitions that this broker leads, sent to other brokers,
and received from them.

Leaves the times of sending to `marker_sender`, connections to `broker_layer.peer`, order and checks
in a log to `broker_layer.log.topic_log`, and the offsets that a transaction commits to the group
coordinator.

Invariants: a marker is passed to its log before `LocalMarkerWriter.write` returns; earlier
verifications are void from then on. A marker that is still being appended is not appended a second
time. All markers of a request are appended or refused before its handler waits, so requests take
effect in the order in which they were read; clients of one listener have no effect on the order of
those of another one. The answer comes within a bounded time.

Source: KIP-98, "Complete the transaction" and "WriteTxnMarkersRequest".
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError, code_in, code_of
from broker_layer.handlers import RequestContext, error_of, grouped
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.messages import (
    ApiMessage,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker_layer.kafka.record_batch import (
    ControlKind,
    RecordBatchHeader,
    build_control_batch,
    read_header,
)
from broker_layer.peer import PeerAddress, Peers
from broker_layer.transactions.leaders import LocalMarkers
from broker_layer.transactions.values import MARKERS_MAX, Marker, TopicPartition
from broker_layer.transactions.verification import VerificationGuards

VERSION: Final = 1
PROCESSES_MAX: Final = 10_000
"""Maximum number of known processes; the one that was silent for longest is dropped first."""
_Marker = WriteTxnMarkersRequest.WritableTxnMarker


_Topic = _Marker.WritableTxnMarkerTopic


_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult


_TopicResult = _Result.WritableTxnMarkerTopicResult


_PartitionResult = _TopicResult.WritableTxnMarkerPartitionResult


Write = tuple[Marker, TopicPartition, asyncio.Future[ErrorCode]]


class MarkedLog(Protocol):
    """A partition's log, as far as markers need it (`broker_layer.log.topic_log.TopicLog`)."""

    def append(
        self, header: RecordBatchHeader, data: bytearray, *, coordinator_epoch: int | None
    ) -> Awaitable[object]:
        """Append a batch; the result is available when it is committed. Raises TopicError."""


class GroupMarkers(Protocol):
    """The group coordinator, as far as markers need it."""

    def write_markers(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,  # noqa: FBT001 - positional, as in the coordinator
    ) -> Awaitable[None]:
        """Commit or drop the offsets of a transaction, durably. Raises TopicError."""


@dataclass(eq=False, repr=False)
class LocalMarkerWriter:
    """Writes all markers for the partitions that one broker leads."""

    _log_of: Callable[[str, int], MarkedLog]
    _groups: GroupMarkers
    _guards: VerificationGuards
    _wall_clock_ms: Callable[[], int]
    _under_way: dict[tuple[TopicPartition, Marker], "asyncio.Future[ErrorCode]"] = field(
        default_factory=dict, init=False
    )

    def write(self, partition: TopicPartition, marker: Marker) -> Awaitable[ErrorCode]:
        """Append a marker before this returns; see `ports.LocalMarkers`."""
        key = partition, marker
        outcome = self._under_way.get(key)
        if outcome is None:
            self._guards.marker_written(partition, marker.producer_id)
            outcome = asyncio.ensure_future(_code_of(self._appended(partition, marker)))
            self._under_way[key] = outcome
            outcome.add_done_callback(lambda _: self._under_way.pop(key))
        return asyncio.shield(outcome)

    def _appended(
        self, partition: TopicPartition, marker: Marker
    ) -> Awaitable[object] | TopicError:
        try:
            if partition.topic == CONSUMER_OFFSETS:
                return self._groups.write_markers(
                    partition.partition,
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.committed,
                )
            log = self._log_of(partition.topic, partition.partition)
            batch = self._batch(marker)
            return log.append(read_header(batch), batch, coordinator_epoch=marker.coordinator_epoch)
        except TopicError as error:
            return error

    def _batch(self, marker: Marker) -> bytearray:
        return build_control_batch(
            ControlKind.COMMIT if marker.committed else ControlKind.ABORT,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            self._wall_clock_ms(),
        )


async def _code_of(appended: Awaitable[object] | TopicError) -> ErrorCode:
    if isinstance(appended, TopicError):
        return appended.code
    return code_in(await error_of(appended))


class PeerMarkers:
    """Sends markers to other brokers, over connections of `peers` that carry only markers."""

    def __init__(self, peers: Peers, timeout_s: float) -> None:
        self._peers = peers
        self._timeout_s = timeout_s

    async def write(
        self, address: PeerAddress, markers: Sequence[tuple[TopicPartition, Marker]]
    ) -> list[ErrorCode]:
        """Return one code per marker. Raises PeerError if the outcome is unknown."""
        request = markers_request(markers)
        response = await self._peers.ask(
            address, request, WriteTxnMarkersResponse, VERSION, self._timeout_s
        )
        return _codes_in(response, markers)


def markers_request(
    markers: Sequence[tuple[TopicPartition, Marker]],
) -> WriteTxnMarkersRequest:
    """Return the request that contains all of `markers`."""
    by_marker = grouped((marker, partition) for partition, marker in markers)
    return WriteTxnMarkersRequest(
        markers=[
            _Marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=[
                    _Topic(name=name, partition_indexes=partitions)
                    for name, partitions in grouped(members).items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
            for marker, members in by_marker.items()
        ]
    )


def _codes_in(
    response: WriteTxnMarkersResponse, markers: Sequence[tuple[TopicPartition, Marker]]
) -> list[ErrorCode]:
    codes: dict[tuple[int, str, int], ErrorCode] = {}
    for result in response.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                key = result.producer_id, topic.name, partition.partition_index
                codes[key] = code_of(partition.error_code)
    return [
        codes.get((marker.producer_id, *partition), ErrorCode.UNKNOWN_SERVER_ERROR)
        for partition, marker in markers
    ]


class MarkerHandler:
    """Handler of the markers that one broker receives over the network."""

    def __init__(self, local: LocalMarkers, store_wait_s: float) -> None:
        self._local = local
        self._store_wait_s = store_wait_s
        self._order = PeerOrder()

    async def write_markers(
        self, request: WriteTxnMarkersRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer WriteTxnMarkers."""
        count = sum(len(topic.partition_indexes) for one in request.markers for topic in one.topics)
        if count > MARKERS_MAX:
            raise KafkaFrameError(
                f"a request has {count} markers: write at most {MARKERS_MAX} in one request"
            )
        is_admitted = self._order.admit(f"{context.listener}/{context.client_id}")
        writes: list[Write] = []
        for marker in request.markers:
            value = Marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
            )
            for topic in marker.topics:
                for number in topic.partition_indexes:
                    partition = TopicPartition(topic.name, number)
                    outcome = self._write(partition, value) if is_admitted else _refused()
                    writes.append((value, partition, outcome))
        await self._wait([outcome for _, _, outcome in writes])
        return _response(writes)

    def _write(self, partition: TopicPartition, marker: Marker) -> "asyncio.Future[ErrorCode]":
        return asyncio.ensure_future(self._local.write(partition, marker))

    async def _wait(self, outcomes: "list[asyncio.Future[ErrorCode]]") -> None:
        try:
            async with asyncio.timeout(self._store_wait_s):
                await asyncio.gather(*outcomes)
        except TimeoutError:
            return  # gather cancelled the unfinished ones: they are answered as timed out


def _refused() -> "asyncio.Future[ErrorCode]":
    refused: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    refused.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return refused


def _response(writes: list[Write]) -> WriteTxnMarkersResponse:
    results = grouped(
        (marker, (topic, _PartitionResult(partition_index=number, error_code=_code_now(outcome))))
        for marker, (topic, number), outcome in writes
    )
    return WriteTxnMarkersResponse(
        markers=[
            _Result(
                producer_id=marker.producer_id,
                topics=[
                    _TopicResult(name=name, partitions=partitions)
                    for name, partitions in grouped(rows).items()
                ],
            )
            for marker, rows in results.items()
        ]
    )


def _code_now(outcome: "asyncio.Future[ErrorCode]") -> ErrorCode:
    is_known = outcome.done() and not outcome.cancelled()
    return outcome.result() if is_known else ErrorCode.REQUEST_TIMED_OUT


class PeerOrder:
    """The newest connection that sent a request, by process.

    If a broker abandons a connection, bytes of it may still wait to be read here. A marker that was
    sent again over a newer connection is then read before the first copy. If the first copy were
    written late, it would end the next transaction of the same producer. So after a request of
    connection n of a process, none of n - 1 or below is admitted. Within one connection, the order
    is kept anyway.
    """

    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()

    def admit(self, client_id: str) -> bool:
        """Record a request of the connection `<process>#<number>`; return whether it is admitted.

        A name of another form belongs to a tool, which sends once and is always admitted.
        """
        process, sign, number = client_id.rpartition("#")
        if not sign or not (number.isascii() and number.isdecimal()) or len(number) > 18:  # noqa: PLR2004
            return True
        connection = int(number)
        if connection < self._newest.get(process, 0):
            return False
        self._newest[process] = connection
        self._newest.move_to_end(process)
        if len(self._newest) > PROCESSES_MAX:
            self._newest.popitem(last=False)
        return True
