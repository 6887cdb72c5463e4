"""Coordinator of the groups whose partitions of `__consumer_offsets` this broker leads.

Leaves single partitions to `group_host`, requests to the handlers, and the choice of partitions to
the partition manager.

Invariants: a partition is served only from the end of its load until its resignation or the failure
of its log, and never while the broker's session may have lapsed. While it loads, all requests for
its groups are refused.
Source: topics design, "The mapping" (groups).
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from random import Random

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError
from broker_layer.groups.config import GroupsConfig
from broker_layer.groups.consumer.consumer_records import GroupRecordError
from broker_layer.groups.group_host import Clock, GroupHost
from broker_layer.groups.records import TransactionEnded, committed_records
from broker_layer.groups.retention import expire_group
from broker_layer.groups.shard import GroupShard
from broker_layer.groups.timers import TimerKey, Timers
from broker_layer.groups.topics import GroupTopics
from broker_layer.java_hash import partition_of_key
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import DurableLog, OpenDurableLog
from broker_layer.turns import Turns


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
        self._hosts: dict[int, GroupHost] = {}
        self._loading: dict[int, GroupHost] = {}
        self._upkeep: asyncio.Task[None] | None = None
        self._absent_before: dict[str, None] = {}
        """Topics with offsets that did not exist at the last `expire`."""
        self._stop_following = topics.on_topics_change(self._on_topics_changed)

    # ---- partitions ----------------------------------------------------------------------------

    async def load(self, partition: int, epoch: int, open_log: OpenDurableLog) -> None:
        """Take a partition over; return when it is served. Raises what `open_log` raises, and
        TopicError if a record cannot be read.
        """
        assert partition not in self._hosts, "resigned before it is loaded again"
        shard = GroupShard(self.config, self.topics)
        host = GroupHost(partition, shard, self._clock, self._timers)
        self._loading[partition] = host
        try:
            log = await open_log(
                load=shard.load,
                snapshot=shard.snapshot,
                on_failed=host.end,  # the partition manager resigns it, and loads it again
            )
        except GroupRecordError as error:
            self._loading.pop(partition, None)
            text = (
                f"{CONSUMER_OFFSETS}-{partition} cannot be loaded in epoch {epoch}: a record is "
                f"{error}. If all brokers have this release, keep its ledgers and report this"
            )
            raise TopicError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error
        except BaseException:
            self._loading.pop(partition, None)
            raise
        if self._loading.pop(partition, None) is not host:
            await log.aclose()
            text = (
                f"{CONSUMER_OFFSETS}-{partition} was given to another broker while it was loaded: "
                "find the coordinator again, and retry there"
            )
            raise TopicError(ErrorCode.NOT_COORDINATOR, text)
        self._serve(partition, host, log)

    async def resign(self, partition: int) -> None:
        """Close a partition's log and drop its groups; do nothing if it is not loaded."""
        self._loading.pop(partition, None)
        host = self._hosts.pop(partition, None)
        if host is not None:
            await host.aclose()

    async def aclose(self) -> None:
        """Resign all partitions."""
        self._stop_following()
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
            self._upkeep = None
        for partition in list(self._hosts):
            await self.resign(partition)
        self._timers.close()

    def host_of(self, group_id: str) -> GroupHost:
        """Return the partition of a group. Raises TopicError: NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, or COORDINATOR_NOT_AVAILABLE while there are no partitions.
        """
        count = self.topics.partition_count(CONSUMER_OFFSETS)
        if count == 0:
            text = f"{CONSUMER_OFFSETS} does not exist yet: find the coordinator, which creates it"
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return self.host_at(partition_of_key(group_id, count))

    def host_at(self, partition: int) -> GroupHost:
        """Return a loaded partition. Raises TopicError as `host_of`."""
        if partition in self._loading:
            text = f"{CONSUMER_OFFSETS}-{partition} is loading: retry"
            raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
        host = self._hosts.get(partition)
        if host is None:
            text = (
                f"this broker does not lead {CONSUMER_OFFSETS}-{partition}: find the coordinator "
                "again, and retry there"
            )
            raise TopicError(ErrorCode.NOT_COORDINATOR, text)
        if host.refusal is not None:
            raise host.refusal
        return host

    def hosts(self) -> list[GroupHost]:
        """Return the loaded partitions that may be served. Raises TopicError
        COORDINATOR_LOAD_IN_PROGRESS while one loads, because a list without it would be wrong.
        """
        if self._loading:
            text = f"partitions of {CONSUMER_OFFSETS} are loading: retry"
            raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
        return [each for each in self._hosts.values() if each.refusal is None]

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

        Raises TopicError: as `host_of`, or INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED
        for a marker that is too late.
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
        for host in list(self._hosts.values()):
            host.shard.offsets.drop_idle_producers(self._clock.wall_clock_ms())
            for group_id in host.shard.group_ids():
                missing = self._absent_topics(host, group_id)
                absent.update(missing)
                gone = [each for each in missing if each in self._absent_before]
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

    def _serve(self, partition: int, host: GroupHost, log: DurableLog) -> None:
        self._hosts[partition] = host
        host.start(log)
        if self._upkeep is None:
            self._upkeep = asyncio.get_running_loop().create_task(self._keep_up())

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            await self.expire()

    def _on_due(self, key: TimerKey) -> None:
        partition, group_id = key
        host = self._hosts.get(partition)
        if host is not None:
            host.on_due(group_id)

    def _on_topics_changed(self) -> None:
        for host in self._hosts.values():
            for group in host.shard.consumers.values():
                group.note_topics_changed()
