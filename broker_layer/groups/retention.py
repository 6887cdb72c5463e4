"""Removal of expired offsets from one group, and of the group when it is empty.

Leaves the rules to `offset_expiry`, and the times of the checks to `coordinator`.

Source: KIP-211; Kafka's offset expiration of groups with and without members.
"""

from collections.abc import Sequence

from broker_layer.groups.classic.classic_group import ClassicGroup
from broker_layer.groups.consumer.consumer_group import ConsumerGroup
from broker_layer.groups.group_host import GroupHost
from broker_layer.groups.offsets.offset_expiry import expired_places
from broker_layer.groups.offsets.offset_table import GroupOffsets, OffsetPlace, is_current
from broker_layer.groups.records import GroupRemoved, removed_records
from broker_layer.groups.topics import GroupTopics
from broker_layer.groups.values import GroupState


def expire_group(host: GroupHost, group_id: str, topics: GroupTopics, gone: Sequence[str]) -> None:
    """Write the removal of expired offsets, and of those of topics that are gone. Raises TopicError
    if the log does not accept it.
    """
    shard = host.shard
    offsets = shard.offsets.of(group_id)
    group = shard.groups.get(group_id)
    consumers = shard.consumers.get(group_id)
    if offsets is not None:
        places = [(topic, each) for topic in gone for each in offsets.committed[topic]]
        places += _stale(offsets, topics) + _expired(host, group, consumers, offsets)
        host.write(removed_records(group_id, list(dict.fromkeys(places))))
    if consumers is not None and consumers.members:
        return
    is_empty = group is None or (group.state is GroupState.EMPTY and not group.roster.pending)
    if is_empty and shard.offsets.of(group_id) is None:
        if shard.is_stored(group_id):
            host.write([GroupRemoved(group_id)])
        shard.groups.pop(group_id, None)
        shard.consumers.pop(group_id, None)


def _stale(offsets: GroupOffsets, topics: GroupTopics) -> list[OffsetPlace]:
    """Return the places of offsets that belong to an earlier topic of the same name."""
    stale: list[OffsetPlace] = []
    for topic, partition, committed in offsets.all():
        if not is_current(committed, topics.topic_id_of(topic)):
            stale.append((topic, partition))
    return stale


def _expired(
    host: GroupHost,
    group: ClassicGroup | None,
    consumers: ConsumerGroup | None,
    offsets: GroupOffsets,
) -> list[OffsetPlace]:
    unused_ms: int | None = None
    read_topics: tuple[str, ...] = ()
    if consumers is not None:
        read_topics = consumers.subscription()
    elif group is not None and group.state is GroupState.EMPTY and group.protocol_type:
        unused_ms = group.state_changed_ms
    elif group is not None and group.roster.members:
        subscription = group.subscription()
        if subscription is None or group.state is not GroupState.STABLE:
            return []
        read_topics = subscription
    return expired_places(
        offsets,
        unused_ms=unused_ms,
        read_topics=read_topics,
        wall_ms=host.clock.wall_clock_ms(),
        retention_ms=host.shard.config.offsets_retention_ms,
    )
