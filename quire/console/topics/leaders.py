"""Leaders of partitions, and their offsets by time.

Leaves the metadata of topics to `quire.cli.topic.topic_lookup`.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ListOffsetsRequest, ListOffsetsResponse, MetadataResponse
from broker_layer.peer import PeerAddress
from quire.cli.topic.topic_access import BrokerAccess, NoBrokerError

LATEST: Final = -1
EARLIEST: Final = -2


class Place(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class Found(NamedTuple):
    """An offset, and the time of its record in ms; -1 if there is none."""

    offset: int
    time_ms: int


def leaders_in(response: MetadataResponse) -> dict[Place, PeerAddress]:
    """Return the leaders of the topics of an answer, without partitions that have none."""
    brokers = {
        each.node_id: PeerAddress(each.node_id, each.host, each.port) for each in response.brokers
    }
    return {
        Place(topic.name or "", each.partition_index): brokers[each.leader_id]
        for topic in response.topics
        for each in topic.partitions
        if each.leader_id in brokers
    }


async def offsets_at(
    brokers: BrokerAccess,
    leaders: Mapping[Place, PeerAddress],
    places: Iterable[Place],
    time_ms: int,
) -> dict[Place, Found]:
    """Return the first offset of each partition at or after a time, or EARLIEST or LATEST. Leaves
    out partitions without a leader that answers.
    """
    by_leader: dict[PeerAddress, list[Place]] = {}
    for place in places:
        if place in leaders:
            by_leader.setdefault(leaders[place], []).append(place)
    answers = await asyncio.gather(
        *(_offsets_of(brokers, leader, some, time_ms) for leader, some in by_leader.items())
    )
    return {place: found for answer in answers for place, found in answer.items()}


async def _offsets_of(
    brokers: BrokerAccess, leader: PeerAddress, places: list[Place], time_ms: int
) -> dict[Place, Found]:
    kind = ListOffsetsRequest.ListOffsetsTopic
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    asked = [
        kind(
            name=name,
            partitions=[
                kind.ListOffsetsPartition(partition_index=each, timestamp=time_ms)
                for each in partitions
            ],
        )
        for name, partitions in topics.items()
    ]
    try:
        request = ListOffsetsRequest(isolation_level=0, topics=asked)
        answer = await brokers.ask_one(leader, request, ListOffsetsResponse)
    except NoBrokerError:
        return {}
    return {
        Place(topic.name, each.partition_index): Found(each.offset, each.timestamp)
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }
