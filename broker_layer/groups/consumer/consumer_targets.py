"""Target assignments of a KIP-848 group, computed from its members and the existing topics.

Leaves the assignors' rules to `assignors`, and the times of computing to `consumer_group`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from broker_layer.groups.consumer.assignors import ASSIGNORS, SubscribedMember, Targets
from broker_layer.groups.consumer.consumer_values import ConsumerMember
from broker_layer.groups.consumer.topic_patterns import matching_topics
from broker_layer.groups.topics import GroupTopics

Sees = Callable[[str], bool]
"""Returns whether a member may learn that a topic exists."""

_DIGEST_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Topics that the pattern of each member selects, and all subscribed topics, at one time."""

    names_of_members: Mapping[str, tuple[str, ...]]
    """Member id -> topics that its pattern matches and that it may see."""
    topics: Mapping[str, tuple[bytes, int]]
    """Name -> (id, partition count)."""

    @classmethod
    def of(
        cls, members: Iterable[ConsumerMember], topics: GroupTopics, sees: Mapping[str, Sees]
    ) -> "Subscriptions":
        """Look up the topics that members read. A member that is not in `sees` has not sent a
        heartbeat to this broker yet: its pattern selects what it has.
        """
        patterns: dict[str, tuple[str, ...]] = {}
        selected: dict[str, tuple[str, ...]] = {}
        names: dict[str, None] = {}
        for member in members:
            if member.pattern and member.pattern not in patterns:
                patterns[member.pattern] = matching_topics(member.pattern, topics.topic_names())
            names.update(dict.fromkeys(member.topics))
            if member.pattern:
                may_see = sees.get(member.member_id) or _has_in(member, topics)
                own = tuple(filter(may_see, patterns[member.pattern]))
                selected[member.member_id] = own
                names.update(dict.fromkeys(own))
        known: dict[str, tuple[bytes, int]] = {}
        for name in names:
            topic_id, count = topics.topic_id_of(name), topics.partition_count(name)
            if topic_id is not None and count > 0:
                known[name] = (bytes(topic_id), count)
        return cls(selected, known)

    def digest(self) -> bytes:
        """Return a digest that changes when a topic is created, deleted, grown or recreated."""
        return blake2b(
            repr(sorted(self.topics.items())).encode(), digest_size=_DIGEST_BYTES
        ).digest()

    def targets(self, members: Iterable[ConsumerMember], assignor: str) -> Targets:
        """Return the assignor's targets for the members."""
        subscribed = [
            SubscribedMember(
                member.member_id,
                member.instance_id or member.member_id,
                self._topic_ids(member),
                member.target,
            )
            for member in members
        ]
        counts = dict(self.topics.values())
        return ASSIGNORS[assignor](subscribed, counts)

    def _topic_ids(self, member: ConsumerMember) -> tuple[bytes, ...]:
        names = (*member.topics, *self.names_of_members.get(member.member_id, ()))
        return tuple(dict.fromkeys(self.topics[name][0] for name in names if name in self.topics))


def _has_in(member: ConsumerMember, topics: GroupTopics) -> Sees:
    held = {topic_id for topic_id, _ in member.target}
    return lambda name: topics.topic_id_of(name) in held
