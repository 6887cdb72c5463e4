"""Members of a classic group, which join, lead or follow, send heartbeats, commit, and return.

Leaves commits to `member_commits`, and judging assignments to `holding`.

Invariants: a member releases its partitions before it joins again or leaves. It continues unchanged
until an answer changes its state, however long that takes. The leader gives each partition to one
member.
"""

import asyncio
import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.committing import MemberCommits, checked
from tests.simulation.topics.holding import Membership
from tests.simulation.topics.kafka_client import GROUP, KafkaClient, Refused, Unanswered
from tests.simulation.topics.producing import RETRIED
from tests.simulation.topics.topic_plan import CLASSIC_GROUP

if TYPE_CHECKING:
    from broker_layer.kafka.messages import ApiMessage

JOIN_VERSION: Final = 5
SYNC_VERSION: Final = 3
HEARTBEAT_VERSION: Final = 3
LEAVE_VERSION: Final = 3
OFFSET_COMMIT_VERSION: Final = 7
PROTOCOL: Final = "in turn"
HEARTBEAT_S: Final = 0.5
MARGIN_S: Final = 2.0
"""Time after that of a rebalance until a join is abandoned, in seconds."""
SLOW_FACTOR: Final = 1.5
ID_LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
"""Error codes with which a member has lost its id."""
AGAIN: Final = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


@dataclass(slots=True)
class _Member:
    node: KafkaNode
    client: KafkaClient
    rng: random.Random
    membership: Membership
    commits: MemberCommits
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    attempts: int = 0

    async def ask(
        self, api_key: ApiKey, version: int, request: "ApiMessage", patience_s: float
    ) -> "tuple[ApiMessage, str]":
        """Return the coordinator's answer, and its host. Raises Unanswered."""
        try:
            broker = await self.client.coordinator_of(GROUP, CLASSIC_GROUP)
            lapsed = self.client.lapsed_session(broker)
            answer = await self.client.ask(broker, api_key, version, request, patience_s)
        except Unanswered:
            self.client.doubt_coordinator(GROUP, CLASSIC_GROUP)
            raise
        if isinstance(answer, HeartbeatResponse):  # others may take longer than a session
            self.client.judge_lapse(broker, lapsed, answer.error_code)
        return answer, f"broker-{broker}"


