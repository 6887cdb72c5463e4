"""Differential cases: groups of the newer protocol (KIP-848)."""

import asyncio
from collections.abc import Mapping
from typing import Final

from tests.differential.answers import at, number
from tests.differential.group_cases import (
    COMMIT,
    DELETE,
    JOIN,
    OFFSETS,
    commit_values,
    join_alone,
    join_values,
)
from tests.differential.run import Run
from tests.differential.wire import Tree

BEAT: Final = ("ConsumerGroupHeartbeat", 68)
DESCRIBE: Final = ("ConsumerGroupDescribe", 69)
MEMBER: Final = "bWVtYmVyLW9uZS0xMjM0NQ"
OTHER: Final = "bWVtYmVyLXR3by0xMjM0NQ"
ROUNDS: Final = 200


async def heartbeats(run: Run) -> None:
    """Join, get an assignment, and send wrong epochs."""
    group, topic = run.name("newer"), await run.topic("newer-topic", partitions=4)

    def values(epoch: int, member: str = MEMBER, **fields: Tree) -> Mapping[str, Tree]:
        given: dict[str, Tree] = {"group_id": group, "member_id": member, "member_epoch": epoch}
        if epoch == 0:
            given |= {
                "rebalance_timeout_ms": 10000,
                "subscribed_topic_names": [topic],
                "topic_partitions": [],
            }
        return {**given, **fields}

    async def beat(name: str, asked: Mapping[str, Tree], version: int = 1) -> Tree:
        answer = await run.ask(f"newer/{name}", BEAT, version, asked)
        run.answers[f"newer/{name}, partitions"] = assigned(answer)
        return answer

    await beat("empty group id", values(0, group_id=""))
    await beat("empty member id", values(0, ""))
    await beat("no subscription", values(0, subscribed_topic_names=None))
    await beat("no rebalance timeout", values(0, rebalance_timeout_ms=-1))
    await beat("partitions when joining", values(0, topic_partitions=None))
    await beat("unknown assignor", values(0, server_assignor="mine"))
    await beat("negative epoch", values(-5))
    await beat("empty instance id", values(0, instance_id=""))
    await beat("unknown group", values(3))
    joined = await beat("join", values(0, server_assignor="uniform"))
    epoch = number(joined, "member_epoch")
    await beat("stays", values(epoch))
    await beat("epoch ahead", values(epoch + 5))
    await beat("unknown member", values(epoch, OTHER))
    await beat("joins again", values(0))
    await described(run, "newer/described", group)
    await commits(run, group, topic, epoch)
    await run.ask("newer/classic join", JOIN, 5, join_values(group))
    await run.ask("newer/delete a full one", DELETE, 1, {"groups_names": [group]})
    await beat("second joins", values(0, OTHER))
    await share(run, group, topic)
    await beat("leaves", values(-1))
    await beat("after it left", values(epoch))
    await beat("second leaves", values(-1, OTHER))
    await described(run, "newer/described when empty", group)
    await run.ask("newer/delete", DELETE, 1, {"groups_names": [group]})
    await described(run, "newer/described when deleted", group)
    for version in (0, 1):
        await beat(f"version {version}", values(0, group_id=run.name(f"nv-{version}")), version)


def assigned(answer: Tree) -> int:
    """Return how many partitions an answer assigns; -1 if it has no assignment."""
    topics = at(answer, "assignment", "topic_partitions")
    if not isinstance(topics, list):
        return -1
    return sum(len(topic["partitions"]) for topic in topics)


async def described(run: Run, name: str, group: str) -> None:
    """Record what ConsumerGroupDescribe reports of a group, without details of its members."""
    without = ["members"]
    await run.ask(name, DESCRIBE, 0, {"group_ids": [group]}, without=without)


async def commits(run: Run, group: str, topic: str, epoch: int) -> None:
    """Commit and fetch offsets as a member, with its epoch."""
    for name, member, at_epoch in (
        ("right", MEMBER, epoch),
        ("older epoch", MEMBER, epoch - 1),
        ("newer epoch", MEMBER, epoch + 1),
        ("unknown member", OTHER, epoch),
        ("no member", "", -1),
    ):
        values = commit_values(group, topic, 3, generation=at_epoch, member=member)
        await run.ask(f"newer/commit, {name}", COMMIT, 9, values)
        asked: Tree = [
            {
                "group_id": group,
                "member_id": member or None,
                "member_epoch": at_epoch,
                "topics": [{"name": topic, "partition_indexes": [0]}],
            }
        ]
        await run.ask(f"newer/offsets, {name}", OFFSETS, 9, {"groups": asked})


async def share(run: Run, group: str, topic: str) -> None:
    """Let two members release and take partitions until each has its share; record the counts."""
    identity = await run.topic_id(topic)
    owned: dict[str, list[int]] = {MEMBER: [0, 1, 2, 3], OTHER: []}
    epochs = {MEMBER: 0, OTHER: 0}
    for _ in range(ROUNDS):
        for member, parts in owned.items():
            held: Tree = [{"topic_id": identity, "partitions": parts}] if parts else []
            values: Mapping[str, Tree] = {
                "group_id": group,
                "member_id": member,
                "member_epoch": epochs[member],
                "rebalance_timeout_ms": 10000,
                "subscribed_topic_names": [topic],
                "topic_partitions": held if epochs[member] else [],
            }
            answer = await run.quietly(BEAT, 0, values)
            epochs[member] = number(answer, "member_epoch")
            topics = at(answer, "assignment", "topic_partitions")
            if isinstance(topics, list):
                owned[member] = [part for each in topics for part in each["partitions"]]
        if sorted(len(parts) for parts in owned.values()) == [2, 2]:
            break
        await asyncio.sleep(0.05)
    run.answers["newer/shared by two"] = [*sorted(len(parts) for parts in owned.values())]
    together = sorted(part for parts in owned.values() for part in parts)
    run.answers["newer/all are assigned once"] = together == [0, 1, 2, 3]


async def across_protocols(run: Run) -> None:
    """Join a group of the classic protocol as a newer member."""
    group, topic = run.name("classic"), await run.topic("classic-topic")
    await join_alone(run, group)
    values: Mapping[str, Tree] = {
        "group_id": group,
        "member_id": MEMBER,
        "member_epoch": 5,
        "topic_partitions": [],
    }
    await run.ask("newer/heartbeat to a classic group", BEAT, 0, values)
    await described(run, "newer/describe a classic group", group)
    await described(run, "newer/describe an unknown group", run.name("absent"))
    await described(run, "newer/describe, empty id", "")
    assert topic


CASES: Final = (heartbeats, across_protocols)
