"""New offsets of a group without members: the plan, and its commit.

Leaves the group's state to `group_reading`, and the refusal of a group with members to its
coordinator.

Invariant: what is committed is what the plan showed, by the numbers in the form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import OffsetCommitRequest, OffsetCommitResponse
from quire.console.topics.access import KeyType, coordinator_of
from quire.console.topics.group_reading import GroupView
from quire.errors import UsageError
from quire.operate.brokers import BrokerAccess, require
from quire.operate.topics import (
    EARLIEST,
    LATEST,
    Found,
    Place,
    leaders_in,
    offsets_at,
    topic_metadata,
)

MS_PER_S: Final = 1_000
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
    """New offset of a group in one partition."""

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
    before = {each.place: each.committed for each in group.lags if each.place.topic == topic}
    places = sorted(before or leaders)
    starts = await offsets_at(brokers, leaders, places, EARLIEST)
    ends = await offsets_at(brokers, leaders, places, LATEST)
    found: Mapping[Place, Found] = {}
    if to is To.TIME:
        found = await offsets_at(brokers, leaders, places, value)
    changes = []
    for place in places:
        if place in starts and place in ends:
            start, end = starts[place].offset, ends[place].offset
            after = _offset(to, value, start, end, found.get(place))
            changes.append(OffsetChange(place, before.get(place, -1), after))
    return changes


def changes_in(form: Mapping[str, str]) -> dict[Place, int]:
    """Return the new offsets in the fields of a confirmed plan. Raises UsageError."""
    found: dict[Place, int] = {}
    for name, text in form.items():
        kind, _, rest = name.partition(":")
        if kind != "offset":
            continue
        partition, _, topic = rest.partition(":")
        if not (_is_number(partition) and _is_number(text) and topic):
            raise UsageError("the plan in the form is damaged: make it again")
        found[Place(topic, int(partition))] = int(text)
    if not found or len(found) > CHANGES_MAX:
        raise UsageError(f"the plan has {len(found)} offsets: make it again")
    return found


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
    _require_all([each.error_code for topic in answer.topics for each in topic.partitions])


def _require_all(codes: Sequence[int]) -> None:
    for code in codes:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            require(code, "the group has members: stop them first")
        require(code)


def _offset(to: To, value: int, start: int, end: int, found: Found | None) -> int:
    match to:
        case To.EARLIEST:
            return start
        case To.LATEST:
            return end
        case To.OFFSET:
            return min(max(value, start), end)
        case To.TIME:
            return end if found is None or found.offset < 0 else found.offset


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < len(str(OFFSET_MAX))
