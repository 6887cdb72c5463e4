"""Server-side assignors: they compute the target owners of partitions.

Leaves moving members to their targets to `reconciliation`.

Invariants: pure and deterministic; each partition of a subscribed topic is assigned to exactly one
of the topic's subscribers. `uniform` moves only what balance requires: with equal subscriptions,
the members' counts differ by at most one.
Source: KIP-848, "Assignors".
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker_layer.groups.consumer.consumer_values import Partition, Partitions, sorted_partitions


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
    given: dict[str, list[Partition]] = {each.member_id: [] for each in members}
    ordered = sorted(members, key=lambda each: each.order_key)
    topics = {each.member_id: dict.fromkeys(each.topic_ids) for each in ordered}
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
    return {member_id: sorted_partitions(each) for member_id, each in given.items()}


def assign_uniform(members: list[SubscribedMember], counts: Mapping[bytes, int]) -> Targets:
    """Assign about the same number of partitions to each member; keep its earlier ones."""
    topics = {each.member_id: dict.fromkeys(each.topic_ids) for each in members}
    readers: dict[bytes, tuple[str, ...]] = {
        topic_id: tuple(name for name, read in topics.items() if topic_id in read)
        for topic_id in sorted(counts)
    }
    given: dict[str, dict[Partition, None]] = {each.member_id: {} for each in members}
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
            partitions = [(topic_id, each) for each in range(counts[topic_id])]
            free = [each for each in partitions if each not in taken]
            missing.setdefault(names, []).extend(free)
    for group in sorted(missing, key=lambda each: (len(each), each)):
        _assign_free(missing[group], group, given)
    _balance(given, readers)
    return {member_id: sorted_partitions(each) for member_id, each in given.items()}


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
    takers = [min(names, key=lambda each: len(given[each])) for names in groups]
    least = min((len(given[each]) for each in takers), default=0)
    for giver in sorted(given, key=lambda each: -len(given[each])):
        count = len(given[giver])
        if count < least + 2:
            return None
        for partition in reversed(given[giver]):
            taker = takers[group_of[partition[0]]]
            if len(given[taker]) + 1 < count:
                return giver, partition, taker
    return None


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
