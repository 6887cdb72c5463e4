"""Requests about consumer groups, for users with different rights."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.differential.consumer_group_cases import BEAT, MEMBER
from tests.differential.consumer_group_cases import DESCRIBE as DESCRIBE_NEWER
from tests.differential.group_cases import (
    COMMIT,
    DELETE,
    DESCRIBE,
    FIND,
    FORGET,
    GROUP,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    OFFSETS,
    SYNC,
    beat_values,
    commit_values,
    join_values,
    offsets_values,
    sync_values,
)
from tests.differential.security.calls import SHARED_GROUP, Call, Cell
from tests.differential.wire import Tree

NOT_A_MEMBER: Final = "not-a-member"
ABSENT_TOPIC: Final = "absent-topic"


def _beat(group: str, *topics: str) -> Mapping[str, Tree]:
    return {
        "group_id": group,
        "member_id": MEMBER,
        "member_epoch": 0,
        "rebalance_timeout_ms": 10000,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
    }


def _pattern_beat(group: str, pattern: str) -> Mapping[str, Tree]:
    return {
        **_beat(group),
        "subscribed_topic_names": None,
        "subscribed_topic_regex": pattern,
    }


def _two(values: Mapping[str, Tree], other: Mapping[str, Tree]) -> Mapping[str, Tree]:
    first, second = values["topics"], other["topics"]
    assert isinstance(first, Sequence)
    assert isinstance(second, Sequence)
    return {**values, "topics": [*first, *second]}


def _offsets_of_groups(*groups: str, topics: Tree = None) -> Mapping[str, Tree]:
    rows: Tree = [{"group_id": group, "topics": topics} for group in groups]
    return {"groups": rows, "require_stable": False}


def _forgotten(group: str, *topics: str) -> Mapping[str, Tree]:
    rows: Tree = [{"name": topic, "partitions": [{"partition_index": 0}]} for topic in topics]
    return {"group_id": group, "topics": rows}


def _named(cell: Cell) -> Tree:
    return [{"name": cell.topic, "partition_indexes": [0]}]


GROUP_CALLS: Final = (
    Call("find a group", FIND, 3, lambda c: {"key": c.group, "key_type": GROUP}),
    Call("find groups", FIND, 4, lambda c: {"key_type": GROUP, "coordinator_keys": [c.group]}),
    Call("join", JOIN, 5, lambda c: join_values(c.own("joined"))),
    Call("sync", SYNC, 5, lambda c: sync_values(c.group, 1, NOT_A_MEMBER)),
    Call("heartbeat", HEARTBEAT, 4, lambda c: beat_values(c.group, 1, NOT_A_MEMBER)),
    Call(
        "leave",
        LEAVE,
        4,
        lambda c: {"group_id": c.group, "members": [{"member_id": NOT_A_MEMBER}]},
    ),
    Call("describe groups", DESCRIBE, 5, lambda c: {"groups": [c.group]}),
    Call(
        "describe groups with operations",
        DESCRIBE,
        5,
        lambda c: {"groups": [c.group], "include_authorized_operations": True},
    ),
    Call("list groups", LIST, 4, lambda _: {"states_filter": []}, listed=("groups", "group_id")),
    Call("commit", COMMIT, 8, lambda c: commit_values(c.own("committed"), c.topic, 1)),
    Call("commit, absent", COMMIT, 8, lambda c: commit_values(c.own("a"), c.own(ABSENT_TOPIC), 1)),
    Call(
        "commit of two",
        COMMIT,
        8,
        lambda c: _two(
            commit_values(c.own("b"), c.topic, 1),
            commit_values(c.own("b"), c.own(ABSENT_TOPIC), 1),
        ),
    ),
    Call("committed offsets", OFFSETS, 7, lambda c: offsets_values(c.group, c.topic)),
    Call(
        "committed offsets, absent",
        OFFSETS,
        7,
        lambda c: offsets_values(c.group, c.own(ABSENT_TOPIC)),
    ),
    Call("committed offsets, all", OFFSETS, 7, lambda c: {"group_id": c.group, "topics": None}),
    Call("committed offsets of groups, all", OFFSETS, 8, lambda c: _offsets_of_groups(c.group)),
    Call(
        "committed offsets of groups",
        OFFSETS,
        8,
        lambda c: _offsets_of_groups(c.group, c.own("absent-group"), topics=_named(c)),
    ),
    Call(
        "forget offsets",
        FORGET,
        0,
        lambda c: _forgotten(c.own(SHARED_GROUP), c.own(ABSENT_TOPIC)),
    ),
    Call("forget shared", FORGET, 0, lambda c: _forgotten(c.own(SHARED_GROUP), c.topic)),
    Call("delete groups", DELETE, 2, lambda c: {"groups_names": [c.own(SHARED_GROUP)]}),
    Call("delete groups, absent", DELETE, 2, lambda c: {"groups_names": [c.own("no-group")]}),
    Call("newer heartbeat", BEAT, 1, lambda c: _beat(c.own("newer"), c.topic)),
    Call("newer heartbeat, no topics", BEAT, 1, lambda c: _beat(c.own("newer-empty"))),
    Call(
        "newer heartbeat, absent topic",
        BEAT,
        1,
        lambda c: _beat(c.own("newer-absent"), c.topic, c.own(ABSENT_TOPIC)),
    ),
    Call(
        "newer heartbeat, pattern",
        BEAT,
        1,
        lambda c: _pattern_beat(c.own("newer-pattern"), f"{c.topic}"),
    ),
    Call("describe newer", DESCRIBE_NEWER, 1, lambda c: {"group_ids": [c.own("newer")]}),
    Call(
        "describe newer with operations",
        DESCRIBE_NEWER,
        1,
        lambda c: {"group_ids": [c.own("newer")], "include_authorized_operations": True},
    ),
)
