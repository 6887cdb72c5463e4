"""WriteTxnMarkers requests, version 1, to brokers that lead partitions of a transaction.

Leaves the times of sending to `marker_sender`, and connections to `broker_layer.peer`.

Invariants: a marker that the answer does not mention gets the code UNKNOWN_SERVER_ERROR.
"""

from collections.abc import Sequence
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker_layer.peer import PeerAddress, Peers
from broker_layer.transactions.values import Marker, TopicPartition

VERSION: Final = 1

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Topic = _Marker.WritableTxnMarkerTopic


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
    by_marker: dict[Marker, dict[str, list[int]]] = {}
    for partition, marker in markers:
        topics = by_marker.setdefault(marker, {})
        topics.setdefault(partition.topic, []).append(partition.partition)
    return WriteTxnMarkersRequest(
        markers=[
            _Marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=[
                    _Topic(name=name, partition_indexes=partitions)
                    for name, partitions in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
            for marker, topics in by_marker.items()
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


def code_of(number: int) -> ErrorCode:
    """Return the error code of a number; UNKNOWN_SERVER_ERROR for an unknown number."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
