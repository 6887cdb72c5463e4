"""Groups of consumers: their members, their lag, and new offsets of groups without members.

Invariants: a page asks for the offsets of at most GROUPS_MAX groups, and says how many it left out;
it looks for the times of at most TIMED_MAX partitions.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Final
from urllib.parse import quote

from broker_layer.groups.values import CONSUMER_PROTOCOL_TYPE
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    assigned_partitions,
)
from broker_layer.peer import PeerAddress
from quire.console.topics.access import KeyType, coordinator_of, coordinators_of
from quire.console.topics.records import time_at
from quire.errors import UsageError
from quire.operate.brokers import CHECK_LOGS, BrokerAccess, NoBrokerError, require
from quire.operate.topics import (
    EARLIEST,
    LATEST,
    Found,
    Place,
    leaders_in,
    offsets_at,
    topic_metadata,
)

GROUPS_MAX: Final = 500
ASSIGNED_MAX: Final = 1_000
"""Partitions of one member that a page names."""
DEAD: Final = "Dead"
"""State of a group that has offsets at most."""
EMPTY_STATES: Final = ("Empty", DEAD)
CLASSIC: Final = "classic"


TIMED_MAX: Final = 50
MS_PER_S: Final = 1_000


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition."""

    place: Place
    committed: int
    end: int | None
    """None if the leader does not answer."""
    behind_ms: int | None
    """Time from the last committed record to the newest one; None if it is unknown."""
    note: str

    @property
    def lag(self) -> int | None:
        """Records after the committed offset."""
        return None if self.end is None else max(0, self.end - self.committed)

    @property
    def behind_s(self) -> float | None:
        """The same time in seconds."""
        return None if self.behind_ms is None else self.behind_ms / MS_PER_S


async def lags_of(
    brokers: BrokerAccess, committed: Mapping[Place, tuple[int, str]]
) -> list[PartitionLag]:
    """Return the lag of committed offsets, which have notes beside them. Raises NoBrokerError."""
    if not committed:
        return []
    places = sorted(committed)
    topics = list(dict.fromkeys(place.topic for place in places))
    leaders = leaders_in(await topic_metadata(brokers, topics))
    ends = await offsets_at(brokers, leaders, places, LATEST)
    timed = await asyncio.gather(
        *(
            _behind_ms(brokers, leaders, place, committed[place][0], ends[place].offset)
            for place in places[:TIMED_MAX]
            if place in ends
        )
    )
    behind = dict(zip([place for place in places[:TIMED_MAX] if place in ends], timed, strict=True))
    return [
        PartitionLag(
            place,
            committed[place][0],
            ends[place].offset if place in ends else None,
            behind.get(place),
            committed[place][1],
        )
        for place in places
    ]


async def _behind_ms(
    brokers: BrokerAccess,
    leaders: Mapping[Place, PeerAddress],
    place: Place,
    committed: int,
    end: int,
) -> int | None:
    if committed >= end:
        return 0
    newest = await time_at(brokers, leaders, place, end - 1)
    last = await time_at(brokers, leaders, place, max(0, committed - 1))
    return None if newest is None or last is None else max(0, newest - last)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """What the list shows of one group."""

    group_id: str
    state: str
    kind: str
    protocol: str

    @property
    def path(self) -> str:
        """Path of its page."""
        return group_path(self.group_id)


@dataclass(frozen=True, slots=True)
class GroupList:
    """Groups of the brokers that answered."""

    rows: Sequence[GroupRow]
    silent: Sequence[int]
    """Ids of brokers that did not answer."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: str
    """Its partitions; empty if it does not say."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """What the page of a group shows."""

    group_id: str
    state: str
    kind: str
    members: Sequence[Member]
    lags: Sequence[PartitionLag]
    untimed: int
    """Partitions whose time was not looked for."""

    @property
    def may_reset(self) -> bool:
        """Whether it has no members, so that its offsets may be changed."""
        return not self.members and self.state in EMPTY_STATES

    @property
    def lag(self) -> int:
        """Records after the committed offsets of all partitions whose leaders answer."""
        return sum(lag.lag or 0 for lag in self.lags)


def group_path(group_id: str) -> str:
    """Return the path of a group's page."""
    return f"/groups/{quote(group_id, safe='')}"


