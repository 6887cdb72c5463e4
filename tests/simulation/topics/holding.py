"""Assignment of a group's partitions to members, and the check of assignments and commits.

Leaves the requests to `classic_members` and `consumer_members`, and committed offsets to
`offset_history`.

A member holds a partition from the answer that gave it until it releases it, which it does before
it reports that. Without requests from a member, its coordinator may remove it, but not before a
complete session, or the time for a rebalance, has passed since the last sign of life that this
coordinator answered, or since it loaded the group. Until then the member certainly holds it. The
coordinator measures these times by its own clock, which may be fast. Only the answers of the
coordinator with the highest epoch are checked: an earlier one, which does not know yet that it was
replaced, cannot give partitions.

Invariants checked: no member gets a partition that another certainly holds (two owners). The
members of a generation get parts of one assignment (torn generation), and generations do not go
back (generation back). A member is not removed too early (forgotten member). A member that has lost
a partition, or has an old epoch, commits nothing (stale commit).
Source: KIP-848; Kafka's group protocol.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.clocks import RATE_ERROR_MAX

FASTEST_RATE: Final = 1 + RATE_ERROR_MAX
"""Seconds of the fastest coordinator's clock per true second."""

Report = Callable[[str, str], None]
"""Receives the kind of a violation and its description."""


@dataclass(frozen=True, slots=True)
class Load:
    """Coordinator that has loaded a group."""

    host: str
    epoch: int
    at_s: float


@dataclass(slots=True)
class Membership:
    """State of one member as it knows it, and as it is certain."""

    name: str
    session_s: float
    rebalance_s: float
    is_classic: bool
    answered: dict[int, float] = field(default_factory=dict)
    """Coordinator's epoch -> time of the last sign of life that it answered."""
    held: dict[int, float] = field(default_factory=dict)
    """Partition -> time since which it is held."""
    confirmed: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Partition, also one to be released -> epoch of the coordinator that last confirmed it,
    and the time of the member's request for that."""
    epoch: int = -1
    """Newest generation, or epoch of the member, that it received."""
    is_joined: bool = False
    unreported: dict[int, tuple[int, float]] = field(default_factory=dict)
    """What `confirmed` had of partitions whose return no answered sign of life has reported yet."""
    gave_back_s: float = 0.0


