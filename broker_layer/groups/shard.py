"""Groups and offsets of one partition of `__consumer_offsets`: replay, snapshot, lookup.

Leaves appending to `group_host`, and the behaviour of groups to their state machines.

Invariants: loading a snapshot into an empty shard restores the stored state. A group in the middle
of a rebalance is in the snapshot as it was last stored.
"""

from collections.abc import Iterator

from broker_layer.groups.classic_group import ClassicGroup
from broker_layer.groups.consumer_group import ConsumerGroup
from broker_layer.groups.offset_table import OffsetTable, PlacedOffset
from broker_layer.groups.records import (
    GroupRecord,
    GroupRemoved,
    OffsetsCommitted,
    OffsetsPending,
    OffsetsRemoved,
    ProducerSeen,
    TransactionEnded,
    committed_records,
    decode,
    encode,
    pending_records,
    removed_records,
)
from broker_layer.groups.values import (
    ClassicImage,
    ConsumerGroupChanged,
    GroupsConfig,
    GroupState,
    GroupTopics,
)


class GroupShard:
    """State of one partition in memory."""

    def __init__(self, config: GroupsConfig, topics: GroupTopics) -> None:
        self.config = config
        self._topics = topics
        self.groups: dict[str, ClassicGroup] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        """The groups of KIP-848; no id is in both."""
        self.offsets = OffsetTable()
        self._stored: dict[str, ClassicImage] = {}
        """Each classic group in its stored form."""

    # ---- the log -------------------------------------------------------------------------------

    def load(self, data: bytes) -> None:
        """Apply one record of the log. Raises MetadataFormatError."""
        record = decode(data)
        if isinstance(record, ConsumerGroupChanged):
            self.consumer_or_new(record.group_id)
        self.apply(record)

    def apply(self, record: GroupRecord) -> None:
        """Apply a record that is stored or being stored.

        Groups of KIP-848 change before they are stored, so this only records that the log has them.
        """
        match record:
            case ConsumerGroupChanged(group_id):
                self.consumers[group_id].note_stored(record)
            case OffsetsCommitted(group_id, offsets):
                self.offsets.commit(group_id, offsets)
            case OffsetsRemoved(group_id, places):
                self.offsets.remove(group_id, places)
            case OffsetsPending(group_id, producer_id, producer_epoch, offsets):
                self.offsets.commit_pending(group_id, producer_id, producer_epoch, offsets)
            case TransactionEnded():
                self.offsets.note_producer(
                    record.producer_id,
                    record.producer_epoch,
                    record.coordinator_epoch,
                    record.wall_ms,
                )
                self.offsets.end_transaction(record.producer_id, record.order)
            case ProducerSeen(producer_id, producer_epoch, coordinator_epoch, wall):
                self.offsets.note_producer(producer_id, producer_epoch, coordinator_epoch, wall)
            case ClassicImage():
                self._stored[record.group_id] = record
            case GroupRemoved(group_id):
                # A classic group may be replaced by one of KIP-848 whose records come next.
                if self._stored.pop(group_id, None) is None:
                    self.consumers.pop(group_id, None)

    def finish_load(self, now_ms: int) -> None:
        """Create the loaded groups; each member's session begins now."""
        for group_id, image in self._stored.items():
            self.groups[group_id] = ClassicGroup.from_image(image, self.config, now_ms)
        for group in self.consumers.values():
            group.restore(now_ms)

    def snapshot(self) -> Iterator[bytes]:
        """Return records of the complete stored state."""
        for producer_id, seen in self.offsets.producers.items():
            yield encode(
                ProducerSeen(producer_id, seen.producer_epoch, seen.coordinator_epoch, seen.used_ms)
            )
        for image in self._stored.values():
            yield encode(image)
        for group in self.consumers.values():
            yield from map(encode, group.stored_records())
        for group_id, offsets in self.offsets.groups.items():
            for committed in committed_records(group_id, offsets.all()):
                yield encode(committed)
            for producer_id, places in offsets.pending.items():
                epoch = self.offsets.producers[producer_id].producer_epoch
                placed = [PlacedOffset(*place, offset) for place, offset in places.items()]
                for pending in pending_records(group_id, producer_id, epoch, placed):
                    yield encode(pending)

    # ---- groups --------------------------------------------------------------------------------

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return an existing classic group; a group that has only offsets is one too."""
        group = self.groups.get(group_id)
        if group_id in self.consumers:
            return None
        if group is None and self.offsets.of(group_id) is not None:
            return ClassicGroup(group_id, self.config)  # never had members: "simple" to Kafka
        return group

    def classic_or_new(self, group_id: str) -> ClassicGroup:
        """Return a classic group; create it if it does not exist."""
        assert group_id not in self.consumers, "a group has one type"
        return self.groups.setdefault(group_id, ClassicGroup(group_id, self.config))

    def consumer_or_new(self, group_id: str) -> ConsumerGroup:
        """Return a group of KIP-848; create it if it does not exist."""
        group = self.consumers.get(group_id)
        if group is None:
            group = ConsumerGroup(group_id, self.config, self._topics)
            self.consumers[group_id] = group
        return group

    def group_ids(self) -> list[str]:
        """Return the ids of all groups, including those that have only offsets."""
        return list(dict.fromkeys([*self.groups, *self.consumers, *self.offsets.groups]))

    def drop_if_unused(self, group_id: str) -> None:
        """Drop an empty group from memory if it was never stored."""
        group = self.groups.get(group_id)
        is_idle = group is not None and group.state is GroupState.EMPTY and not group.roster.pending
        if is_idle and group_id not in self._stored:
            del self.groups[group_id]
        consumers = self.consumers.get(group_id)
        if consumers is not None and not consumers.members and not consumers.is_stored:
            del self.consumers[group_id]

    def removal_records(self, group_id: str) -> list[GroupRecord]:
        """Return the records that remove a group and all its offsets."""
        records: list[GroupRecord] = []
        offsets = self.offsets.of(group_id)
        if offsets is not None:
            places = [(topic, partition) for topic, partition, _ in offsets.all()]
            records += removed_records(group_id, places)
        if self.is_stored(group_id):
            records.append(GroupRemoved(group_id))
        return records

    def is_stored(self, group_id: str) -> bool:
        """Whether the log has the group."""
        consumers = self.consumers.get(group_id)
        is_consumer = consumers is not None and consumers.is_stored
        return self.is_classic_stored(group_id) or is_consumer

    def is_classic_stored(self, group_id: str) -> bool:
        """Whether the log has a classic group of this id."""
        return group_id in self._stored