async def read_groups(brokers: BrokerAccess) -> GroupList:
    """Return the groups of all brokers that answer, by their ids. Raises NoBrokerError if none
    does.
    """
    answers = await brokers.ask_each(ListGroupsRequest(), ListGroupsResponse)
    rows = [
        GroupRow(group.group_id, group.group_state, group.group_type, group.protocol_type)
        for answer in answers.values()
        if answer is not None
        for group in answer.groups
    ]
    by_id = {row.group_id: row for row in rows}
    silent = [address.broker_id for address, answer in answers.items() if answer is None]
    return GroupList([by_id[id_] for id_ in sorted(by_id)], silent)


async def read_group(brokers: BrokerAccess, group_id: str) -> GroupView | None:
    """Return a group with its lag; None if it does not exist. Raises TopicRefusedError,
    NoBrokerError.
    """
    coordinator = await coordinator_of(brokers, group_id, KeyType.GROUP)
    state, kind, members = await _described(brokers, coordinator, group_id)
    offsets = (await committed_of(brokers, coordinator, [group_id])).get(group_id)
    if offsets is None:
        text = f"the offsets of group {group_id!r} cannot be read now"
        raise NoBrokerError(text, try_next=CHECK_LOGS)
    if state == DEAD and not offsets:
        return None
    lags = await lags_of(brokers, offsets)
    return GroupView(group_id, state, kind, members, lags, max(0, len(lags) - TIMED_MAX))


async def groups_of(brokers: BrokerAccess, topic: str) -> tuple[list[GroupRow], int]:
    """Return the groups that have offsets of a topic, and how many groups were not looked at."""
    rows = (await read_groups(brokers)).rows
    asked = [row.group_id for row in rows[:GROUPS_MAX]]
    coordinators = await coordinators_of(brokers, asked, KeyType.GROUP) if asked else {}
    by_broker: dict[PeerAddress, list[str]] = {}
    for group_id, coordinator in coordinators.items():
        by_broker.setdefault(coordinator, []).append(group_id)
    answers = await asyncio.gather(
        *(committed_of(brokers, broker, ids) for broker, ids in by_broker.items()),
        return_exceptions=True,
    )
    looked_at: dict[str, bool] = {}
    for answer in answers:
        if isinstance(answer, dict):
            for group_id, offsets in answer.items():
                looked_at[group_id] = any(place.topic == topic for place in offsets)
        elif not isinstance(answer, NoBrokerError):
            raise answer
    listed = [row for row in rows if looked_at.get(row.group_id)]
    return listed, len(rows) - len(looked_at)


async def committed_of(
    brokers: BrokerAccess, coordinator: PeerAddress, group_ids: Sequence[str]
) -> dict[str, dict[Place, tuple[int, str]]]:
    """Return the committed offsets of groups, with the notes beside them. Raises NoBrokerError."""
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [kind(group_id=group_id, topics=None) for group_id in group_ids]
    request = OffsetFetchRequest(groups=groups, require_stable=False)
    answer = await brokers.ask_one(coordinator, request, OffsetFetchResponse)
    return {
        group.group_id: {
            Place(topic.name, row.partition_index): (row.committed_offset, row.metadata or "")
            for topic in group.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE and row.committed_offset >= 0
        }
        for group in answer.groups
        if group.error_code == ErrorCode.NONE
    }


async def _described(
    brokers: BrokerAccess, coordinator: PeerAddress, group_id: str
) -> tuple[str, str, list[Member]]:
    newer = await brokers.ask_one(
        coordinator,
        ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
        ConsumerGroupDescribeResponse,
    )
    (group,) = newer.groups
    if group.error_code == ErrorCode.NONE:
        members = [
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _shown(
                    (topic.topic_name, partition)
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                ),
            )
            for member in group.members
        ]
        return group.group_state, "consumer", members
    request = DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False)
    answer = await brokers.ask_one(coordinator, request, DescribeGroupsResponse)
    (classic,) = answer.groups
    require(classic.error_code)
    is_consumers = classic.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _decoded(member.member_assignment) if is_consumers else "",
        )
        for member in classic.members
    ]
    return classic.group_state, CLASSIC, members


def _decoded(assignment: object) -> str:
    assert isinstance(assignment, bytes), "the codec of messages leaves it encoded"
    return _shown(assigned_partitions(assignment) or ())


