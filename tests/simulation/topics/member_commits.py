"""Commits of a group's member, with its current identity or one that is over.

Leaves the choice of partitions to `classic_members` and `consumer_members`, and judging answers and
commits to `offset_history` and `holding`.

Invariant: a member commits for a partition only after it received the offset of the previous owner.
"""

import random
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import OffsetCommitRequest, OffsetCommitResponse
from broker_layer.kafka.versions import ApiKey
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.committing import ask_offset
from tests.simulation.topics.holding import Membership
from tests.simulation.topics.kafka_client import GROUP, KafkaClient, Refused, Unanswered
from tests.simulation.topics.producing import RETRIED

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
    """Offsets of one member."""

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
