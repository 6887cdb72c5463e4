"""State machine of one KIP-848 group: heartbeats, epochs, reconciliation and timeouts.

Leaves the targets to `consumer_targets`, and storing (`changed_records`) and answering to the
shell.

Invariants: a partition has at most one owner, including members that are revoking it. The group's
epoch increases with each change of members, subscriptions or topics; the targets follow at the next
heartbeat. A static member that left temporarily keeps its partitions until its session ends.

Source: KIP-848; KIP-1082.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.groups.classic_group import NEVER_MS
from broker_layer.groups.consumer_targets import Sees, Subscriptions, check_pattern
from broker_layer.groups.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_MEMBER_ID,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    ConsumerChange,
    ConsumerGroupChanged,
    ConsumerGroupImage,
    ConsumerMember,
    GroupsConfig,
    GroupTopics,
    HeartbeatRequested,
    HeartbeatResult,
    MemberRemoved,
    MemberState,
    Moment,
    Partition,
    Partitions,
    sorted_partitions,
)
from broker_layer.kafka.error_codes import ErrorCode

REVOCATION_MS_MIN: Final = 1_000
"""Minimum time that a member gets to revoke partitions, whatever its rebalance timeout is, and from
one attempt to remove it to the next one while the log refuses that."""

_log = logging.getLogger(__name__)


class ConsumerGroup:
    """The state machine of one group."""

    def __init__(self, group_id: str, config: GroupsConfig, topics: GroupTopics) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.emptied_ms = 0
        """When the last member was removed, by the wall clock: since then, no offset is used."""
        self.members: dict[str, ConsumerMember] = {}
        self._config = config
        self._topics = topics
        self._digest = b""
        self._are_topics_new = True
        """Whether topics may differ from those in `_digest`."""
        self._owners: dict[Partition, str] = {}
        self._sees: dict[str, Sees] = {}
        """Member id -> what it may see; only of members that sent a heartbeat to this broker."""
        self._sessions: dict[str, int] = {}
        """Member id -> when its session ends."""
        self._revocations: dict[str, int] = {}
        """Member id -> deadline for the revocation of its partitions."""
        self._stored: dict[str, ConsumerMember] = {}
        self._stored_image: ConsumerGroupImage | None = None

    # ---- the log -------------------------------------------------------------------------------

    def restore(self, now_ms: int) -> None:
        """Return to what the log has: after a load, or when the log did not accept a change.

        The session of each member without one begins now.
        """
        image = self._stored_image or ConsumerGroupImage(0, 0, b"", 0)
        self.epoch, self.assignment_epoch = image.epoch, image.assignment_epoch
        self._digest, self._are_topics_new = image.topics_digest, True
        self.emptied_ms = image.emptied_ms
        self._owners.clear()
        for member_id in [id_ for id_ in self.members if id_ not in self._stored]:
            self._drop(member_id)
        outdated = _outdated(self._stored.values())
        self.members = {i: member for i, member in self._stored.items() if i not in outdated}
        if outdated:
            _log.warning("group %s: %s must join again", self.group_id, ", ".join(outdated))
            self.epoch += 1
        for member in list(self.members.values()):
            self._put(member)
            session_ends_ms = now_ms + self._config.consumer_session_timeout_ms
            self._sessions.setdefault(member.member_id, session_ends_ms)
            self._watch_revocation(member, now_ms)

    def changed_records(self) -> list[ConsumerGroupChanged]:
        """Return what brings the log up to date with memory: at most one record."""
        if self._stored_image is None and not self.members:
            return []  # no member ever joined
        removed = [member_id for member_id in self._stored if member_id not in self.members]
        changes: list[ConsumerChange] = [MemberRemoved(member_id) for member_id in removed]
        changes += [
            member
            for member in self.members.values()
            if self._stored.get(member.member_id) != member
        ]
        image = self.image()
        if image != self._stored_image:
            changes.append(image)
        return [ConsumerGroupChanged(self.group_id, tuple(changes))] if changes else []

    def note_stored(self, record: ConsumerGroupChanged) -> None:
        """Record that the log has a record."""
        for change in record.changes:
            match change:
                case ConsumerGroupImage():
                    self._stored_image = change
                case ConsumerMember():
                    self._stored[change.member_id] = change
                case MemberRemoved(member_id):
                    self._stored.pop(member_id, None)

    def stored_records(self) -> Iterator[ConsumerGroupChanged]:
        """Yield the records of the group's stored form, for a snapshot: one for each member."""
        if self._stored_image is not None:
            yield ConsumerGroupChanged(self.group_id, (self._stored_image,))
            for member in self._stored.values():
                yield ConsumerGroupChanged(self.group_id, (member,))

    def image(self) -> ConsumerGroupImage:
        """Return the stored form of the group, without its members."""
        return ConsumerGroupImage(self.epoch, self.assignment_epoch, self._digest, self.emptied_ms)

    # ---- heartbeats ----------------------------------------------------------------------------

    def heartbeat(self, event: HeartbeatRequested, moment: Moment) -> HeartbeatResult:
        """Handle a heartbeat: the member joins, stays, reconciles, or leaves."""
        try:
            if event.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                return self._leave(event, moment)
            if event.pattern:
                check_pattern(event.pattern)
            member = self._member_of(event)
        except TopicError as error:
            return HeartbeatResult(error.code, error.text)
        before = member if self.members.get(member.member_id) is member else None
        updated = _updated(member, event)
        self._put(updated)
        if updated.pattern and updated.member_id not in self._sees:
            self._are_topics_new = True
        self._sees[updated.member_id] = event.sees
        self._refresh(is_changed=before is None or _subscription(before) != _subscription(updated))
        current = self.members[updated.member_id]
        following = reconciled(
            current,
            assignment_epoch=self.assignment_epoch,
            is_owned=self._owners.__contains__,
            owned=event.owned,
        )
        self._put(following)
        self._sessions[following.member_id] = (
            moment.now_ms + self._config.consumer_session_timeout_ms
        )
        self._watch_revocation(following, moment.now_ms)
        is_sent = event.is_full or following.assigned != member.assigned
        assignment = following.assigned if is_sent else None
        return HeartbeatResult(
            ErrorCode.NONE, None, following.member_id, following.epoch, assignment
        )

    def on_time(self, moment: Moment) -> None:
        """Remove members whose session or revocation deadline has passed."""
        for deadlines in (self._sessions, self._revocations):
            late = [member_id for member_id, due_ms in deadlines.items() if due_ms <= moment.now_ms]
            for member_id in late:
                self._remove(member_id, moment)

    def next_deadline_ms(self) -> int:
        """Return the latest time for the next `on_time`."""
        sessions = min(self._sessions.values(), default=NEVER_MS)
        return min(sessions, min(self._revocations.values(), default=NEVER_MS))

    # ---- queries -------------------------------------------------------------------------------

    @property
    def is_stored(self) -> bool:
        """Whether the log has the group."""
        return self._stored_image is not None

    @property
    def state(self) -> str:
        """The group's state, by the name that Kafka's tools show."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_done = all(
            member.state is MemberState.STABLE and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return "Stable" if is_done else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer; by default the first offered one."""
        votes = [member.assignor for member in self.members.values()]
        return max(self._config.consumer_assignors, key=votes.count)

    def subscription(self) -> tuple[str, ...]:
        """Return the topics that members read."""
        return tuple(Subscriptions.of(self.members.values(), self._topics, self._sees).topics)

    def note_topics_changed(self) -> None:
        """Check the topics again at the next heartbeat."""
        self._are_topics_new = True

    def commit_refusal(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool
    ) -> ErrorCode:
        """Return why offsets may not be committed; NONE if they may."""
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        is_anonymous = epoch < 0 and member_id == NO_MEMBER_ID and instance_id is None
        if is_transactional and is_anonymous:
            return ErrorCode.NONE
        return self._epoch_refusal(member_id, epoch)

    def fetch_refusal(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return why offsets may not be fetched; NONE if they may. A client that does not claim to
        be a member always may.
        """
        if not member_id:
            return ErrorCode.NONE if epoch < 0 else ErrorCode.UNKNOWN_MEMBER_ID
        return self._epoch_refusal(member_id, epoch)

    def _epoch_refusal(self, member_id: str, epoch: int) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    # ---- targets ------------------------------------------------------------------------------

    def _refresh(self, *, is_changed: bool) -> None:
        """Advance the group's epoch and the targets after a change of members or topics."""
        if not (is_changed or self._are_topics_new or self.epoch > self.assignment_epoch):
            return
        subscriptions = Subscriptions.of(self.members.values(), self._topics, self._sees)
        if is_changed or self._are_topics_new:
            digest = subscriptions.digest()
            if is_changed or digest != self._digest:
                self.epoch += 1
            self._digest, self._are_topics_new = digest, False
        if self.epoch > self.assignment_epoch:
            targets = subscriptions.targets(self.members.values(), self.assignor)
            for member_id, target in targets.items():
                self.members[member_id] = replace(self.members[member_id], target=target)
            self.assignment_epoch = self.epoch

    # ---- members -------------------------------------------------------------------------------

    def _member_of(self, event: HeartbeatRequested) -> ConsumerMember:
        """Return the sender of a heartbeat: a member, or a new one that is not in the group yet."""
        static = self._static(event.instance_id)
        if event.epoch == JOIN_EPOCH:
            if static is not None and static.member_id != event.member_id:
                return self._replaced(static, event.member_id)
            known = self.members.get(event.member_id)
            if known is None and len(self.members) >= self._config.consumer_group_size_max:
                text = (
                    f"the group has {len(self.members)} members, its maximum: stop some, or "
                    "use another group"
                )
                raise TopicError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
            return known or ConsumerMember(event.member_id, event.instance_id)
        self._check_instance(static, event)
        member = self.members.get(event.member_id)
        if member is None:
            raise _unknown(event.member_id)
        is_repeated = (
            event.epoch == member.previous_epoch
            and event.owned is not None
            and all(partition in member.assigned for partition in event.owned)
        )
        if event.epoch != member.epoch and not is_repeated:
            text = (
                f"the member sent epoch {event.epoch}, but its epoch is {member.epoch}: join the "
                "group again, with epoch 0"
            )
            raise TopicError(ErrorCode.FENCED_MEMBER_EPOCH, text)
        return member

    def _replaced(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        if old.epoch != STATIC_LEAVE_EPOCH:
            text = (
                f"instance {old.instance_id} is still used by member {old.member_id}: stop that "
                "member, or use another group.instance.id"
            )
            raise TopicError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        new = replace(old, member_id=member_id, epoch=JOIN_EPOCH)
        self._drop(old.member_id)
        self._put(new)
        return new

    def _leave(self, event: HeartbeatRequested, moment: Moment) -> HeartbeatResult:
        self._check_instance(self._static(event.instance_id), event)
        member = self.members.get(event.member_id)
        if member is None:
            raise _unknown(event.member_id)
        if event.epoch == STATIC_LEAVE_EPOCH:
            away = replace(
                member,
                epoch=STATIC_LEAVE_EPOCH,
                state=MemberState.STABLE,
                revoking=NO_PARTITIONS,  # it has stopped reading them
            )
            self._put(away)
            self._revocations.pop(away.member_id, None)
        else:
            self._remove(event.member_id, moment)
        return HeartbeatResult(ErrorCode.NONE, None, event.member_id, event.epoch)

    def _check_instance(self, static: ConsumerMember | None, event: HeartbeatRequested) -> None:
        if event.instance_id is not None:
            if static is None:
                raise _unknown(event.instance_id)
            if static.member_id != event.member_id:
                text = (
                    f"instance {event.instance_id} is now member {static.member_id}: stop this "
                    "one, or use another group.instance.id"
                )
                raise TopicError(ErrorCode.FENCED_INSTANCE_ID, text)

    def _static(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        members = self.members.values()
        return next((member for member in members if member.instance_id == instance_id), None)

    def _remove(self, member_id: str, moment: Moment) -> None:
        self._drop(member_id)
        self.epoch += 1
        if not self.members:
            self.emptied_ms = moment.wall_ms

    def _put(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._remove_owner(old)
        self.members[member.member_id] = member
        for partition in (*member.assigned, *member.revoking):
            assert partition not in self._owners, "a partition has one owner"
            self._owners[partition] = member.member_id

    def _drop(self, member_id: str) -> None:
        self._remove_owner(self.members.pop(member_id))
        self._sees.pop(member_id, None)
        self._sessions.pop(member_id, None)
        self._revocations.pop(member_id, None)

    def _remove_owner(self, member: ConsumerMember) -> None:
        for partition in (*member.assigned, *member.revoking):
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def _watch_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        if member.state is not MemberState.UNREVOKED:
            self._revocations.pop(member.member_id, None)
        else:
            due_ms = now_ms + max(member.rebalance_timeout_ms, REVOCATION_MS_MIN)
            self._revocations.setdefault(member.member_id, due_ms)


def _updated(member: ConsumerMember, event: HeartbeatRequested) -> ConsumerMember:
    """Return the member with the fields that the heartbeat changes."""
    timeout_ms = event.rebalance_timeout_ms
    return replace(
        member,
        rack_id=member.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        topics=member.topics if event.topics is None else tuple(sorted(event.topics)),
        pattern=member.pattern if event.pattern is None else event.pattern,
        assignor=member.assignor if event.assignor is None else event.assignor,
    )


def _outdated(members: Iterable[ConsumerMember]) -> list[str]:
    """Return the members without which each partition has one owner: those of older epochs.

    What a coordinator stores always has one owner for each partition. If the log is damaged, its
    partition of the internal topic must be loaded nevertheless.
    """
    owned: dict[Partition, None] = {}
    outdated = []
    for member in sorted(members, key=lambda other: other.epoch, reverse=True):
        held = (*member.assigned, *member.revoking)
        if len(owned) + len(held) > len(owned | dict.fromkeys(held)):
            outdated.append(member.member_id)
        else:
            owned |= dict.fromkeys(held)
    return outdated


def _subscription(member: ConsumerMember) -> tuple[tuple[str, ...], str]:
    return member.topics, member.pattern


def _unknown(member_id: str) -> TopicError:
    return TopicError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of the group: join it again"
    )


def reconciled(
    member: ConsumerMember,
    *,
    assignment_epoch: int,
    is_owned: Callable[[Partition], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    """Return a member after one step towards its target, or the unchanged member.

    `owned` are the partitions that the member reports to own; None if it reports none. A member
    gets a partition only when no member owns it, and owns one until it reports that it no longer
    does. Its epoch advances only when it has nothing left to revoke.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == assignment_epoch:
            return member
        case MemberState.UNREVOKED if _still_owns(owned, member.revoking):
            return member
        case _:
            return _next(member, assignment_epoch, is_owned, owned)


def _next(
    member: ConsumerMember,
    assignment_epoch: int,
    is_owned: Callable[[Partition], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    target = dict.fromkeys(member.target)
    kept = tuple(partition for partition in member.assigned if partition in target)
    revoking = tuple(partition for partition in member.assigned if partition not in target)
    if revoking and _still_owns(owned, revoking):
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    held = dict.fromkeys(kept)
    missing = [partition for partition in member.target if partition not in held]
    free = [partition for partition in missing if not is_owned(partition)]
    is_waiting = len(free) < len(missing)
    return replace(
        member,
        state=MemberState.UNRELEASED if is_waiting else MemberState.STABLE,
        previous_epoch=member.epoch if assignment_epoch != member.epoch else member.previous_epoch,
        epoch=assignment_epoch,
        assigned=sorted_partitions([*kept, *free]),
        revoking=NO_PARTITIONS,
    )


def _still_owns(owned: Partitions | None, revoking: Partitions) -> bool:
    """Return whether a member still owns one of `revoking`; assume so if it reports nothing."""
    sought = dict.fromkeys(revoking)
    return owned is None or any(partition in sought for partition in owned)
