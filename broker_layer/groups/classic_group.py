"""State machine of one classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and timeouts.

Leaves offsets to `offset_table`, and appending and answering to the shell, which performs the
returned actions in order.

Invariants: each parked request is answered exactly once; a member whose request is answered gets a
new session. A generation never decreases; a group is STABLE only after its generation was stored; a
member that is not the leader and has not changed rejoins without a rebalance; the metadata of all
members fits in a record.

Source: Kafka's group protocol; KIP-134, KIP-345, KIP-394, KIP-447, KIP-559, KIP-814.
"""

from dataclasses import dataclass, replace
from typing import Final

from broker_layer.coordinator_partitions import RECORD_BYTES_MAX
from broker_layer.groups.values import (
    CONSUMER_PROTOCOL_TYPE,
    NO_MEMBER_ID,
    AnswerJoin,
    AnswerSync,
    ClassicAction,
    ClassicImage,
    GroupsConfig,
    GroupState,
    JoinedMember,
    JoinRequested,
    JoinResult,
    MemberImage,
    Moment,
    Protocols,
    StoreGroup,
    SyncRequested,
    SyncResult,
    Waiter,
    subscribed_topics,
)
from broker_layer.kafka.error_codes import ErrorCode

NEVER_MS: Final = 2**63
ABSENT_WAIT_MS_MIN: Final = 1_000
"""Minimum time between looks at a group whose members are all static and have not rejoined: a
member may have any rebalance timeout, even 0."""
PENDING_IDS_MAX: Final = 2_000
"""Maximum number of ids of one group that clients got and did not use yet. The oldest one is
dropped first: clients use an id at once, and one whose id is unknown gets another."""


