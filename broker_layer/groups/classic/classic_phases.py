"""Phases of a classic group's rebalance: preparing, completing, and stable.

Leaves requests to `classic_group`, which extends this class, and the members to `roster`.

Invariants: a generation never decreases; a group is STABLE only after its generation was stored; a
waiter that is removed from a member is answered, and the member's session then begins again.
Source: Kafka's group protocol; KIP-134 (initial delay), KIP-345 (static members).
"""

from dataclasses import dataclass, replace
from typing import Final

from broker_layer.groups.config import GroupsConfig
from broker_layer.groups.roster import NEVER_MS, ClassicMember, Roster
from broker_layer.groups.values import (
    NO_MEMBER_ID,
    AnswerJoin,
    AnswerSync,
    ClassicAction,
    ClassicImage,
    GroupState,
    JoinResult,
    Moment,
    StoreGroup,
    SyncResult,
)
from broker_layer.kafka.error_codes import ErrorCode

ABSENT_WAIT_MS_MIN: Final = 1_000
"""Minimum time between looks at a group whose members are all static and have not rejoined: a
member may have any rebalance timeout, even 0."""


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


class ClassicPhases:
    """State of one group, and the transitions between its phases."""

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
        gone = [each for each, expires_ms in pending.items() if expires_ms <= moment.now_ms]
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
                replace(each, assignment=assignments.get(each.member_id, b"")) for each in members
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
