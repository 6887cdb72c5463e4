"""Inputs and outputs of the group state machines.

Leaves deciding to `classic_group` and `consumer_group`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

from broker_layer.kafka.error_codes import ErrorCode

Waiter = NewType("Waiter", int)
"""Number of a parked request; the shell maps it to the request's future."""

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
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicImage:
    """Stored form of a classic group."""

    group_id: str
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    state_changed_ms: int
    """Wall clock at which the group became empty or got its generation."""
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
    """Append the image; call `ClassicGroup.stored` with its generation after it is durable."""

    image: ClassicImage


ClassicAction = AnswerJoin | AnswerSync | StoreGroup
