"""Target assignments of a KIP-848 group, computed from its members and the existing topics.

Leaves the times of computing to `consumer_group`, which moves the members to their targets.

Clients write patterns in RE2 syntax, and RE2 runs them in time linear in the length of the name,
for any expression. An expression must match the complete name.

Invariants: assignors are pure and deterministic; each partition of a subscribed topic is assigned
to exactly one of the topic's subscribers. `uniform` moves only what balance requires: with equal
subscriptions, the members' counts differ by at most one.

Source: KIP-848, "Assignors"; KIP-1082.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import re2

from broker_layer.coordinator_partitions import INTERNAL_TOPICS
from broker_layer.errors import TopicError
from broker_layer.groups.values import (
    ConsumerMember,
    GroupTopics,
    Partition,
    Partitions,
    sorted_partitions,
)
from broker_layer.kafka.error_codes import ErrorCode

PATTERN_LENGTH_MAX: Final = 1_000
PATTERN_MEMORY_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a compiled expression; nested repetitions that need more are refused."""

_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = PATTERN_MEMORY_BYTES_MAX
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False


def check_pattern(text: str) -> None:
    """Check that a pattern is valid. Raises TopicError INVALID_REGULAR_EXPRESSION."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise _refused(f"longer than {PATTERN_LENGTH_MAX} characters")
    try:
        re2.compile(text, _OPTIONS)
    except re2.error as error:
        [reason] = error.args
        raise _refused(reason.decode(errors="replace")) from error


def matching_topics(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the topics that a valid pattern matches; never internal ones."""
    pattern = re2.compile(text, _OPTIONS)
    return tuple(
        name for name in sorted(names) if name not in INTERNAL_TOPICS and pattern.fullmatch(name)
    )


def _refused(text: str) -> TopicError:
    return TopicError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex: {text}")


@dataclass(frozen=True, slots=True)
class SubscribedMember:
    """A member as an assignor sees it."""

    member_id: str
    order_key: str
    """The instance id of a static member, so that its place survives a new member id."""
    topic_ids: tuple[bytes, ...]
    target: Partitions
    """Its target so far."""


Targets = dict[str, Partitions]
Assignor = Callable[[list[SubscribedMember], Mapping[bytes, int]], Targets]


def assign_range(members: list[SubscribedMember], counts: Mapping[bytes, int]) -> Targets:
    """Assign to each member consecutive partitions of each of its topics."""
    given: dict[str, list[Partition]] = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: member.order_key)
    topics = {member.member_id: dict.fromkeys(member.topic_ids) for member in ordered}
    for topic_id in sorted(counts):
        readers = [name for name, read in topics.items() if topic_id in read]
        if not readers:
            continue
        share, extra = divmod(counts[topic_id], len(readers))
        first = 0
        for number, member_id in enumerate(readers):
            end = first + share + (number < extra)
            given[member_id] += [(topic_id, partition) for partition in range(first, end)]
            first = end
    return {member_id: sorted_partitions(held) for member_id, held in given.items()}


def assign_uniform(members: list[SubscribedMember], counts: Mapping[bytes, int]) -> Targets:
    """Assign about the same number of partitions to each member; keep its earlier ones."""
    topics = {member.member_id: dict.fromkeys(member.topic_ids) for member in members}
    readers: dict[bytes, tuple[str, ...]] = {
        topic_id: tuple(name for name, read in topics.items() if topic_id in read)
        for topic_id in sorted(counts)
    }
    given: dict[str, dict[Partition, None]] = {member.member_id: {} for member in members}
    taken: dict[Partition, None] = {}
    for member in members:
        read = topics[member.member_id]
        for topic_id, partition in member.target:
            is_there = partition < counts.get(topic_id, 0) and topic_id in read
            if is_there and (topic_id, partition) not in taken:
                given[member.member_id][topic_id, partition] = None
                taken[topic_id, partition] = None
    missing: dict[tuple[str, ...], list[Partition]] = {}
    for topic_id, names in readers.items():
        if names:
            partitions = [(topic_id, number) for number in range(counts[topic_id])]
            free = [partition for partition in partitions if partition not in taken]
            missing.setdefault(names, []).extend(free)
    for group in sorted(missing, key=lambda names: (len(names), names)):
        _assign_free(missing[group], group, given)
    _balance(given, readers)
    return {member_id: sorted_partitions(held) for member_id, held in given.items()}


def _assign_free(
    partitions: list[Partition], names: tuple[str, ...], given: dict[str, dict[Partition, None]]
) -> None:
    """Assign each partition to the member of `names` that has the fewest at that time."""
    heap = [(len(given[name]), number) for number, name in enumerate(names)]
    heapq.heapify(heap)
    for partition in partitions:
        count, number = heap[0]
        given[names[number]][partition] = None
        heapq.heapreplace(heap, (count + 1, number))


def _balance(
    given: dict[str, dict[Partition, None]], readers: Mapping[bytes, tuple[str, ...]]
) -> None:
    """Move partitions, one by one, from the members with the most to members with at least two
    fewer.

    It ends because each move lowers the sum of the squares of the members' counts.
    """
    groups = list(dict.fromkeys(names for names in readers.values() if names))
    numbers = {names: number for number, names in enumerate(groups)}
    group_of = {topic_id: numbers[names] for topic_id, names in readers.items() if names}
    while (move := _next_move(given, groups, group_of)) is not None:
        giver, partition, taker = move
        del given[giver][partition]
        given[taker][partition] = None


def _next_move(
    given: dict[str, dict[Partition, None]],
    groups: list[tuple[str, ...]],
    group_of: Mapping[bytes, int],
) -> tuple[str, Partition, str] | None:
    """Return the next move. `groups` are the sets of members that read the same topics: a topic is
    looked up by the number of its set, because a group may read thousands.
    """
    takers = [min(names, key=lambda name: len(given[name])) for names in groups]
    least = min((len(given[taker]) for taker in takers), default=0)
    for giver in sorted(given, key=lambda name: -len(given[name])):
        count = len(given[giver])
        if count < least + 2:
            return None
        for partition in reversed(given[giver]):
            taker = takers[group_of[partition[0]]]
            if len(given[taker]) + 1 < count:
                return giver, partition, taker
    return None


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


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
