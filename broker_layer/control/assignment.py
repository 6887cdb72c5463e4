"""Planning of partition leaders, for new topics and after the set of brokers changed, and marks of
requested unclean leaderships.

Leaves storing a plan, and the time of planning, to `controller.py`, and the effects of an unclean
leadership to `log_takeover.py`.

Invariants: pure; a plan names only brokers that are up and not leaving; it depends only on its
arguments, so a plan for a result that is already stored is empty.

Source: topics design, "The mapping", controller.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from metadata.topics.topic import NO_LEADER, PartitionLeadership, TopicRecord

IMBALANCE_SHARE: Final = 0.1
"""Maximum excess of a broker's load over the fair share, as a fraction of the fair share."""


@dataclass(frozen=True, slots=True)
class LeaderMove:
    """A planned change of a partition's leader: another leader, or the same one in a new epoch.

    It applies only to the leadership `seen`. `makes_preferred` makes the leader the preferred one.
    """

    topic: str
    partition: int
    seen: PartitionLeadership
    leader: int
    makes_preferred: bool = False


Plan = Sequence[LeaderMove]


@dataclass(slots=True)
class Loads:
    """Number of partitions that each eligible broker leads, updated during planning."""

    counts: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: Iterable[TopicRecord], brokers: Iterable[int]) -> "Loads":
        """Count the partitions that the given brokers lead now."""
        loads = cls(dict.fromkeys(sorted(brokers), 0))
        for _, _, leadership in partitions_of(topics):
            if leadership.leader in loads.counts:
                loads.counts[leadership.leader] += 1
        return loads

    def keep(self, brokers: Iterable[int]) -> None:
        """Leave out brokers that may not lead any more."""
        may_lead = frozenset(brokers)
        for broker in [count for count in self.counts if count not in may_lead]:
            del self.counts[broker]

    def take_least(self, preferred: int = NO_LEADER) -> int:
        """Return and count `preferred` if it may lead, else the broker with the least load."""
        if preferred in self.counts:
            chosen = preferred
        else:
            chosen = min(self.counts, key=lambda broker: (self.counts[broker], broker))
        self.counts[chosen] += 1
        return chosen

    def by_load(self) -> list[int]:
        """Return the brokers in ascending order of load."""
        return sorted(self.counts, key=lambda broker: (self.counts[broker], broker))


def partitions_of(
    topics: Iterable[TopicRecord],
) -> Iterator[tuple[str, int, PartitionLeadership]]:
    """Yield every partition of topics that are not deleted, in order of names and numbers."""
    for record in sorted(topics, key=lambda record: record.name):
        if not record.is_deleted:
            for partition, leadership in enumerate(record.partitions):
                yield record.name, partition, leadership


def spread(count: int, loads: Loads) -> list[int]:
    """Return the leaders of `count` new partitions: round-robin in ascending order of load."""
    order = loads.by_load()
    assert order, "at least one broker is up"
    leaders = [order[number % len(order)] for number in range(count)]
    for leader in leaders:
        loads.counts[leader] += 1
    return leaders


def plan_leaders(
    topics: Iterable[TopicRecord], may_lead: Sequence[int], alive: Sequence[int]
) -> Plan:
    """Plan a leader for each partition whose leader is gone or leaving, all in one pass.

    `alive` are the brokers that are up; `may_lead` those of them that are not leaving. If
    `may_lead` is empty, a leaving broker keeps its partitions, and those of a dead one get
    NO_LEADER.
    """
    known = list(topics)
    loads = Loads.of(known, may_lead)
    up = frozenset(alive)
    moves: list[LeaderMove] = []
    for topic, partition, seen in partitions_of(known):
        if seen.leader in loads.counts:
            continue
        if loads.counts:
            leader = loads.take_least(seen.preferred)
        elif seen.leader in up or seen.leader == NO_LEADER:
            continue
        else:
            leader = NO_LEADER
        moves.append(LeaderMove(topic, partition, seen, leader))
    return moves


