"""Committed offsets of all groups of one partition, and those pending in transactions.

Leaves permission to commit to the groups, durability to the shell, and bytes to `records`.

Invariants: an offset is removed only by a removal that names it; it does not expire while an open
transaction will commit its partition. Between a direct commit and one by a transaction, the later
*request* wins, regardless of when the marker comes. A marker of an older producer or coordinator
epoch changes nothing.

Source: KIP-98 (pending offsets), KIP-211 (retention: offsets are kept while their group has members
that read the topic, and for the retention time after that), KIP-447.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_layer.kafka.error_codes import ErrorCode

NO_EXPIRY: Final = -1
PRODUCER_EXPIRY_MS: Final = 24 * 3_600_000
"""Time after which the epoch of a producer without pending offsets is dropped, as in Kafka."""


class CommittedOffset(NamedTuple):
    """Committed offset of a group in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int
    """Wall clock; NO_EXPIRY unless an old client requested a specific retention."""
    topic_id: bytes
    """Id of its topic: a later topic of the same name has another id."""
    order: int
    """Number of the commit in this table; later ones are higher."""


def is_current(committed: CommittedOffset, topic_id: bytes | None) -> bool:
    """Return whether an offset belongs to the present topic of its name. The answer is true while
    no such topic is known: the view may lag, and a hidden offset makes a consumer start again.
    """
    return topic_id is None or committed.topic_id in (b"", topic_id)


class PlacedOffset(NamedTuple):
    """A committed offset with its topic and partition."""

    topic: str
    partition: int
    committed: CommittedOffset


OffsetPlace = tuple[str, int]
"""(topic, partition)."""


@dataclass(slots=True)
class ProducerEpoch:
    """The newest epochs seen of a transactional producer."""

    producer_epoch: int
    coordinator_epoch: int
    used_ms: int
    connection_id: int = 0
    """Newest connection on which the epoch sent offsets; 0 if unknown. Later ones have higher
    numbers.
    """


@dataclass(slots=True)
class GroupOffsets:
    """The offsets of one group."""

    committed: dict[str, dict[int, CommittedOffset]] = field(default_factory=dict)
    pending: dict[int, dict[OffsetPlace, CommittedOffset]] = field(default_factory=dict)
    """Producer id -> offsets that its open transaction will commit."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed or pending."""
        return not self.committed and not self.pending

    def put(self, placed: PlacedOffset) -> None:
        """Add a commit, unless there is a later one."""
        partitions = self.committed.setdefault(placed.topic, {})
        current = partitions.get(placed.partition)
        if current is None or current.order <= placed.committed.order:
            partitions[placed.partition] = placed.committed

    def is_pending(self, place: OffsetPlace) -> bool:
        """Whether an open transaction will commit this partition."""
        return any(place in places for places in self.pending.values())

    def all(self) -> Iterator[PlacedOffset]:
        """Yield all committed offsets."""
        for topic, partitions in self.committed.items():
            for partition, committed in partitions.items():
                yield PlacedOffset(topic, partition, committed)


