"""Values of KIP-848 groups: members, their assignments, heartbeats and their outcomes.

Leaves decisions to `consumer_group` and `reconciliation`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from broker_layer.groups.values import NO_MEMBER_ID
from broker_layer.kafka.error_codes import ErrorCode

Partition = tuple[bytes, int]
"""(topic id, partition)."""

Partitions = tuple[Partition, ...]
"""Sorted, without duplicates."""

NO_PARTITIONS: Final[Partitions] = ()
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2


class MemberState(IntEnum):
    """Progress of a member towards its target; the numbers are stored."""

    STABLE = 1
    UNREVOKED = 2
    """It still owns partitions that it must revoke."""
    UNRELEASED = 3
    """It waits for partitions that others must revoke."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """Stored form of a member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression over topic names; empty for none."""
    assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """Partitions that it must still revoke; none of them is in `assigned`."""
    target: Partitions = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class ConsumerGroupImage:
    """Stored form of a group, without its id and its members."""

    epoch: int
    assignment_epoch: int
    topics_digest: bytes
    """Digest of the subscribed topics, their ids and partition counts, when last assigned."""


@dataclass(frozen=True, slots=True)
class MemberStored:
    """A member of a group joined or changed."""

    member: ConsumerMember


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A member of a group was removed."""

    member_id: str


ConsumerChange = ConsumerGroupImage | MemberStored | MemberRemoved


@dataclass(frozen=True, slots=True)
class ConsumerGroupChanged:
    """Changes of a group that belong together: all are stored, or none."""

    group_id: str
    changes: tuple[ConsumerChange, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatRequested:
    """A well-formed ConsumerGroupHeartbeat; None means "unchanged"."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int | None
    topics: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    owned: Partitions | None
    sees: Callable[[str], bool] = lambda _: True
    """Returns whether the member may learn that a topic exists."""

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat has all fields, so that the answer must have the assignment."""
        has_subscription = self.topics is not None or self.pattern is not None
        has_state = self.rebalance_timeout_ms is not None and self.owned is not None
        return self.epoch == JOIN_EPOCH or (has_subscription and has_state)


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The outcome of a heartbeat."""

    error: ErrorCode
    text: str | None = None
    member_id: str = NO_MEMBER_ID
    epoch: int = 0
    assignment: Partitions | None = None
    """Partitions to own; None if they did not change."""


def sorted_partitions(partitions: Iterable[Partition]) -> Partitions:
    """Return partitions sorted and without duplicates."""
    return tuple(sorted(dict.fromkeys(partitions)))


def by_topic(partitions: Partitions) -> Mapping[bytes, list[int]]:
    """Return partitions grouped by topic id."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in partitions:
        topics.setdefault(topic_id, []).append(partition)
    return topics
