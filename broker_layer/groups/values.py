"""The plain values that group state machines take and give.

Leaves deciding to `classic_group` and `consumer_group`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

from broker_layer.kafka.error_codes import ErrorCode

Waiter = NewType("Waiter", int)
"""A parked request; the shell knows whose answer it is."""

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols in order of preference, each with the metadata it sent for it."""

NO_GENERATION: Final = -1
NO_MEMBER_ID: Final = ""


class GroupState(StrEnum):
    """The states of a classic group, by the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Moment:
    """When an event happens: the loop's clock for time-outs, the wall's for what is stored."""

    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class JoinRequested:
    """A JoinGroup that passed the checks which need no group."""

    waiter: Waiter
    member_id: str
    new_member_id: str
    """The id to give when `member_id` is empty; unique."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    is_id_required: bool
    """Whether the client comes again with the id it was given (version 4 and later)."""
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
    """What the leader learns of a member."""

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
    """A classic member as it is stored."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicImage:
    """A classic group as it is stored."""

    group_id: str
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    state_changed_ms: int
    """Wall clock: when it became empty, or got its generation."""
    members: tuple[MemberImage, ...]


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
    """Append the image; tell `ClassicGroup.stored` with its generation once that is durable."""

    image: ClassicImage


ClassicAction = AnswerJoin | AnswerSync | StoreGroup
