"""State machine of one classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and timeouts.

Leaves the phases of a rebalance to `classic_phases`, offsets to `offset_table`, and appending and
answering to the shell, which performs the returned actions in order.

Invariants: each parked request is answered exactly once; a member that is not the leader and has
not changed rejoins without a rebalance; the metadata of all members fits in a record.
Source: Kafka's group protocol; KIP-345, KIP-394, KIP-447, KIP-559, KIP-814.
"""

from typing import Final

from broker_layer.groups.classic.classic_phases import ClassicPhases
from broker_layer.groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from broker_layer.groups.config import GroupsConfig
from broker_layer.groups.records import RECORD_BYTES_MAX
from broker_layer.groups.roster import NEVER_MS, ClassicMember
from broker_layer.groups.values import (
    NO_MEMBER_ID,
    AnswerJoin,
    AnswerSync,
    ClassicAction,
    ClassicImage,
    GroupState,
    JoinRequested,
    JoinResult,
    MemberImage,
    Moment,
    Protocols,
    StoreGroup,
    SyncRequested,
    SyncResult,
)
from broker_layer.kafka.error_codes import ErrorCode

PENDING_IDS_MAX: Final = 2_000
"""Maximum number of ids of one group that clients got and did not use yet. The oldest one is
dropped first: clients use an id at once, and one whose id is unknown gets another."""


class ClassicGroup(ClassicPhases):
    """The state machine of one group."""

    @classmethod
    def from_image(cls, image: ClassicImage, config: GroupsConfig, now_ms: int) -> "ClassicGroup":
        """Return a group from its stored form; each member's session begins now."""
        group = cls(image.group_id, config)
        group.generation = image.generation
        group.protocol_type = image.protocol_type
        group.protocol_name = image.protocol_name
        group.state_changed_ms = image.state_changed_ms
        for each in image.members:
            group.roster.add(_member_of(each, now_ms))
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
            self._storing = {each: given.get(each, b"") for each in self.roster.members}
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
        members = (each.expires_ms for each in self.roster.members.values())
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