@dataclass(slots=True)
class ClassicMember:
    """One member and its parked requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None
    is_new: bool = False
    """Whether its first JoinGroup is still parked: it cannot send heartbeats yet."""
    expires_ms: int = NEVER_MS

    @property
    def is_waiting(self) -> bool:
        """Whether one of its requests is parked, which is a sign of life."""
        return self.join_waiter is not None or self.sync_waiter is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for a protocol; empty for one that it does not support."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def image(self) -> MemberImage:
        """Return the stored form of the member."""
        return MemberImage(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            self.assignment,
        )


class Roster:
    """All members of a group in the order in which they joined.

    There is a leader if and only if there are members, and it is one of them; a static instance id
    names one member; a pending id is not a member.
    """

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.leader_id: str | None = None
        self.pending: dict[str, int] = {}
        """Ids that were assigned but not used yet -> when they expire."""
        self._static: dict[str, str] = {}

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one becomes the leader."""
        assert member.member_id not in self.members, "ids are unique"
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> ClassicMember:
        """Remove a member; if it was the leader, the oldest remaining one becomes the leader."""
        member = self.members.pop(member_id)
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static(self, instance_id: str, new_id: str) -> tuple[ClassicMember, ClassicMember]:
        """Give a static member a new id, in its old place and role; return (old, new)."""
        old_id = self._static[instance_id]
        old = self.members[old_id]
        new = replace(old, member_id=new_id, join_waiter=None, sync_waiter=None)
        self.members = {
            new.member_id if key == old_id else key: new if key == old_id else member
            for key, member in self.members.items()
        }
        self._static[instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return old, new

    def static_id(self, instance_id: str) -> str | None:
        """Return the member id of a static instance."""
        return self._static.get(instance_id)

    def refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of a request that does not come from a member; NONE if it does."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def joining_count(self) -> int:
        """Return the number of members with a parked JoinGroup."""
        return sum(member.join_waiter is not None for member in self.members.values())

    def has_all_joined(self) -> bool:
        """Whether all members have joined and no assigned id is still unused."""
        return not self.pending and self.joining_count() == len(self.members)

    def not_rejoined(self) -> list[ClassicMember]:
        """Return the members without a parked JoinGroup."""
        return [member for member in self.members.values() if member.join_waiter is None]

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader; return False if none has joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_waiter is not None:
            return True
        joined = [member for member in self.members.values() if member.join_waiter is not None]
        if not joined:
            return False
        self.leader_id = joined[0].member_id
        return True

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def common_protocols(self) -> list[str]:
        """Return the protocols that all members support, in the order of the first member."""
        first, *others = list(self.members.values())
        names = [{name for name, _ in member.protocols} for member in others]
        return [name for name, _ in first.protocols if all(name in offered for offered in names)]

    def select_protocol(self) -> str:
        """Return the protocol with the most votes: each member's first among the common ones."""
        common = self.common_protocols()
        assert common, "a member without a common protocol is refused"
        votes = dict.fromkeys(common, 0)
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in votes)
            votes[vote] += 1
        return max(common, key=lambda name: votes[name])

    def joined_members(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """Return the list of members for the leader."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self.members.values()
        )

    def images(self) -> tuple[MemberImage, ...]:
        """Return the stored form of all members."""
        return tuple(member.image() for member in self.members.values())


@dataclass(slots=True)
class PhaseDeadlines:
    """Deadlines at which phases end; NEVER_MS for none."""

    join_ms: int = NEVER_MS
    sync_ms: int = NEVER_MS
    is_initial: bool = False
    """Whether the parked joins belong to a first rebalance, which waits for more members."""
    initial_remaining_ms: int = 0
    member_was_added: bool = False
    """Whether a first rebalance got another member during its latest delay."""


class ClassicGroup:
    """The state machine of one group."""

    def __init__(self, group_id: str, config: GroupsConfig) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.state_changed_ms = 0
        self.roster = Roster()
        self._config = config
        self._deadlines = PhaseDeadlines()
        self._unsynced: dict[str, None] = {}
        """Members that have not synced yet; used only while there is a `sync_ms`."""
        self._storing: dict[str, bytes] | None = None
        """The leader's assignment while it is being stored."""
        self._actions: list[ClassicAction] = []

    @classmethod
    def from_image(cls, image: ClassicImage, config: GroupsConfig, now_ms: int) -> "ClassicGroup":
        """Return a group from its stored form; each member's session begins now."""
        group = cls(image.group_id, config)
        group.generation = image.generation
        group.protocol_type = image.protocol_type
        group.protocol_name = image.protocol_name
        group.state_changed_ms = image.state_changed_ms
        for member in image.members:
            group.roster.add(_member_of(member, now_ms))
        if image.members:
            group.state = GroupState.STABLE
            group.roster.leader_id = image.leader
        return group

    def join(self, event: JoinRequested, moment: Moment) -> list[ClassicAction]:
        """Handle a JoinGroup: answer it, or park it until the rebalance completes."""
        if not self._has_room_for(event.member_id) or not self._fits(event):
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        elif not self._supports(event):
            self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif event.member_id == NO_MEMBER_ID:
            self._join_new(event, moment)
        elif event.member_id in self.roster.pending and event.instance_id is None:
            self._add(event, event.member_id, moment)
        else:
            self._join_known(event, moment)
        return self._take()

    def sync(self, event: SyncRequested, moment: Moment) -> list[ClassicAction]:
        """Handle a SyncGroup: answer it, or park it until the leader's assignment is stored."""
        refusal = self._sync_refusal(event)
        if refusal is not ErrorCode.NONE:
            self._actions.append(AnswerSync(event.waiter, SyncResult(refusal)))
            return self._take()
        member = self.roster.members[event.member_id]
        self._note_synced(event.member_id)
        if self.state is GroupState.STABLE:
            self._touch(member, moment)
            self._actions.append(AnswerSync(event.waiter, self._assignment_of(member)))
            return self._take()
        self._answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_waiter = event.waiter
        if member.member_id == self.roster.leader_id and self._storing is None:
            given = dict(event.assignments)
            self._storing = {id_: given.get(id_, b"") for id_ in self.roster.members}
            self._actions.append(StoreGroup(self._image(self._storing)))
        return self._take()

    def stored(self, generation: int, moment: Moment) -> list[ClassicAction]:
        """Handle the durability of an image: an assignment of this generation takes effect."""
        if self._storing is None or generation != self.generation:
            return []
        for member in self.roster.members.values():
            member.assignment = self._storing.get(member.member_id, b"")
            if member.sync_waiter is not None:
                self._touch(member, moment)
                self._answer_sync(member, self._assignment_of(member))
        self._storing = None
        self.state = GroupState.STABLE
        return self._take()

    def store_failed(
        self, generation: int, error: ErrorCode, moment: Moment
    ) -> list[ClassicAction]:
        """Handle a failed append of an image: drop its assignment and start a rebalance."""
        if self._storing is not None and generation == self.generation:
            self._refuse_syncs(error, moment)
            self._prepare_rebalance(moment)
        return self._take()

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, moment: Moment
    ) -> ErrorCode:
        """Handle a heartbeat; return the error code of its answer."""
        refusal = self.roster.refusal(member_id, instance_id)
        if refusal is not ErrorCode.NONE:
            return refusal
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._touch(self.roster.members[member_id], moment)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, leaving: list[tuple[str, str | None]], moment: Moment
    ) -> tuple[list[ErrorCode], list[ClassicAction]]:
        """Remove members, given as (member id, instance id); return one outcome for each."""
        outcomes = [self._leave_one(member_id, instance) for member_id, instance in leaving]
        if any(outcome is ErrorCode.NONE for outcome in outcomes):
            self._continue_after_loss(moment)
        return outcomes, self._take()

    def on_time(self, moment: Moment) -> list[ClassicAction]:
        """Carry out what is due."""
        self._expire_members(moment)
        if self._deadlines.sync_ms <= moment.now_ms:
            for member_id in list(self._unsynced):
                self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            self._continue_after_loss(moment)
        if self._deadlines.join_ms <= moment.now_ms:
            self._end_join_phase(moment)
        return self._take()

    def next_deadline_ms(self) -> int:
        """Return the latest time for the next `on_time`; heartbeats only defer it."""
        members = (member.expires_ms for member in self.roster.members.values())
        pending = self.roster.pending.values()
        phase = min(self._deadlines.join_ms, self._deadlines.sync_ms)
        return min(phase, min(members, default=NEVER_MS), min(pending, default=NEVER_MS))

    def commit_refusal(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool
    ) -> ErrorCode:
        """Return why offsets may not be committed; NONE if they may (KIP-447 for transactions)."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id != NO_MEMBER_ID or instance_id is not None:
            refusal = self.roster.refusal(member_id, instance_id)
            if refusal is not ErrorCode.NONE:
                return refusal
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def touch(self, member_id: str, moment: Moment) -> None:
        """Treat an offset commit as a sign of life, as Kafka does outside the sync phase."""
        member = self.roster.members.get(member_id)
        phases = (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        if member is not None and self.state in phases:
            self._touch(member, moment)

    def subscription(self) -> tuple[str, ...] | None:
        """Return the topics that members read; None if they are not known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: dict[str, None] = {}
        for member in self.roster.members.values():
            parsed = subscribed_topics(member.metadata(self.protocol_name))
            if parsed is None:
                return None
            topics.update(dict.fromkeys(parsed))
        return tuple(topics)

    def end(self, error: ErrorCode) -> list[ClassicAction]:
        """Answer all parked requests with an error: this coordinator no longer has the group."""
        for member in self.roster.members.values():
            self._answer_join(member, JoinResult(error, member.member_id))
            self._answer_sync(member, SyncResult(error))
        return self._take()

    # ---- joining -------------------------------------------------------------------------------

    def _join_new(self, event: JoinRequested, moment: Moment) -> None:
        if event.instance_id is not None:
            if self.roster.static_id(event.instance_id) is None:
                self._add(event, event.new_member_id, moment)
            else:
                self._rejoin_static(event, moment)
        elif event.is_id_required:
            pending = self.roster.pending
            if len(pending) >= PENDING_IDS_MAX:
                del pending[next(iter(pending))]
            pending[event.new_member_id] = moment.now_ms + event.session_timeout_ms
            self._refuse_join(event, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)
        else:
            self._add(event, event.new_member_id, moment)

    def _join_known(self, event: JoinRequested, moment: Moment) -> None:
        refusal = self.roster.refusal(event.member_id, event.instance_id)
        if refusal is not ErrorCode.NONE:
            self._refuse_join(event, refusal)
            return
        member = self.roster.members[event.member_id]
        is_same = member.protocols == event.protocols
        is_leader = member.member_id == self.roster.leader_id
        match self.state:
            case GroupState.PREPARING_REBALANCE:
                self._park(member, event)
                self._complete_join_if_all(moment)
            case GroupState.COMPLETING_REBALANCE if is_same:
                self._actions.append(AnswerJoin(event.waiter, self._current(member)))
            case GroupState.STABLE if is_same and not is_leader:
                self._touch(member, moment)
                self._actions.append(AnswerJoin(event.waiter, self._current(member)))
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                self._park(member, event)
                self._prepare_rebalance(moment)
            case GroupState.EMPTY | GroupState.DEAD:
                self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)

    def _add(self, event: JoinRequested, member_id: str, moment: Moment) -> None:
        self.protocol_type = event.protocol_type  # that of the others, if there are any
        member = ClassicMember(
            member_id,
            event.instance_id,
            event.client_id,
            event.client_host,
            event.session_timeout_ms,
            event.rebalance_timeout_ms,
            event.protocols,
            join_waiter=event.waiter,
            is_new=True,
            expires_ms=moment.now_ms + self._config.new_member_join_timeout_ms,
        )
        self.roster.add(member)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._deadlines.member_was_added = self._deadlines.is_initial
            self._complete_join_if_all(moment)
        else:
            self._prepare_rebalance(moment)

    def _rejoin_static(self, event: JoinRequested, moment: Moment) -> None:
        """Give a static member that joins without its member id its old place; fence its old id."""
        assert event.instance_id is not None
        old_leader = self.roster.leader_id
        old, member = self.roster.replace_static(event.instance_id, event.new_member_id)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._answer_join(old, JoinResult(fenced, old.member_id))
        self._answer_sync(old, SyncResult(fenced))
        if old.member_id in self._unsynced:
            del self._unsynced[old.member_id]
            self._unsynced[member.member_id] = None
        member.client_id, member.client_host = event.client_id, event.client_host
        self._park(member, event)
        self._touch(member, moment)
        is_unchanged = (
            self.state is GroupState.STABLE and self.roster.select_protocol() == self.protocol_name
        )
        if is_unchanged:
            self._actions.append(StoreGroup(self._image()))
            self._answer_join(member, self._static_answer(event, member, old_leader))
        elif self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all(moment)
        else:
            self._prepare_rebalance(moment)

    def _static_answer(
        self, event: JoinRequested, member: ClassicMember, old_leader: str | None
    ) -> JoinResult:
        """Return the answer to a static member that rejoined without a rebalance. A client that
        cannot skip the assignment gets the old id as leader, so that it does not assign.
        """
        is_leader = event.can_skip_assignment and member.member_id == self.roster.leader_id
        leader = self.roster.leader_id if event.can_skip_assignment else old_leader
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            leader or NO_MEMBER_ID,
            self.roster.joined_members(self.protocol_name) if is_leader else (),
            skip_assignment=is_leader,
        )

    def _park(self, member: ClassicMember, event: JoinRequested) -> None:
        self._answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_waiter = event.waiter
        member.protocols = event.protocols
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms

    # ---- checks --------------------------------------------------------------------------------

    def _has_room_for(self, member_id: str) -> bool:
        size_max = self._config.group_size_max
        member = self.roster.members.get(member_id)
        match self.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                has_joined = member is not None and member.join_waiter is not None
                return has_joined or self.roster.joining_count() < size_max
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(self.roster.members) < size_max

    def _fits(self, event: JoinRequested) -> bool:
        """Return whether the group's record has room for the metadata of a member that joins."""
        static_id = None
        if event.instance_id is not None:
            static_id = self.roster.static_id(event.instance_id)
        held = sum(
            _metadata_bytes(member.protocols)
            for member_id, member in self.roster.members.items()
            if member_id not in (event.member_id, static_id)
        )
        return held + _metadata_bytes(event.protocols) <= RECORD_BYTES_MAX

    def _supports(self, event: JoinRequested) -> bool:
        if not self.roster.members:
            return bool(event.protocol_type and event.protocols)
        if event.protocol_type != self.protocol_type:
            return False
        common = self.roster.common_protocols()
        return any(name in common for name, _ in event.protocols)

    def _sync_refusal(self, event: SyncRequested) -> ErrorCode:
        refusal = self.roster.refusal(event.member_id, event.instance_id)
        if refusal is not ErrorCode.NONE:
            return refusal
        if event.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if event.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if event.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id == NO_MEMBER_ID:
            static_id = None if instance_id is None else self.roster.static_id(instance_id)
            if static_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = static_id
        elif member_id in self.roster.pending:
            del self.roster.pending[member_id]
            return ErrorCode.NONE
        refusal = self.roster.refusal(member_id, instance_id)
        if refusal is ErrorCode.NONE:
            self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return refusal

    def _refuse_join(
        self, event: JoinRequested, error: ErrorCode, member_id: str | None = None
    ) -> None:
        answered_id = event.member_id if member_id is None else member_id
        self._actions.append(AnswerJoin(event.waiter, JoinResult(error, answered_id)))

    # ---- phases --------------------------------------------------------------------------------

    def _prepare_rebalance(self, moment: Moment) -> None:
        self._storing = None
        self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, moment)
        is_initial = self.state is GroupState.EMPTY
        self._deadlines = PhaseDeadlines(is_initial=is_initial)
        self.state = GroupState.PREPARING_REBALANCE
        if is_initial:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            self._deadlines.join_ms = moment.now_ms + delay_ms
            remaining_ms = self.roster.rebalance_timeout_ms() - delay_ms
            self._deadlines.initial_remaining_ms = max(remaining_ms, 0)
        else:
            self._deadlines.join_ms = moment.now_ms + self.roster.rebalance_timeout_ms()
            self._complete_join_if_all(moment)

    def _complete_join_if_all(self, moment: Moment) -> None:
        if not self._deadlines.is_initial and self.roster.has_all_joined():
            self._complete_join(moment)

    def _end_join_phase(self, moment: Moment) -> None:
        deadlines = self._deadlines
        if deadlines.member_was_added and deadlines.initial_remaining_ms:
            delay_ms = min(
                self._config.group_initial_rebalance_delay_ms, deadlines.initial_remaining_ms
            )
            deadlines.join_ms = moment.now_ms + delay_ms
            deadlines.initial_remaining_ms -= delay_ms
            deadlines.member_was_added = False
        else:
            self._complete_join(moment)

    def _complete_join(self, moment: Moment) -> None:
        self._deadlines = PhaseDeadlines()
        for member in self.roster.not_rejoined():
            if member.instance_id is None:
                self._remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if self.roster.members and not self.roster.elect_joined_leader():
            # Only static members are left and none has rejoined: wait for their sessions to end.
            wait_ms = max(self.roster.rebalance_timeout_ms(), ABSENT_WAIT_MS_MIN)
            self._deadlines.join_ms = moment.now_ms + wait_ms
            return
        self.generation += 1
        self.state_changed_ms = moment.wall_ms
        if not self.roster.members:
            self.state, self.protocol_name = GroupState.EMPTY, None
            self._actions.append(StoreGroup(self._image()))
            return
        self.state = GroupState.COMPLETING_REBALANCE
        self.protocol_name = self.roster.select_protocol()
        self._unsynced = dict.fromkeys(self.roster.members)
        self._deadlines.sync_ms = moment.now_ms + self.roster.rebalance_timeout_ms()
        for member in self.roster.members.values():
            member.is_new = False
            if member.join_waiter is not None:
                self._touch(member, moment)
                self._answer_join(member, self._current(member))

    def _continue_after_loss(self, moment: Moment) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(moment)
        elif self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all(moment)

    # ---- members -------------------------------------------------------------------------------

    def _expire_members(self, moment: Moment) -> None:
        pending = self.roster.pending
        gone = [id_ for id_, expires_ms in pending.items() if expires_ms <= moment.now_ms]
        for member_id in gone:
            del pending[member_id]
        silent = [m for m in self.roster.members.values() if m.expires_ms <= moment.now_ms]
        for member in silent:
            if member.is_waiting and not member.is_new:
                member.expires_ms = NEVER_MS  # its session begins again when it is answered
            else:
                self._remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if any(member.member_id not in self.roster.members for member in silent):
            self._continue_after_loss(moment)
        elif self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all(moment)

    def _remove(self, member_id: str, error: ErrorCode) -> None:
        member = self.roster.remove(member_id)
        self._answer_join(member, JoinResult(error))
        self._answer_sync(member, SyncResult(error))

    def _note_synced(self, member_id: str) -> None:
        if member_id in self._unsynced:
            del self._unsynced[member_id]
            if not self._unsynced:
                self._deadlines.sync_ms = NEVER_MS

    def _touch(self, member: ClassicMember, moment: Moment) -> None:
        member.expires_ms = moment.now_ms + member.session_timeout_ms

    # ---- answers -------------------------------------------------------------------------------

    def _answer_join(self, member: ClassicMember, result: JoinResult) -> None:
        if member.join_waiter is not None:
            self._actions.append(AnswerJoin(member.join_waiter, result))
            member.join_waiter = None

    def _answer_sync(self, member: ClassicMember, result: SyncResult) -> None:
        if member.sync_waiter is not None:
            self._actions.append(AnswerSync(member.sync_waiter, result))
            member.sync_waiter = None

    def _refuse_syncs(self, error: ErrorCode, moment: Moment) -> None:
        for member in self.roster.members.values():
            if member.sync_waiter is not None:
                self._touch(member, moment)
                self._answer_sync(member, SyncResult(error))

    def _current(self, member: ClassicMember) -> JoinResult:
        """Return a member's generation, and for the leader also the list of members."""
        is_leader = member.member_id == self.roster.leader_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.roster.leader_id or NO_MEMBER_ID,
            self.roster.joined_members(self.protocol_name) if is_leader else (),
        )

    def _assignment_of(self, member: ClassicMember) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _image(self, assignments: dict[str, bytes] | None = None) -> ClassicImage:
        members = self.roster.images()
        if assignments is not None:
            members = tuple(
                replace(m, assignment=assignments.get(m.member_id, b"")) for m in members
            )
        return ClassicImage(
            self.group_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.roster.leader_id,
            self.state_changed_ms,
            members,
        )

    def _take(self) -> list[ClassicAction]:
        actions, self._actions = self._actions, []
        return actions


def _metadata_bytes(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def _member_of(image: MemberImage, now_ms: int) -> ClassicMember:
    return ClassicMember(
        image.member_id,
        image.instance_id,
        image.client_id,
        image.client_host,
        image.session_timeout_ms,
        image.rebalance_timeout_ms,
        image.protocols,
        image.assignment,
        expires_ms=now_ms + image.session_timeout_ms,
    )