def _shown(partitions: Iterable[tuple[str, int]]) -> str:
    """Return the text of a member's partitions, at most ASSIGNED_MAX of them."""
    names = [f"{topic}-{partition}" for topic, partition in islice(partitions, ASSIGNED_MAX + 1)]
    if len(names) > ASSIGNED_MAX:
        names[-1] = "and more"
    return ", ".join(names)


CHANGES_MAX: Final = 2_000
OFFSET_MAX: Final = 2**63 - 1


class To(StrEnum):
    """Where a group shall continue."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """New offset of a group in one partition.

    What is committed is what the plan showed, by the numbers in the form.
    """

    place: Place
    before: int
    after: int

    @property
    def field(self) -> str:
        """Name of its field in the form: the partition, then the topic, which has no colon."""
        return f"offset:{self.place.partition}:{self.place.topic}"


def time_of(text: str) -> int:
    """Return a time of UTC in ms since 1970, from `2026-11-27T22:00` or a number of ms. Raises
    UsageError.
    """
    if text.isascii() and text.isdecimal() and len(text) <= len(str(OFFSET_MAX)):
        return min(int(text), OFFSET_MAX)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        example = "2026-11-27T22:00"
        raise UsageError(f"{text[:40]!r} is not a time: write {example}, in UTC") from error
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * MS_PER_S)


async def plan_reset(
    brokers: BrokerAccess, group: GroupView, topic: str, to: To, value: int
) -> list[OffsetChange]:
    """Return the new offsets of a group in the partitions of a topic; in all of them if it has
    offsets in none. An offset outside of a partition's log moves to the log's nearer end. `value`
    is the offset or the time in ms.
    """
    leaders = leaders_in(await topic_metadata(brokers, [topic]))
    before = {lag.place: lag.committed for lag in group.lags if lag.place.topic == topic}
    places = sorted(before or leaders)
    starts = await offsets_at(brokers, leaders, places, EARLIEST)
    ends = await offsets_at(brokers, leaders, places, LATEST)
    positions: Mapping[Place, Found] = {}
    if to is To.TIME:
        positions = await offsets_at(brokers, leaders, places, value)
    changes = []
    for place in places:
        if place in starts and place in ends:
            start, end = starts[place].offset, ends[place].offset
            after = _offset(to, value, start, end, positions.get(place))
            changes.append(OffsetChange(place, before.get(place, -1), after))
    return changes


def changes_in(form: Mapping[str, str]) -> dict[Place, int]:
    """Return the new offsets in the fields of a confirmed plan. Raises UsageError."""
    changes: dict[Place, int] = {}
    for name, text in form.items():
        kind, _, rest = name.partition(":")
        if kind != "offset":
            continue
        partition, _, topic = rest.partition(":")
        if not (_is_number(partition) and _is_number(text) and topic):
            raise UsageError("the plan in the form is damaged: make it again")
        changes[Place(topic, int(partition))] = int(text)
    if not changes or len(changes) > CHANGES_MAX:
        raise UsageError(f"the plan has {len(changes)} offsets: make it again")
    return changes


async def commit_offsets(
    brokers: BrokerAccess, group_id: str, offsets: Mapping[Place, int]
) -> None:
    """Commit offsets of a group without members. Raises TopicRefusedError, NoBrokerError."""
    coordinator = await coordinator_of(brokers, group_id, KeyType.GROUP)
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    rows: dict[str, list[OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition]]
    rows = {}
    for place, offset in offsets.items():
        rows.setdefault(place.topic, []).append(
            kind.OffsetCommitRequestPartition(
                partition_index=place.partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[kind(name=name, partitions=partitions) for name, partitions in rows.items()],
    )
    answer = await brokers.ask_one(coordinator, request, OffsetCommitResponse)
    _require_all([row.error_code for topic in answer.topics for row in topic.partitions])


def _require_all(codes: Sequence[int]) -> None:
    for code in codes:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            require(code, "the group has members: stop them first")
        require(code)


def _offset(to: To, value: int, start: int, end: int, position: Found | None) -> int:
    match to:
        case To.EARLIEST:
            return start
        case To.LATEST:
            return end
        case To.OFFSET:
            return min(max(value, start), end)
        case To.TIME:
            return end if position is None or position.offset < 0 else position.offset


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < len(str(OFFSET_MAX))
