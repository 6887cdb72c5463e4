"""Coordinator of the groups whose partitions of `__consumer_offsets` this broker leads.

Leaves single partitions to `group_host`, requests to the handlers, and the choice of partitions to
the partition manager.

Invariants: a partition is served only from the end of its load until its resignation or the failure
of its log, and never while the broker's session may have lapsed. While it loads, all requests for
its groups are refused. Expired offsets are removed from a group, and the group when it is empty.

Source: topics design, "The mapping" (groups); KIP-211; Kafka's offset expiration of groups with and
without members.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, LedPartitions
from broker_layer.errors import TopicError
from broker_layer.groups.classic_group import ClassicGroup
from broker_layer.groups.consumer_group import ConsumerGroup
from broker_layer.groups.group_host import Clock, GroupHost, TimerKey, Timers
from broker_layer.groups.offset_table import GroupOffsets, OffsetPlace, expired_places, is_current
from broker_layer.groups.records import (
    GroupRemoved,
    TransactionEnded,
    committed_records,
    removed_records,
)
from broker_layer.groups.shard import GroupShard
from broker_layer.groups.values import GroupsConfig, GroupState, GroupTopics
from broker_layer.handlers import Turns
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import OpenDurableLog


class GroupCoordinator:
    """All groups of one broker."""

    def __init__(
        self,
        config: GroupsConfig,
        topics: GroupTopics,
        rng: Random,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.topics = topics
        self._rng = rng
        self._clock = Clock(wall_clock_ms)
        self._timers = Timers(self._on_due)
        count = partial(topics.partition_count, CONSUMER_OFFSETS)
        self._hosts = LedPartitions[GroupHost](CONSUMER_OFFSETS, count)
        self._upkeep: asyncio.Task[None] | None = None
        self._absent_before: dict[str, None] = {}
        """Topics with offsets that did not exist at the last `expire`."""
        self._stop_following = topics.on_topics_change(self._on_topics_changed)

    # ---- partitions ----------------------------------------------------------------------------

    async def load(self, partition: int, open_log: OpenDurableLog) -> None:
        """Take a partition over; return when it is served. Raises what `open_log` raises, and
        TopicError if a record cannot be read.
        """
        shard = GroupShard(self.config, self.topics)
        host = GroupHost(partition, shard, self._clock, self._timers)
        await self._hosts.load(host, host.load(open_log))
        if self._upkeep is None:
            self._upkeep = asyncio.get_running_loop().create_task(self._keep_up())

    async def resign(self, partition: int) -> None:
        """Close a partition's log and drop its groups; do nothing if it is not loaded."""
        await self._hosts.resign(partition)

    async def aclose(self) -> None:
        """Resign all partitions."""
        self._stop_following()
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
            self._upkeep = None
        await self._hosts.aclose()
        self._timers.close()

    def host_of(self, group_id: str) -> GroupHost:
        """Return the partition of a group. Raises TopicError."""
        return self._hosts.of_key(group_id)

    def host_at(self, partition: int) -> GroupHost:
        """Return a loaded partition. Raises TopicError."""
        return self._hosts.at(partition)

    def hosts(self) -> list[GroupHost]:
        """Return the loaded partitions that may be served. Raises TopicError while one loads."""
        return self._hosts.served()

    def new_member_id(self, prefix: str) -> str:
        """Return a unique member id that begins with `prefix`."""
        return f"{prefix}-{uuid.UUID(bytes=self._rng.randbytes(16), version=4)}"

    # ---- transactions and topics ---------------------------------------------------------------

    async def write_markers(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,  # noqa: FBT001 - as in WriteTxnMarkers
    ) -> None:
        """End a producer's transaction on one partition; return when that is durable.

        Raises TopicError: as `LedPartitions.at`, or INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED for a marker that is too late.
        """
        host = self.host_at(partition)
        offsets = host.shard.offsets
        refusal = offsets.producer_refusal(producer_id, producer_epoch, coordinator_epoch)
        if refusal is not ErrorCode.NONE:
            raise TopicError(refusal, f"the marker of producer {producer_id} is too old")
        if committed:
            for group_id, placed in offsets.pending_of(producer_id):
                host.write(committed_records(group_id, placed))
        wall_ms, order = self._clock.wall_clock_ms(), offsets.next_order()
        ended = TransactionEnded(producer_id, producer_epoch, coordinator_epoch, wall_ms, order)
        host.write([ended])
        await host.settled()

    async def expire(self) -> None:
        """Remove offsets after their retention or after their topic is gone, and empty groups. A
        topic is gone if it is missing at this call and was at the last one.
        """
        absent, turns = dict[str, None](), Turns()
        for host in self._hosts.loaded():
            host.shard.offsets.drop_idle_producers(self._clock.wall_clock_ms())
            for group_id in host.shard.group_ids():
                missing = self._absent_topics(host, group_id)
                absent.update(missing)
                gone = [topic for topic in missing if topic in self._absent_before]
                with contextlib.suppress(TopicError):
                    expire_group(host, group_id, self.topics, gone)
                await turns.pass_on()
        self._absent_before = absent

    def _absent_topics(self, host: GroupHost, group_id: str) -> dict[str, None]:
        offsets = host.shard.offsets.of(group_id)
        if offsets is None or not self.topics.is_complete:
            return {}
        is_there = self.topics.topic_id_of
        return {topic: None for topic in offsets.committed if is_there(topic) is None}

    # ---- internals -----------------------------------------------------------------------------

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            await self.expire()

    def _on_due(self, key: TimerKey) -> None:
        partition, group_id = key
        host = self._hosts.find(partition)
        if host is not None:
            host.on_due(group_id)

    def _on_topics_changed(self) -> None:
        for host in self._hosts.loaded():
            for group in host.shard.consumers.values():
                group.note_topics_changed()


def expire_group(host: GroupHost, group_id: str, topics: GroupTopics, gone: Sequence[str]) -> None:
    """Write the removal of expired offsets, and of those of topics that are gone. Raises TopicError
    if the log does not accept it.
    """
    shard = host.shard
    offsets = shard.offsets.of(group_id)
    group = shard.groups.get(group_id)
    consumers = shard.consumers.get(group_id)
    if offsets is not None:
        places = [(topic, partition) for topic in gone for partition in offsets.committed[topic]]
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
        unused_ms = None if consumers.members else consumers.emptied_ms
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
