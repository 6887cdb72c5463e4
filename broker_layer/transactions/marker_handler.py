"""Handler of WriteTxnMarkers, which the coordinator of another broker, or a tool, sends.

Leaves the appending to `local_markers`, and the order between connections to `peer_order`.

Invariants: all markers of a request are appended or refused before the handler waits, so requests
take effect in the order in which they were read. Clients of one listener have no effect on the
order of those of another one. The answer comes within a bounded time; a marker
that is not committed by then is answered with REQUEST_TIMED_OUT.

Source: KIP-98, "WriteTxnMarkersRequest".
"""

import asyncio

from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.messages import (
    ApiMessage,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker_layer.transactions.config import MARKERS_MAX
from broker_layer.transactions.peer_order import PeerOrder
from broker_layer.transactions.ports import LocalMarkers
from broker_layer.transactions.values import Marker, TopicPartition

_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = _Result.WritableTxnMarkerTopicResult
_PartitionResult = _TopicResult.WritableTxnMarkerPartitionResult

Write = tuple[Marker, TopicPartition, asyncio.Future[ErrorCode]]


class MarkerHandler:
    """Handler of the markers that one broker receives over the network."""

    def __init__(self, local: LocalMarkers, store_wait_s: float) -> None:
        self._local = local
        self._store_wait_s = store_wait_s
        self._order = PeerOrder()

    async def write_markers(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer WriteTxnMarkers."""
        assert isinstance(request, WriteTxnMarkersRequest), "the dispatcher selects by API"
        count = sum(len(each.partition_indexes) for one in request.markers for each in one.topics)
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
    results: dict[Marker, dict[str, list[_PartitionResult]]] = {}
    for marker, (topic, number), outcome in writes:
        is_known = outcome.done() and not outcome.cancelled()
        code = outcome.result() if is_known else ErrorCode.REQUEST_TIMED_OUT
        partitions = results.setdefault(marker, {}).setdefault(topic, [])
        partitions.append(_PartitionResult(partition_index=number, error_code=code))
    return WriteTxnMarkersResponse(
        markers=[
            _Result(
                producer_id=marker.producer_id,
                topics=[
                    _TopicResult(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
            for marker, topics in results.items()
        ]
    )
