"""Settings of groups, what groups need to know of topics, and what state machines take and give.

Leaves deciding to `classic_group` and `consumer_group`. What `records` stores says in the types
of its fields how it is stored.

Source: Kafka's broker configs group.*, group.consumer.* and offsets.*.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Annotated, Final, NewType, Protocol

from broker_layer.coordinator_partitions import INT, Int, by_topic, many, one_of, pair
from broker_layer.kafka.error_codes import ErrorCode
from metadata.records import BYTES, TEXT, row_of


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """Settings of all groups of a broker. All times are in milliseconds."""

    group_session_timeout_min_ms: int = 6_000
    group_session_timeout_max_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    """Time that a first rebalance waits for more members."""
    new_member_join_timeout_ms: int = 300_000
    """Time after which a member is removed if its first JoinGroup is still parked."""
    group_size_max: int = 2_147_483_647
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_group_size_max: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Offered server-side assignors; the first is the default."""


class GroupTopics(Protocol):
    """Names, ids and partition counts of the topics that exist now."""

    @property
    def is_complete(self) -> bool:
        """Whether all topics were read. Before that, a topic that is not shown may exist."""

    def topic_id_of(self, name: str) -> bytes | None:
        """Return the 16 bytes of a topic's id; None if there is no such topic."""

    def topic_name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None when no topic has this id."""

    def partition_count(self, name: str) -> int:
        """Return the number of a topic's partitions; 0 if there is no such topic."""

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics, for regular expressions."""

    def on_topics_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after topics were created, removed or changed; return what cancels that."""


Waiter = NewType("Waiter", int)
"""Number of a parked request; the shell maps it to the request's future."""


Protocols = Annotated[tuple[tuple[str, bytes], ...], many(pair(TEXT, BYTES))]
"""A member's protocols in order of preference, each with the metadata it sent for it."""


NO_GENERATION: Final = -1
NO_MEMBER_ID: Final = ""
CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(StrEnum):
    """The states of a classic group, by the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Moment:
    """Time of an event: the loop's clock for timeouts, the wall clock for stored times."""

    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class JoinRequested:
    """A JoinGroup that passed the checks that need no group."""

    waiter: Waiter
    member_id: str
    new_member_id: str
    """The unique id to assign if `member_id` is empty."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    is_id_required: bool
    """Whether the client must join again with the assigned id (version 4 and later)."""
    can_skip_assignment: bool
    """Whether the client understands `JoinResult.skip_assignment` (version 9 and later)."""


@dataclass(frozen=True, slots=True)
class SyncRequested:
    """A SyncGroup of one member."""

    waiter: Waiter
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The outcome of a JoinGroup."""

    error: ErrorCode
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The outcome of a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class MemberImage:
    """Stored form of a classic member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: Int
    rebalance_timeout_ms: Int
    protocols: Protocols
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicImage:
    """Stored form of a classic group."""

    group_id: str
    generation: Int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    state_changed_ms: Int
    """Wall clock at which the group became empty or got its generation."""
    members: Annotated[tuple[MemberImage, ...], many(row_of(MemberImage))]


@dataclass(frozen=True, slots=True)
class AnswerJoin:
    """Answer a parked JoinGroup."""

    waiter: Waiter
    result: JoinResult


@dataclass(frozen=True, slots=True)
class AnswerSync:
    """Answer a parked SyncGroup."""

    waiter: Waiter
    result: SyncResult


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Append the image; call `ClassicGroup.stored` with its generation after it is durable."""

    image: ClassicImage


ClassicAction = AnswerJoin | AnswerSync | StoreGroup


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Return the subscribed topics; None for bytes in another format."""
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or not 0 <= count <= len(metadata) // 2:
            return None
        position, topics = 6, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(topics)


Partition = tuple[bytes, int]
"""(topic id, partition)."""


Partitions = Annotated[tuple[Partition, ...], by_topic(BYTES, INT, lambda *pair: pair)]
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
    rebalance_timeout_ms: Int = 0
    topics: Annotated[tuple[str, ...], many(TEXT)] = ()
    pattern: str = ""
    """A regular expression over topic names; empty for none."""
    assignor: str | None = None
    epoch: Int = JOIN_EPOCH
    previous_epoch: Int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """Partitions that it must still revoke; none of them is in `assigned`."""
    target: Partitions = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class ConsumerGroupImage:
    """Stored form of a group, without its id and its members."""

    epoch: Int
    assignment_epoch: Int
    topics_digest: bytes
    """Digest of the subscribed topics, their ids and partition counts, when last assigned."""
    emptied_ms: Int
    """When its last member was removed, by the wall clock; 0 before that."""


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A member of a group was removed."""

    member_id: str


ConsumerChange = ConsumerGroupImage | ConsumerMember | MemberRemoved
"""The state of a group, of a member that joined or changed, or a removal."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupChanged:
    """Changes of a group that belong together: all are stored, or none."""

    group_id: str
    changes: Annotated[
        tuple[ConsumerChange, ...],
        many(one_of({1: ConsumerGroupImage, 2: ConsumerMember, 3: MemberRemoved})),
    ]


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
