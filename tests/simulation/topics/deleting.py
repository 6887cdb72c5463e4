"""Clients that delete: records at the start of a log, and topics that they create again."""

import asyncio
import random
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.ending import check_log, read_log
from tests.simulation.topics.history import Place
from tests.simulation.topics.kafka_client import KafkaClient, Refused, Unanswered
from tests.simulation.topics.producing import PartitionSender, new_identity
from tests.simulation.topics.reading import EARLIEST, LATEST, LogReader

DELETE_RECORDS_VERSION: Final = 1
TIMEOUT_MS: Final = 3_000
PAUSE_S: Final = 3.0
RETREAT_MAX: Final = 6
"""Maximum number of records left, so that starts come near to ends."""


async def trim(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Delete records of all partitions at times, until the run is over.

    Client that deletes records, so that logs begin at offsets below their ends.

    Invariant checked: a log begins at the requested offset, or later (not deleted).
    """
    cluster = node.topics
    readers = [
        LogReader(cluster.history, client, node.incarnation, place, committed=False)
        for place in cluster.partitions()
    ]
    while not cluster.is_over:
        reader = rng.choice(readers)
        try:
            end = await reader.ask_offset(LATEST)
            if end:
                await _trim(node, client, reader, max(0, end - rng.randint(0, RETREAT_MAX)))
            await reader.ask_offset(EARLIEST)
        except (Unanswered, Refused) as error:
            cluster.model.note("trimmer", str(error))
            client.doubt_leader(*reader.place)
            await client.pause()
        await asyncio.sleep(PAUSE_S * rng.random())


async def _trim(node: KafkaNode, client: KafkaClient, reader: LogReader, offset: int) -> None:
    """Make a log begin at an offset. Raises Unanswered, Refused."""
    history, place = node.topics.history, reader.place
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    row = kind.DeleteRecordsPartition(partition_index=place[1], offset=offset)
    request = DeleteRecordsRequest(
        topics=[kind(name=place[0], partitions=[row])], timeout_ms=TIMEOUT_MS
    )
    broker = await client.leader_of(*place)
    leader = client.leader(broker)
    before = history.known(place, leader)
    response = await client.ask(broker, ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, request)
    assert isinstance(response, DeleteRecordsResponse)
    answer = response.topics[0].partitions[0]
    code, start = ErrorCode(answer.error_code), int(answer.low_watermark)
    node.topics.model.note("deleted", f"{place} below {offset}: {code.name} {start}")
    if code is not ErrorCode.NONE:
        raise Refused(code)
    if start < offset:
        history.report("not deleted", place, f"it begins at {start}, not at {offset}")
    history.note_range("DeleteRecords", place, leader, before, None, start)


CREATE_VERSION: Final = 4
DELETE_VERSION: Final = 6
PARTITIONS: Final = 2
SEGMENT_MS: Final = "1000"
DELETED: Final = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


async def recreate(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Use one topic of the name after the other until the run is over.

    Client that creates a topic, writes and reads it, deletes it, and creates it again.

    Records of one topic of the name are never in another. So records are noted under a name that
    identifies the topic, and are read with the leader's epoch, which no two of these topics share.

    Invariant: a topic is not used after the request for its deletion.
    """
    cluster = node.topics
    name = f"scratch-{node.host}"
    number = 0
    while not cluster.is_over:
        number += 1
        try:
            topic = await _made(node, client, name)
            if topic:
                places = [(topic, partition) for partition in range(PARTITIONS)]
                await _use(node, client, rng, places, f"{node.incarnation}.{number}")
                if not cluster.model.violations:
                    await _delete(node, client, topic)
        except Refused as error:
            cluster.model.note("recreator", str(error))
            await client.pause()


async def _made(node: KafkaNode, client: KafkaClient, name: str) -> str:
    """Return a topic of the name without a deletion request; "" when the run is over."""
    cluster = node.topics
    while not cluster.is_over:
        try:
            found = await client.look_up(name)
            if found and found not in cluster.doomed:
                cluster.model.note("recreator", f"has {found}")
                return found
            await _create(client, name, cluster.topics_plan.replicas)
        except Unanswered as error:
            cluster.model.note("recreator", f"cannot create: {error}")
        await client.pause()
    return ""


async def _create(client: KafkaClient, name: str, replicas: int) -> None:
    """Send one request to create a topic. Raises Unanswered."""
    kind = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            kind(
                name=name,
                num_partitions=PARTITIONS,
                replication_factor=replicas,
                assignments=[],
                configs=[kind.CreatableTopicConfig(name="segment.ms", value=SEGMENT_MS)],
            )
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
    broker = client.any_broker()
    response = await client.ask(broker, ApiKey.CREATE_TOPICS, CREATE_VERSION, request)
    assert isinstance(response, CreateTopicsResponse)


async def _use(
    node: KafkaNode, client: KafkaClient, rng: random.Random, places: list[Place], name: str
) -> None:
    """Write to a topic, and read it completely. Raises Refused."""
    cluster, work = node.topics, node.topics.topics_plan.work
    identity = await new_identity(client, node)
    for place in places:
        sender = PartitionSender(node, client, place, name, identity)
        for _ in range(rng.randint(1, 3)):
            for _ in range(rng.randint(1, 3)):
                sender.add(rng, work.value_bytes)
            await sender.flush(1)
            await asyncio.sleep(work.gap_s * rng.random())
    for place in places:
        seen = await read_log(cluster, client, name, place, committed=False)
        if seen is not None:
            check_log(cluster.history, place, seen)


async def _delete(node: KafkaNode, client: KafkaClient, topic: str) -> None:
    cluster = node.topics
    cluster.doomed[topic] = None
    kind = DeleteTopicsRequest.DeleteTopicState
    state = kind(name=None, topic_id=client.topic_ids[topic])
    request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
    while True:
        try:
            response = await client.ask(
                client.any_broker(), ApiKey.DELETE_TOPICS, DELETE_VERSION, request
            )
            assert isinstance(response, DeleteTopicsResponse)
            code = ErrorCode(response.responses[0].error_code)
            cluster.model.note("recreator", f"deletes {topic}: {code.name}")
            if code in DELETED:
                return
        except Unanswered as error:
            cluster.model.note("recreator", f"cannot delete {topic}: {error}")
        await client.pause()
