"""Members of one classic group, their leader, and the protocols that all of them support.

Leaves states, generations and answers to `classic_group`.

Invariants: there is a leader if and only if there are members, and it is one of them; a static
instance id names one member; a pending id is not a member.
Source: KIP-345 (static members), KIP-394 (pending ids).
"""

from dataclasses import dataclass, replace
from typing import Final

from broker_layer.groups.values import JoinedMember, MemberImage, Protocols, Waiter
from broker_layer.kafka.error_codes import ErrorCode

NEVER_MS: Final = 2**63


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
    """All members of a group in the order in which they joined."""

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
        return [each for each in self.members.values() if each.join_waiter is None]

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader; return False if none has joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_waiter is not None:
            return True
        joined = [each for each in self.members.values() if each.join_waiter is not None]
        if not joined:
            return False
        self.leader_id = joined[0].member_id
        return True

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def common_protocols(self) -> list[str]:
        """Return the protocols that all members support, in the order of the first member."""
        first, *others = list(self.members.values())
        names = [{name for name, _ in member.protocols} for member in others]
        return [name for name, _ in first.protocols if all(name in each for each in names)]

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
            JoinedMember(each.member_id, each.instance_id, each.metadata(protocol_name))
            for each in self.members.values()
        )

    def images(self) -> tuple[MemberImage, ...]:
        """Return the stored form of all members."""
        return tuple(each.image() for each in self.members.values())
