"""Commits and queries of the offsets of groups, by clients and by members."""

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
from tests.simulation.topics.history import GroupPlace
from tests.simulation.topics.holding import Membership
from tests.simulation.topics.kafka_client import GROUP, KafkaClient, Refused, Unanswered
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


REFUSED: Final = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""Error codes with which nothing was committed, and the member must check its state."""


class MemberCommits:
    """Commits of a group's member, with its current identity or one that is over.

    Invariant: a member commits for a partition only after it received the offset of the previous
    owner.
    """

    def __init__(
        self,
        node: KafkaNode,
        client: KafkaClient,
        group_id: str,
        membership: Membership,
        version: int,
    ) -> None:
        self.membership = membership
        self._node = node
        self._client = client
        self._group_id = group_id
        self._version = version
        self._told: dict[int, float] = {}
        """Partition -> time since when it was held when the previous owner's offset came.
        """

    async def take_over(self) -> None:
        """Query the offsets of previous owners of this member's partitions. Raises Unanswered,
        Refused.
        """
        cluster, held = self._node.topics, self.membership.held
        offsets = cluster.offsets
        for partition, since_s in list(held.items()):
            if self._told.get(partition) == since_s:
                continue
            place = self._group_id, partition
            asked = list(offsets.group(place).asked)
            offset = await ask_offset(self._client, cluster, self.membership.name, place)
            if held.get(partition) == since_s:
                self._told[partition] = since_s
                offsets.note_taken_over(place, asked, offset)

    async def commit(
        self, rng: random.Random, member_id: str, instance_id: str | None, epoch: int
    ) -> bool:
        """Commit for one of the partitions; return whether the member may continue unchanged.

        Raises Unanswered.
        """
        membership, cluster = self.membership, self._node.topics
        held = [
            each for each, since_s in membership.held.items() if self._told.get(each) == since_s
        ]
        if not held:
            return True
        partition = rng.choice(held)
        is_over = epoch > 1 and rng.random() < cluster.topics_plan.groups.stale_share
        said = epoch - 1 if is_over else epoch
        refusal = cluster.holdings.may_commit(self._group_id, membership, partition, said)
        place = self._group_id, partition
        offset = cluster.offsets.ask(place)
        request = self._request(partition, offset, member_id, instance_id, said)
        try:
            broker = await self._client.coordinator_of(GROUP, self._group_id)
            response = await self._client.ask(broker, ApiKey.OFFSET_COMMIT, self._version, request)
        except Unanswered:
            self._client.doubt_coordinator(GROUP, self._group_id)
            raise
        assert isinstance(response, OffsetCommitResponse)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        cluster.model.note("member commits", f"{membership.name} {place} {offset}: {code.name}")
        if code is ErrorCode.NONE:
            cluster.holdings.judge_commit(self._group_id, refusal)
            cluster.offsets.note_acknowledged(place, offset)
        elif code in REFUSED:
            cluster.offsets.note_refused(place, offset)
        elif code in RETRIED:
            self._client.doubt_coordinator(GROUP, self._group_id)
        else:
            cluster.model.report("commit", f"{membership.name} {place}: {code.name}")
        return is_over or code not in REFUSED

    def _request(
        self, partition: int, offset: int, member_id: str, instance_id: str | None, epoch: int
    ) -> OffsetCommitRequest:
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        row = kind.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        topic = self._node.topics.topic_of_group(self._group_id)
        return OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[kind(name=topic, partitions=[row])],
        )


def checked(code: int) -> None:
    """Raise Refused for any code but NONE."""
    if code:
        raise Refused(code)