@dataclass(slots=True)
class GroupHoldings:
    """State of one group."""

    loads: list[Load] = field(default_factory=list)
    """By epoch."""
    members: dict[str, Membership] = field(default_factory=dict)
    given: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Partition -> member that got it last, and the time."""
    generation: int = -1
    """Newest generation that a member got its part of."""
    tags: dict[int, str] = field(default_factory=dict)
    """Generation -> id of its assignment."""
    parts: dict[int, dict[int, str]] = field(default_factory=dict)
    """Generation -> partition -> its owner."""

    @property
    def coordinator(self) -> Load | None:
        """Newest coordinator that has loaded the group."""
        return self.loads[-1] if self.loads else None

    def answering(self, host: str) -> int:
        """Return the epoch of the coordinator that answers on a host, -1 if there is none."""
        return max((load.epoch for load in self.loads if load.host == host), default=-1)


class Holdings:
    """All groups with members of a run."""

    def __init__(self, report: Report, clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self.groups: dict[str, GroupHoldings] = {}
        self.given_count = 0

    def group(self, group_id: str) -> GroupHoldings:
        """Return the state of a group."""
        return self.groups.setdefault(group_id, GroupHoldings())

    def note_load(self, group_id: str, host: str, epoch: int) -> None:
        """Record that a coordinator serves a group from now on."""
        loads = self.group(group_id).loads
        loads.append(Load(host, epoch, self._clock()))
        loads.sort(key=lambda each: each.epoch)

    def enter(self, group_id: str, member: Membership) -> Membership:
        """Record a member, or a static one that returned and starts without partitions."""
        members = self.group(group_id).members
        old = members.get(member.name)
        if old is not None:
            member.answered, member.is_joined = old.answered, False
        members[member.name] = member
        return member

    # -- answers to members ----------------------------------------------------------------------

    def note_answered(
        self,
        group_id: str,
        member: Membership,
        host: str,
        sent_s: float,
        assigned: Sequence[int],
        *,
        is_full: bool = True,
    ) -> None:
        """Record that a sign of life was answered, and that the member must hold `assigned`.

        Partitions that it got before and that are not in `assigned` are still held until
        `give_back`. With `is_full` false the answer had no assignment: it is unchanged.
        """
        group, now = self.group(group_id), self._clock()
        member.is_joined = True
        load = group.coordinator
        epoch = group.answering(host)
        member.answered[epoch] = sent_s
        if sent_s >= member.gave_back_s:
            member.unreported.clear()
        for partition in assigned:
            if is_full or partition in member.held:
                member.confirmed[partition] = epoch, sent_s
            if is_full and partition not in member.held:
                member.held[partition] = now
                group.given[partition] = member.name, now
                self.given_count += 1
        if load is not None and load.host == host and sent_s >= load.at_s:
            self._judge_owners(group_id, member, assigned)

    def give_back(self, member: Membership, partitions: Sequence[int]) -> None:
        """Record that a member stops reading these partitions, and is about to report it."""
        member.gave_back_s = self._clock()
        for partition in partitions:
            member.held.pop(partition, None)
            if partition in member.confirmed:
                member.unreported[partition] = member.confirmed.pop(partition)

    def lose_all(self, member: Membership) -> None:
        """Record that a member left, or was informed of its removal."""
        member.held.clear()
        member.confirmed.clear()
        member.unreported.clear()
        member.is_joined = False
        member.epoch = -1

    def note_synced(
        self, group_id: str, member: Membership, before: int, tag: str, assigned: Sequence[int]
    ) -> None:
        """Check the assignment of a classic member, requested when `before` was known."""
        group, generation = self.group(group_id), member.epoch
        if generation < before:
            text = f"{member.name} was given {generation}, and {before} was known"
            self._report("generation back", f"{group_id}: {text}")
        known = group.tags.setdefault(generation, tag)
        if known != tag:
            text = f"{member.name} is given its part of {tag}, others got theirs of {known}"
            self._report("torn generation", f"{group_id}: {generation}: {text}")
        parts = group.parts.setdefault(generation, {})
        for partition in assigned:
            owner = parts.setdefault(partition, member.name)
            if owner != member.name:
                text = f"{partition} is {owner}'s and {member.name}'s in {generation}"
                self._report("two owners", f"{group_id}: {text}")
        group.generation = max(group.generation, generation)

    def judge_forgotten(self, group_id: str, member: Membership, host: str, sent_s: float) -> None:
        """Check the removal of a member that kept the rules."""
        load = self.group(group_id).coordinator
        is_judged = load is not None and load.host == host and sent_s >= load.at_s
        if not is_judged or not member.is_joined or member.is_classic:
            return
        until_s = self._certain_end(group_id, member)
        if self._clock() < until_s:
            text = f"{member.name} is none any more, and was one until {until_s:.3f} s for certain"
            self._report("forgotten member", f"{group_id}: {text}")

    # -- commits ---------------------------------------------------------------------------------

    def may_commit(self, group_id: str, member: Membership, partition: int, epoch: int) -> str:
        """Return why a commit that is sent now must not be accepted; "" if it may be."""
        group = self.group(group_id)
        if epoch < member.epoch:
            return f"epoch {epoch} of {member.name}, which is at {member.epoch}"
        if member.is_classic and epoch < group.generation:
            return f"generation {epoch} of {member.name}, and {group.generation} has begun"
        owner, since_s = group.given.get(partition, (member.name, 0.0))
        if partition in member.held and owner != member.name and since_s > member.held[partition]:
            return f"{partition} was given to {owner}, and {member.name} holds it no more"
        return ""

    def judge_commit(self, group_id: str, refusal: str) -> None:
        """Check an accepted commit for which `may_commit` gave this reason."""
        if refusal:
            self._report("stale commit", f"{group_id}: {refusal}")

    # -- certainty -------------------------------------------------------------------------------

    def _judge_owners(self, group_id: str, member: Membership, assigned: Sequence[int]) -> None:
        now = self._clock()
        if now >= self._certain_end(group_id, member):
            return
        for partition in assigned:
            if partition not in member.held:
                continue
            for other in self.group(group_id).members.values():
                if other is member or partition not in other.held:
                    continue
                until_s = self._certain_end(group_id, other)
                if now < until_s:
                    text = f"{partition} is {member.name}'s, and {other.name}'s until {until_s:.3f}"
                    self._report("two owners", f"{group_id}: {text} s for certain")

    def _certain_end(self, group_id: str, member: Membership) -> float:
        """Return until when a silent member is certainly a member, and holds its partitions.

        Each coordinator may remove it until the next one has loaded the group: after its session,
        or when it has not released one of its partitions in time. Then it loses all of them.
        """
        end_s = 0.0
        for load in self.group(group_id).loads:
            if not end_s and load.epoch not in member.answered:
                continue  # it did not know the member
            if end_s and end_s <= load.at_s:
                return end_s
            session_s = member.session_s
            if member.is_classic:
                session_s = min(session_s, member.rebalance_s)
            since_s = max(member.answered.get(load.epoch, 0.0), load.at_s)
            end_s = since_s + session_s / FASTEST_RATE
            asked = (*member.confirmed.values(), *member.unreported.values())
            if asked and not member.is_classic:
                asked_s = min(at_s if epoch == load.epoch else load.at_s for epoch, at_s in asked)
                end_s = min(end_s, asked_s + member.rebalance_s / FASTEST_RATE)
        return end_s