def plan_new_epochs(topics: Iterable[TopicRecord], restarted: int) -> Plan:
    """Plan a new epoch for each partition of a broker that restarted and so lost its open logs."""
    return [
        LeaderMove(topic, partition, seen, restarted)
        for topic, partition, seen in partitions_of(topics)
        if seen.leader == restarted
    ]


def plan_preferred(topics: Iterable[TopicRecord], settled: Sequence[int], limit: int) -> Plan:
    """Plan up to `limit` moves of partitions back to their preferred brokers. Those must be
    settled: up for a while, and not leaving.
    """
    ready = frozenset(settled)
    moves: list[LeaderMove] = []
    for topic, partition, seen in partitions_of(topics):
        if len(moves) >= limit:
            break
        if seen.leader not in (seen.preferred, NO_LEADER) and seen.preferred in ready:
            moves.append(LeaderMove(topic, partition, seen, seen.preferred))
    return moves


def plan_balance(topics: Iterable[TopicRecord], settled: Sequence[int], limit: int) -> Plan:
    """Plan up to `limit` permanent moves from brokers that lead many partitions to those that lead
    few, such as new ones. Plan nothing while all are near their fair share.
    """
    known = list(topics)
    loads = Loads.of(known, settled)
    if len(loads.counts) < 2:  # noqa: PLR2004 - no other broker to move to
        return []
    fair = sum(loads.counts.values()) / len(loads.counts)
    if max(loads.counts.values()) <= fair * (1 + IMBALANCE_SHARE) + 1:
        return []
    moves: list[LeaderMove] = []
    for topic, partition, seen in partitions_of(known):
        if len(moves) >= limit:
            break
        if seen.leader not in loads.counts or seen.preferred != seen.leader:
            continue
        least = loads.by_load()[0]
        if loads.counts[seen.leader] > fair and loads.counts[least] + 1 <= fair:
            loads.counts[seen.leader] -= 1
            loads.counts[least] += 1
            moves.append(LeaderMove(topic, partition, seen, least, makes_preferred=True))
    return moves


def apply_moves(record: TopicRecord, moves: Sequence[LeaderMove]) -> TopicRecord | None:
    """Return a topic after the moves that still apply to it; None if none does."""
    leaders: dict[int, int] = {}
    preferred: dict[int, int] = {}
    for move in moves:
        if record.is_deleted or move.partition >= len(record.partitions):
            continue
        if record.partitions[move.partition] == move.seen:
            leaders[move.partition] = move.leader
            if move.makes_preferred:
                preferred[move.partition] = move.leader
    if not leaders:
        return None
    return record.with_leaders(leaders).with_preferred(preferred)


UNCLEAN: Final = "quire.unclean"
"""Setting of a topic: a list `partition:epoch,...` of the leader epochs from which on a partition
may be taken over by protocol rule 11.6. Clients neither see nor alter it.
"""
READ_MAX: Final = 16
"""Number of lists that are kept as read: one is asked for each partition of its topic."""


def unclean_since(stored: Mapping[str, str], partition: int, epoch: int) -> int | None:
    """Return the epoch from which on an unclean leadership of a partition is requested; None if
    none is requested up to `epoch`.

    A mark applies until any broker has begun a leadership of that epoch or a later one, over any
    number of attempts. Later leaderships follow the topic's settings.
    """
    asked = unclean_epochs(stored).get(partition)
    return asked if asked is not None and asked <= epoch else None


def unclean_epochs(stored: Mapping[str, str]) -> Mapping[int, int]:
    """Return the requested epochs, by partition."""
    return _epochs_in(stored.get(UNCLEAN, ""))


@lru_cache(READ_MAX)
def _epochs_in(noted: str) -> Mapping[int, int]:
    pairs = (part.split(":") for part in noted.split(",") if part)
    return MappingProxyType({int(partition): int(epoch) for partition, epoch in pairs})


def with_unclean(stored: Mapping[str, str], asked: Mapping[int, int]) -> dict[str, str]:
    """Return a topic's stored settings with the given partitions' epochs added; marks of other
    partitions stay.
    """
    epochs = {**unclean_epochs(stored), **asked}
    noted = ",".join(f"{partition}:{epoch}" for partition, epoch in sorted(epochs.items()))
    return {**stored, UNCLEAN: noted}