async def share_classically(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Take part in the group until the run is over."""
    cluster, plan = node.topics, node.topics.topics_plan.groups
    drawn = random.Random(f"static {node.host} {cluster.topics_plan.seed}").random()
    instance_id = node.host if drawn < plan.static_share else None
    membership = cluster.holdings.enter(
        CLASSIC_GROUP,
        Membership(
            instance_id or node.incarnation,
            plan.session_timeout_ms / 1000,
            plan.rebalance_timeout_ms / 1000,
            is_classic=True,
        ),
    )
    commits = MemberCommits(node, client, CLASSIC_GROUP, membership, OFFSET_COMMIT_VERSION)
    member = _Member(node, client, rng, membership, commits, instance_id)
    while not cluster.is_over:
        try:
            await _take_part(member)
        except Unanswered:
            await client.pause()
        except Refused as error:
            await _take_refusal(member, error.code)
    await _leave(member)


async def _take_refusal(member: _Member, code: ErrorCode) -> None:
    member.node.topics.model.note("member", f"{member.membership.name}: {code.name}")
    if code in RETRIED:
        member.client.doubt_coordinator(GROUP, CLASSIC_GROUP)
    elif code in ID_LOST:
        member.member_id = ""
    elif code not in AGAIN:
        member.node.topics.model.report("membership", f"{member.membership.name}: {code.name}")
    if code not in RETRIED:
        member.node.topics.holdings.lose_all(member.membership)
        member.generation = -1
    await member.client.pause()


async def _take_part(member: _Member) -> None:
    """Join if needed, and continue until an answer refuses it. Raises Unanswered, Refused."""
    cluster, rng = member.node.topics, member.rng
    work, plan = cluster.topics_plan.work, cluster.topics_plan.groups
    if member.generation < 0:
        await _sync(member, await _join(member))
    beat_s = 0.0
    while not cluster.is_over:
        await asyncio.sleep(work.gap_s * rng.random())
        await member.commits.take_over()
        may_go_on = await member.commits.commit(
            rng, member.member_id, member.instance_id, member.generation
        )
        if not may_go_on or cluster.loop.now_s - beat_s >= HEARTBEAT_S:
            beat_s = cluster.loop.now_s
            await _beat(member)
        if rng.random() < plan.leave_share:
            await _leave(member)
            return


async def _beat(member: _Member) -> None:
    cluster, plan = member.node.topics, member.node.topics.topics_plan.groups
    request = HeartbeatRequest(
        group_id=CLASSIC_GROUP,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
    )
    sent_s = cluster.loop.now_s
    response, host = await member.ask(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, request, MARGIN_S)
    assert isinstance(response, HeartbeatResponse)
    is_asked_back = response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    if is_asked_back and member.rng.random() < plan.slow_share:
        factor = SLOW_FACTOR * member.rng.random()
        await asyncio.sleep(factor * member.membership.rebalance_s)
    checked(response.error_code)
    held = list(member.membership.held)
    cluster.holdings.note_answered(
        CLASSIC_GROUP, member.membership, host, sent_s, held, is_full=False
    )


async def _join(member: _Member) -> JoinGroupResponse:
    cluster, plan = member.node.topics, member.node.topics.topics_plan.groups
    cluster.holdings.give_back(member.membership, list(member.membership.held))
    name = cluster.topics_plan.group_topic.name.encode()
    subscription = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)
    while True:
        request = JoinGroupRequest(
            group_id=CLASSIC_GROUP,
            session_timeout_ms=plan.session_timeout_ms,
            rebalance_timeout_ms=plan.rebalance_timeout_ms,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription)
            ],
        )
        patience_s = plan.rebalance_timeout_ms / 1000 + MARGIN_S
        response, _ = await member.ask(ApiKey.JOIN_GROUP, JOIN_VERSION, request, patience_s)
        assert isinstance(response, JoinGroupResponse)
        if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            checked(response.error_code)
            member.member_id = response.member_id
            return response
        member.member_id = response.member_id


async def _sync(member: _Member, joined: JoinGroupResponse) -> None:
    cluster, membership = member.node.topics, member.membership
    before = cluster.holdings.group(CLASSIC_GROUP).generation
    request = SyncGroupRequest(
        group_id=CLASSIC_GROUP,
        generation_id=joined.generation_id,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        assignments=_assignments(member, joined),
    )
    sent_s = cluster.loop.now_s
    patience_s = membership.rebalance_s + MARGIN_S
    response, host = await member.ask(ApiKey.SYNC_GROUP, SYNC_VERSION, request, patience_s)
    assert isinstance(response, SyncGroupResponse)
    checked(response.error_code)
    member.generation = membership.epoch = joined.generation_id
    tag, _, parts = bytes(response.assignment).decode().partition("|")
    assigned = [int(part) for part in parts.split(",") if part]
    cluster.model.note("synced", f"{membership.name} {member.generation} {tag} {assigned}")
    if tag:
        cluster.holdings.note_synced(CLASSIC_GROUP, membership, before, tag, assigned)
    cluster.holdings.note_answered(CLASSIC_GROUP, membership, host, sent_s, assigned)


def _assignments(
    member: _Member, joined: JoinGroupResponse
) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
    """Assign the partitions if this member leads."""
    if joined.leader != member.member_id or not joined.members:
        return []
    member.attempts += 1
    ids = [response_member.member_id for response_member in joined.members]
    member.rng.shuffle(ids)
    count = member.node.topics.topics_plan.group_topic.partitions
    tag = f"{member.membership.name}.{member.node.starts}.{member.attempts}"
    given = {each: [n for n in range(count) if ids[n % len(ids)] == each] for each in ids}
    return [
        SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=each, assignment=f"{tag}|{','.join(map(str, parts))}".encode()
        )
        for each, parts in given.items()
    ]


async def _leave(member: _Member) -> None:
    """Release all partitions and leave the group with one request."""
    member.node.topics.holdings.lose_all(member.membership)
    kind = LeaveGroupRequest.MemberIdentity
    row = kind(member_id=member.member_id, group_instance_id=member.instance_id)
    request = LeaveGroupRequest(group_id=CLASSIC_GROUP, members=[row])
    member.generation = -1
    if member.member_id:
        member.member_id = ""
        try:
            await member.ask(ApiKey.LEAVE_GROUP, LEAVE_VERSION, request, MARGIN_S)
        except Unanswered:
            await member.client.pause()
