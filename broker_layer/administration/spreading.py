"""Wait until all live brokers show a change of topics.

Leaves the change to `topic_changes.py`, and connections to `broker_layer.peer`.

Each broker learns of a change from the metadata service, sooner or later. This module sends the
others Metadata requests, as a client does, until they show the change. Then any broker that the
client requests next knows it.

Invariants: the wait is bounded; it skips brokers that left or do not answer.

Source: Kafka answers such requests after the answering broker has applied the controller's change.
"""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from broker_layer.control.cluster_view import ClusterView
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    MetadataRequest,
    MetadataResponse,
)
from broker_layer.peer import PeerAddress, Peers
from broker_layer.peer_connection import PeerError
from metadata.topics.topic import TopicRecord

SPREAD_S_MAX: Final = 2.0
"""Maximum time that an answer waits until other brokers show the change, in seconds."""
LOOK_FIRST_S: Final = 0.01
LOOK_MAX_S: Final = 0.2
VERSION: Final = 10
"""Version of the Metadata requests: the first with topic ids."""

_NO_ID: Final = UUID(int=0)
_Asked = MetadataRequest.MetadataRequestTopic


class TopicSpreading:
    """Waits until the other brokers show changes; requests their views by one listener."""

    def __init__(self, broker_id: int, view: ClusterView, peers: Peers, listener: str) -> None:
        self._broker_id = broker_id
        self._view = view
        self._peers = peers
        self._listener = listener

    async def wait(self, records: Sequence[TopicRecord]) -> None:
        """Return once all brokers show these topics, and no longer show the deleted ones; return
        after SPREAD_S_MAX at the latest.
        """
        others = [each for each in self._view.brokers if each != self._broker_id]
        if not records or not others:
            return
        try:
            async with asyncio.timeout(SPREAD_S_MAX):
                await asyncio.gather(*[self._wait_for(each, records) for each in others])
        except TimeoutError:
            pass

    async def _wait_for(self, broker_id: int, records: Sequence[TopicRecord]) -> None:
        request = _request(records)
        pause_s = LOOK_FIRST_S
        while (found := self._view.address_of(broker_id, self._listener)) is not None:
            address = PeerAddress(broker_id, *found)
            try:
                response = await self._peers.ask(
                    address, request, MetadataResponse, VERSION, SPREAD_S_MAX
                )
            except PeerError:
                return
            if _shows(response, records):
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_MAX_S)


def _request(records: Sequence[TopicRecord]) -> MetadataRequest:
    topics = [_Asked(topic_id=_NO_ID, name=record.name) for record in records]
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _shows(response: MetadataResponse, records: Sequence[TopicRecord]) -> bool:
    """Return whether an answer shows the topics as stored here, or newer."""
    counts = {
        (each.name, each.topic_id): len(each.partitions)
        for each in response.topics
        if each.error_code == ErrorCode.NONE
    }
    for record in records:
        count = counts.get((record.name, UUID(bytes=bytes(record.topic_id))), 0)
        if count if record.is_deleted else count < len(record.partitions):
            return False
    return True