class OffsetTable:
    """All offsets of one coordinator partition."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupOffsets] = {}
        self.producers: dict[int, ProducerEpoch] = {}
        self._open: dict[int, dict[str, None]] = {}
        """Producer id -> groups in which it has pending offsets."""
        self._order = 0

    def next_order(self) -> int:
        """Return the order of the next commit."""
        self._order += 1
        return self._order

    def of(self, group_id: str) -> GroupOffsets | None:
        """Return the offsets of a group; None if it has none."""
        return self.groups.get(group_id)

    def commit(self, group_id: str, offsets: Iterable[PlacedOffset]) -> None:
        """Apply a direct commit."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = GroupOffsets()
        for placed in offsets:
            self._order = max(self._order, placed.committed.order)
            group.put(placed)

    def commit_pending(
        self, group_id: str, producer_id: int, producer_epoch: int, offsets: Iterable[PlacedOffset]
    ) -> None:
        """Apply a commit that waits for the end of the producer's transaction."""
        group = self.groups.setdefault(group_id, GroupOffsets())
        places = group.pending.setdefault(producer_id, {})
        used_ms = 0
        for topic, partition, committed in offsets:
            self._order = max(self._order, committed.order)
            places[topic, partition] = committed
            used_ms = committed.committed_ms
        self._open.setdefault(producer_id, {})[group_id] = None
        self.note_producer(producer_id, producer_epoch, -1, used_ms)

    def pending_of(self, producer_id: int) -> list[tuple[str, tuple[PlacedOffset, ...]]]:
        """Return the offsets that a producer's open transaction will commit, by group."""
        return [
            (
                group_id,
                tuple(
                    PlacedOffset(*place, committed)
                    for place, committed in self.groups[group_id].pending[producer_id].items()
                ),
            )
            for group_id in self._open.get(producer_id, {})
        ]

    def end_transaction(self, producer_id: int, order: int) -> None:
        """Drop the offsets that waited for a marker. Those with a higher order than the marker
        belong to the next transaction, although they were loaded before the marker.
        """
        self._order = max(self._order, order)
        for group_id in list(self._open.get(producer_id, {})):
            group = self.groups[group_id]
            places = group.pending.pop(producer_id)
            later = {place: offset for place, offset in places.items() if offset.order > order}
            if later:
                group.pending[producer_id] = later
            else:
                del self._open[producer_id][group_id]
                self._drop_if_empty(group_id)
        if not self._open.get(producer_id):
            self._open.pop(producer_id, None)

    def remove(self, group_id: str, places: Iterable[OffsetPlace]) -> None:
        """Apply a removal of committed offsets."""
        group = self.groups.get(group_id)
        if group is None:
            return
        for topic, partition in places:
            partitions = group.committed.get(topic, {})
            partitions.pop(partition, None)
            if not partitions:
                group.committed.pop(topic, None)
        self._drop_if_empty(group_id)

    def note_producer(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, used_ms: int
    ) -> None:
        """Record the newest epochs of a producer."""
        known = self.producers.setdefault(producer_id, ProducerEpoch(producer_epoch, -1, used_ms))
        known.producer_epoch = max(known.producer_epoch, producer_epoch)
        known.coordinator_epoch = max(known.coordinator_epoch, coordinator_epoch)
        known.used_ms = max(known.used_ms, used_ms)

    def producer_refusal(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int | None = None
    ) -> ErrorCode:
        """Return why a producer's commit, or a coordinator's marker, is too late; NONE if it is
        not.
        """
        known = self.producers.get(producer_id)
        if known is None:
            return ErrorCode.NONE
        if producer_epoch < known.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch is not None and coordinator_epoch < known.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def has_open_transaction(self, group_id: str) -> bool:
        """Whether the group still waits for a marker."""
        group = self.groups.get(group_id)
        return group is not None and bool(group.pending)

    def drop_idle_producers(self, wall_ms: int) -> None:
        """Drop the epochs of producers that are unused for PRODUCER_EXPIRY_MS."""
        old = [
            producer_id
            for producer_id, known in self.producers.items()
            if wall_ms - known.used_ms > PRODUCER_EXPIRY_MS and producer_id not in self._open
        ]
        for producer_id in old:
            del self.producers[producer_id]

    def _drop_if_empty(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is not None and group.is_empty:
            del self.groups[group_id]


def is_expired(committed: CommittedOffset, unused_ms: int, wall_ms: int, retention_ms: int) -> bool:
    """Return whether an offset that is unused since `unused_ms` (wall clock) has expired."""
    if committed.expires_ms != NO_EXPIRY:
        return wall_ms >= committed.expires_ms
    return wall_ms - unused_ms >= retention_ms


def expired_places(
    offsets: GroupOffsets,
    *,
    unused_ms: int | None,
    read_topics: tuple[str, ...],
    wall_ms: int,
    retention_ms: int,
) -> list[OffsetPlace]:
    """Return the places of expired offsets of a group that reads `read_topics`.

    `unused_ms` is the time since which the group has no members. It is None if the group has some
    or never had any; then the commit time of each offset applies, as for one committed later.
    """
    return [
        (topic, partition)
        for topic, partition, committed in offsets.all()
        if topic not in read_topics
        and not offsets.is_pending((topic, partition))
        and is_expired(
            committed,
            max(unused_ms or 0, committed.committed_ms),
            wall_ms,
            retention_ms,
        )
    ]
