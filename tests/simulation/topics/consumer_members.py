"""Members of a KIP-848 group, which send heartbeats, take partitions, and release them on request.

Leaves commits to `member_commits`, and judging assignments to `holding`.

Invariants: a member stops using a partition before it reports that it does not own it any more.
After a heartbeat without an answer, it sends its complete state, and so receives its complete
assignment. It continues unchanged until an answer changes its state, however long that takes.
"""

import asyncio
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.committing import MemberCommits, checked
from tests.simulation.topics.holding import Membership
from tests.simulation.topics.kafka_client import GROUP, KafkaClient, Refused, Unanswered
from tests.simulation.topics.producing import RETRIED
from tests.simulation.topics.topic_plan import CONSUMER_GROUP

HEARTBEAT_VERSION: Final = 1
OFFSET_COMMIT_VERSION: Final = 9
HEARTBEAT_S: Final = 0.5
PATIENCE_S: Final = 2.0
SLOW_FACTOR: Final = 1.5
LEAVE_EPOCH: Final = -1
GONE: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
LOST: Final = (*GONE, ErrorCode.FENCED_MEMBER_EPOCH)
"""Error codes with which a member holds no partition any more, and joins again."""


@dataclass(slots=True)
class _Member:
    node: KafkaNode
    client: KafkaClient
    rng: random.Random
    membership: Membership
    commits: MemberCommits
    member_id: str
    epoch: int = 0
    topic_id: uuid.UUID | None = None
    assigned: list[int] = field(default_factory=list)
    told: list[int] | None = None
    """Owned partitions that the coordinator certainly knows; None: send the complete state."""
    gives_back_at_s: float = 0.0

    @property
    def surplus(self) -> list[int]:
        """Return the partitions to release."""
        return [each for each in self.membership.held if each not in self.assigned]

    def begin_again(self) -> None:
        """Start again without partitions."""
        self.node.topics.holdings.lose_all(self.membership)
        self.epoch, self.assigned, self.told = 0, [], None


async def share(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Take part in the group until the run is over."""
    cluster = node.topics
    lives = 0
    while not cluster.is_over:
        lives += 1
        member = _new_member(node, client, rng, lives)
        while not cluster.is_over:
            try:
                await _take_part(member)
                break
            except Unanswered:
                member.told = None
                await client.pause()
            except Refused as error:
                await _take_refusal(member, error.code)
        await _leave(member)


def _new_member(node: KafkaNode, client: KafkaClient, rng: random.Random, life: int) -> _Member:
    plan = node.topics.topics_plan.groups
    membership = node.topics.holdings.enter(
        CONSUMER_GROUP,
        Membership(
            f"{node.incarnation}.{life}",
            plan.session_timeout_ms / 1000,
            plan.rebalance_timeout_ms / 1000,
            is_classic=False,
        ),
    )
    commits = MemberCommits(node, client, CONSUMER_GROUP, membership, OFFSET_COMMIT_VERSION)
    member_id = str(uuid.UUID(bytes=rng.randbytes(16), version=4))
    return _Member(node, client, rng, membership, commits, member_id)


async def _take_refusal(member: _Member, code: ErrorCode) -> None:
    cluster = member.node.topics
    cluster.model.note("member", f"{member.membership.name}: {code.name}")
    if code in LOST:
        member.begin_again()
    else:
        if code not in RETRIED:
            cluster.model.report("membership", f"{member.membership.name}: {code.name}")
        member.told = None
        member.client.doubt_coordinator(GROUP, CONSUMER_GROUP)
    await member.client.pause()


async def _take_part(member: _Member) -> None:
    """Continue until the member wants to leave. Raises Unanswered, Refused."""
    cluster, rng = member.node.topics, member.rng
    work, plan = cluster.topics_plan.work, cluster.topics_plan.groups
    beat_s = 0.0
    while not cluster.is_over:
        may_go_on = True
        if member.epoch > 0:
            await member.commits.take_over()
            may_go_on = await member.commits.commit(rng, member.member_id, None, member.epoch)
        has_returned = False
        if member.surplus and cluster.loop.now_s >= member.gives_back_at_s:
            cluster.holdings.give_back(member.membership, member.surplus)
            has_returned = True
        is_due = cluster.loop.now_s - beat_s >= HEARTBEAT_S
        if is_due or has_returned or not may_go_on or not member.epoch:
            beat_s = cluster.loop.now_s
            await _beat(member)
        if rng.random() < plan.leave_share:
            return
        await asyncio.sleep(work.gap_s * rng.random())


async def _beat(member: _Member) -> None:
    cluster, plan = member.node.topics, member.node.topics.topics_plan.groups
    owned = list(member.membership.held)
    request = _request(member, member.epoch, owned)
    sent_s = cluster.loop.now_s
    response, host = await _ask(member, request)
    code = response.error_code
    if code in GONE:
        cluster.holdings.judge_forgotten(CONSUMER_GROUP, member.membership, host, sent_s)
    checked(code)
    member.epoch = member.membership.epoch = response.member_epoch
    member.told = owned
    if response.assignment is not None:
        rows = response.assignment.topic_partitions
        member.topic_id = rows[0].topic_id if rows else member.topic_id
        member.assigned = sorted(partition for row in rows for partition in row.partitions)
        is_slow = member.rng.random() < plan.slow_share
        factor = SLOW_FACTOR * member.rng.random() if is_slow else 0.0
        member.gives_back_at_s = cluster.loop.now_s + factor * member.membership.rebalance_s
        cluster.model.note("given", f"{member.membership.name} {member.epoch} {member.assigned}")
    cluster.holdings.note_answered(
        CONSUMER_GROUP,
        member.membership,
        host,
        sent_s,
        member.assigned,
        is_full=response.assignment is not None,
    )


def _request(member: _Member, epoch: int, owned: Sequence[int]) -> ConsumerGroupHeartbeatRequest:
    cluster, plan = member.node.topics, member.node.topics.topics_plan.groups
    is_full = member.told is None
    rows: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = None
    if is_full or sorted(owned) != sorted(member.told or []):
        row = ConsumerGroupHeartbeatRequest.TopicPartitions(
            topic_id=member.topic_id, partitions=sorted(owned)
        )
        rows = [row] if owned else []
    return ConsumerGroupHeartbeatRequest(
        group_id=CONSUMER_GROUP,
        member_id=member.member_id,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=plan.rebalance_timeout_ms if is_full else -1,
        subscribed_topic_names=[cluster.topics_plan.group_topic.name] if is_full else None,
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=rows,
    )


async def _ask(
    member: _Member, request: ConsumerGroupHeartbeatRequest
) -> tuple[ConsumerGroupHeartbeatResponse, str]:
    client = member.client
    try:
        broker = await client.coordinator_of(GROUP, CONSUMER_GROUP)
        lapsed = client.lapsed_session(broker)
        response = await client.ask(
            broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request, PATIENCE_S
        )
    except Unanswered:
        client.doubt_coordinator(GROUP, CONSUMER_GROUP)
        raise
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    client.judge_lapse(broker, lapsed, response.error_code)
    return response, f"broker-{broker}"


async def _leave(member: _Member) -> None:
    """Release all partitions and leave the group with one request."""
    has_joined = member.epoch > 0
    member.begin_again()
    if has_joined:
        member.told = []
        try:
            await _ask(member, _request(member, LEAVE_EPOCH, []))
        except Unanswered:
            await member.client.pause()
