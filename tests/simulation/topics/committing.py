"""Clients that commit offsets of groups, and query them.

Leaves judging the answers to `offset_history`, and offsets of transactions to `transacting`.
"""

import asyncio
import random
from typing import TYPE_CHECKING, Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.kafka_client import GROUP, KafkaClient, Refused, Unanswered
from tests.simulation.topics.offset_history import GroupPlace
from tests.simulation.topics.producing import RETRIED

if TYPE_CHECKING:
    from tests.simulation.topics.topic_cluster import TopicCluster

OFFSET_COMMIT_VERSION: Final = 7
OFFSET_FETCH_VERSION: Final = 7
PARTITION: Final = 0


async def commit_offsets(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Commit offsets of a group, one after the other, until the run is over."""
    cluster = node.topics
    group_id = f"group-{node.host}"
    while not cluster.is_over:
        await _commit_next(node, client, group_id)
        if rng.random() < cluster.topics_plan.work.list_share:
            try:
                await ask_offset(client, cluster, node.incarnation, (group_id, PARTITION))
            except (Unanswered, Refused):
                await client.pause()
        await asyncio.sleep(cluster.topics_plan.work.gap_s * rng.random())


async def audit_offsets(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Query the offsets of all groups from the coordinator known last, until the run is over."""
    cluster = node.topics
    while not cluster.is_over:
        for place in list(cluster.offsets.groups):
            try:
                await ask_offset(client, cluster, node.incarnation, place)
            except (Unanswered, Refused):
                await client.pause()
        await asyncio.sleep(cluster.topics_plan.work.gap_s * 2 * rng.random())


async def _commit_next(node: KafkaNode, client: KafkaClient, group_id: str) -> None:
    offsets = node.topics.offsets
    offset = offsets.ask((group_id, PARTITION))
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    row = kind.OffsetCommitRequestPartition(
        partition_index=PARTITION, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[kind(name=node.topic, partitions=[row])],
    )
    while True:
        try:
            broker = await client.coordinator_of(GROUP, group_id)
            response = await client.ask(
                broker, ApiKey.OFFSET_COMMIT, OFFSET_COMMIT_VERSION, request
            )
            assert isinstance(response, OffsetCommitResponse)
            code = response.topics[0].partitions[0].error_code
            if not code:
                offsets.note_acknowledged((group_id, PARTITION), offset)
                return
            if code not in RETRIED:
                node.topics.model.report("commit", f"{group_id}: {ErrorCode(code).name}")
            why = ErrorCode(code).name
        except Unanswered as error:
            why = str(error)
        node.topics.model.note("commit", f"{group_id} {offset}: {why}")
        client.doubt_coordinator(GROUP, group_id)
        await client.pause()


async def ask_offset(
    client: KafkaClient, cluster: "TopicCluster", who: str, place: GroupPlace
) -> int:
    """Return a group's offset that no open transaction may change, -1 for none.

    Raises Unanswered, Refused.
    """
    offsets, (group_id, partition) = cluster.offsets, place
    kind = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=[kind(name=cluster.topic_of_group(group_id), partition_indexes=[partition])],
        require_stable=True,
    )
    broker = await client.coordinator_of(GROUP, group_id)
    before = offsets.group(place).acknowledged
    try:
        response = await client.ask(broker, ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, request)
    except Unanswered:
        client.doubt_coordinator(GROUP, group_id)
        raise
    assert isinstance(response, OffsetFetchResponse)
    answer = response.topics[0].partitions[0] if response.topics else None
    code = response.error_code or (0 if answer is None else answer.error_code)
    if code:
        client.doubt_coordinator(GROUP, group_id)
        raise Refused(code)
    offset = -1 if answer is None else int(answer.committed_offset)
    offsets.note_told(who, place, before, offset)
    return offset
