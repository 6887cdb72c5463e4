"""Management of all partitions that the cluster's record assigns to this broker.

Leaves the steps of one partition to `assigned_partition`, opening to `partition_opener`, and the
choice of leaders to `controller`.

Invariants: a log is found only while its epoch is the one last read from the record, it has not
failed, and the session has not lapsed. After a log has ended for any reason, this broker requests a
new epoch for itself, but only while the record still names it.

Source: topics design, "What a takeover does".
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from broker_layer.control.assigned_partition import (
    AssignedPartition,
    PartitionStatus,
    Stage,
    TakeOverLimits,
    TakeOverSlots,
)
from broker_layer.control.cluster_view import ClusterView, TopicChanged, ViewEvent
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.partition_opener import PartitionOpener
from broker_layer.coordinator_partitions import INTERNAL_TOPICS
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.topic_configs import log_config
from broker_layer.log.topic_log import TopicLog
from ledger_client.tasks import BackgroundTasks
from metadata.backoff import Backoff
from metadata.errors import MetadataError
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import NO_LEADER, TopicRecord
from metadata.topics.topic_store import TopicStore

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

_NONE: Final[Mapping[int, AssignedPartition]] = {}

_log = logging.getLogger("quire.broker.partitions")


class PartitionManager:
    """The partitions that one broker leads, from `start` until `aclose`."""

    def __init__(
        self,
        broker_id: int,
        view: ClusterView,
        topics: TopicStore,
        opener: PartitionOpener,
        config: ControlConfig,
        rng: Random,
    ) -> None:
        self.broker_id = broker_id
        self._view = view
        self._topics = topics
        self._opener = opener
        self._config = config
        self._rng = rng
        self._assigned: dict[str, dict[int, AssignedPartition]] = {}
        self._ending: dict[PartitionKey, AssignedPartition] = {}
        self._needs_epoch: dict[PartitionKey, AssignedPartition] = {}
        self._epochs_wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._limits = self._new_limits()
        self._state_limits = self._new_limits()  # coordinators do not wait behind topics
        self._cancels: list[Cancel] = []
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Begin to lead the partitions that the view assigns to this broker."""
        assert not self._cancels, "started once"
        self._cancels = [
            self._view.on_event(self._on_event),
            self._view.lease.on_lapse(self._on_lapse),
        ]
        for name in list(self._view.topics):
            self._sync(name)
        self._tasks.start(self._get_epochs())

    async def aclose(self) -> None:
        """Close all partitions in order."""
        for cancel in self._cancels:
            cancel()
        everything = list(self._all())
        for assigned in everything:
            assigned.want(None)
        await asyncio.gather(*[assigned.finished() for assigned in everything])
        await self._tasks.aclose()

    # -- finding logs ----------------------------------------------------------------------------

    def log_of(self, topic: str, partition: int) -> TopicLog:
        """Return the log of a partition that this broker leads.

        Raises TopicError: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED for topics of
        coordinators' state, else NOT_LEADER_OR_FOLLOWER. That is also the code while the log is
        being opened: Java consumers stop when a fetch returns LEADER_NOT_AVAILABLE.
        """
        assigned = self._assigned.get(topic, _NONE).get(partition)
        log = None if assigned is None else assigned.serving
        if isinstance(log, TopicLog) and log.failure is None and not self._view.lease.has_lapsed:
            return log
        raise self._no_log(topic, partition)

    def opening(self, topic: str, partition: int) -> asyncio.Event | None:
        """Return the event that is set when the running takeover of a partition has ended; None if
        no takeover is running.
        """
        assigned = self._assigned.get(topic, _NONE).get(partition)
        return None if assigned is None else assigned.opening

    def status_of(self, topic: str, partition: int) -> PartitionStatus | None:
        """Return the status of a partition that this broker is to lead; None for others."""
        assigned = self._assigned.get(topic, _NONE).get(partition)
        return None if assigned is None else assigned.status

    def statuses(self) -> Iterator[tuple[str, int, PartitionStatus]]:
        """Yield topic, partition and status for each partition that this broker is to lead."""
        for topic, partitions in self._assigned.items():
            for partition, assigned in partitions.items():
                yield topic, partition, assigned.status

    def is_offline(self, topic: str, partition: int) -> bool:
        """Return whether this broker is to lead a partition but has failed to for a while."""
        status = self.status_of(topic, partition)
        return status is not None and status.is_offline(asyncio.get_running_loop().time())

    def offline(self) -> Iterator[tuple[PartitionKey, int]]:
        """Yield the offline partitions, with the leader epochs that the record names."""
        now_s = asyncio.get_running_loop().time()
        for partitions in self._assigned.values():
            for assigned in partitions.values():
                if assigned.wanted is not None and assigned.status.is_offline(now_s):
                    yield assigned.key, assigned.wanted

    def logs(self) -> list[TopicLog]:
        """Return the logs that this broker leads now, without coordinators' state."""
        return [
            assigned.serving
            for partitions in self._assigned.values()
            for assigned in partitions.values()
            if isinstance(assigned.serving, TopicLog)
        ]

    @property
    def led_count(self) -> int:
        """Number of partitions that it leads."""
        return sum(1 for _, _, status in self.statuses() if status.stage is Stage.LEADS)

    @property
    def leaderless_count(self) -> int:
        """Number of partitions that it is to lead but does not lead yet."""
        return sum(1 for _, _, status in self.statuses() if status.stage is not Stage.LEADS)

    async def wait_until_empty(self, timeout_s: float) -> bool:
        """Wait until no partition is left, after the registration states that this broker leaves.
        Return whether that happened within the timeout.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while any(True for _ in self._all()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _no_log(self, topic: str, partition: int) -> TopicError:
        named = f"{topic}-{partition}"
        leader = self._view.leader_of(topic, partition)
        if leader is None:
            text = f"this broker knows no partition {named}"
            return TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if topic in INTERNAL_TOPICS:
            text = f"{topic} is internal: clients can neither read nor write it"
            return TopicError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
        if leader[0] != self.broker_id:
            leader_name = "no broker" if leader[0] == NO_LEADER else f"broker {leader[0]}"
            text = f"{named} is led by {leader_name}"
        elif self._view.lease.has_lapsed:
            text = "the session of this broker has lapsed"
        else:
            status = self.status_of(topic, partition)
            text = f"{named} has no leader yet" + (f": {status.reason}" if status else "")
        return TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    # -- following the view ----------------------------------------------------------------------

    def _on_event(self, event: ViewEvent) -> None:
        if isinstance(event, TopicChanged):
            self._sync(event.name)

    def _on_lapse(self) -> None:
        """Make coordinators resign. Unlike logs, they are not looked up through `log_of`."""
        for name in list(self._assigned):
            if self._opener.is_state(name):
                for assigned in self._assigned[name].values():
                    assigned.fail("the session of this broker has lapsed")

    def _sync(self, name: str) -> None:
        """Hold exactly those partitions of a topic that its record assigns to this broker."""
        record = self._view.topics.get(name)
        assigned = self._assigned.get(name, {})
        topic_id = record.topic_id if record is not None else None
        leaderships = record.partitions if record is not None else ()
        for partition, assigned_partition in list(assigned.items()):
            is_ours = partition < len(leaderships) and assigned_partition.key.topic_id == topic_id
            if not is_ours or leaderships[partition].leader != self.broker_id:
                self._end(name, partition)
        for partition, leadership in enumerate(leaderships):
            if leadership.leader == self.broker_id:
                assert record is not None
                self._assign(record, partition).want(leadership.leader_epoch)
        if record is not None and name in self._assigned:
            self._set_config(record, self._assigned[name].values())

    def _assign(self, record: TopicRecord, partition: int) -> AssignedPartition:
        partitions = self._assigned.setdefault(record.name, {})
        if partition not in partitions:
            key = PartitionKey(record.topic_id, partition)
            ending = self._ending.pop(key, None)
            is_state = self._opener.is_state(record.name)
            partitions[partition] = ending or AssignedPartition(
                record.name,
                key,
                partial(self._opener.open, record.name, key),
                self._state_limits if is_state else self._limits,
                self._need_epoch,
                self._served,
            )
        return partitions[partition]

    def _end(self, name: str, partition: int) -> None:
        partitions = self._assigned[name]
        assigned = partitions.pop(partition)
        if not partitions:
            del self._assigned[name]
        self._needs_epoch.pop(assigned.key, None)
        self._ending[assigned.key] = assigned
        assigned.want(None)
        task = asyncio.get_running_loop().create_task(assigned.finished())
        task.add_done_callback(lambda _: self._ended(assigned))

    def _ended(self, assigned: AssignedPartition) -> None:
        if self._ending.get(assigned.key) is assigned:
            del self._ending[assigned.key]
        self._changed.set()

    def _served(self, assigned: AssignedPartition) -> None:
        """Give a log the settings of now: they may have changed during the takeover."""
        record = self._view.topics.get(assigned.topic)
        if record is not None and record.topic_id == assigned.key.topic_id:
            self._set_config(record, [assigned])

    def _set_config(self, record: TopicRecord, partitions: Iterable[AssignedPartition]) -> None:
        try:
            config = log_config(record.configs, self._config.topic_defaults)
        except TopicError as error:
            _log.warning(
                "topic %s keeps its earlier settings, because the new ones are not valid (%s): "
                "change them with `quire topic config`",
                record.name,
                error,
            )
            return
        for assigned in partitions:
            if isinstance(log := assigned.serving, TopicLog):
                wanted = replace(config, unclean_since=log.config.unclean_since)
                if log.config != wanted:
                    log.set_config(wanted)

    # -- new epochs ------------------------------------------------------------------------------

    def _need_epoch(self, assigned: AssignedPartition) -> None:
        self._needs_epoch[assigned.key] = assigned
        self._epochs_wake.set()

    async def _get_epochs(self) -> None:
        """Store new epochs for the partitions that this broker takes over from itself."""
        backoff = Backoff(self._rng)
        while True:
            await self._epochs_wake.wait()
            self._epochs_wake.clear()
            due = dict(self._needs_epoch)
            spent: dict[str, dict[int, int]] = {}
            for key, assigned in due.items():
                spent.setdefault(assigned.topic, {})[key.partition] = assigned.spent
            changes = {
                topic: partial(_with_new_epochs, spent=epochs, broker_id=self.broker_id)
                for topic, epochs in spent.items()
            }
            try:
                records = await self._topics.change_many(changes)
            except Exception as error:  # noqa: BLE001 - partitions need epochs after any error
                level = logging.WARNING if isinstance(error, MetadataError) else logging.ERROR
                _log.log(
                    level, "new leader epochs were not stored; the broker tries again: %s", error
                )
                self._epochs_wake.set()
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.count = 0
            for key, assigned in due.items():
                is_met = assigned.spent == spent[assigned.topic][key.partition]
                if is_met and self._needs_epoch.get(key) is assigned:
                    del self._needs_epoch[key]  # else its new epoch is spent already
            for record in records.values():
                self._view.learn(record)

    def _all(self) -> Iterator[AssignedPartition]:
        for partitions in list(self._assigned.values()):
            yield from list(partitions.values())
        yield from list(self._ending.values())

    def _new_limits(self) -> TakeOverLimits:
        config = self._config
        slots = TakeOverSlots(config.take_overs_at_once, config.take_over_slot_s_max)
        return TakeOverLimits(slots, config.take_over_pause_max_s, self._rng)


def _with_new_epochs(
    record: TopicRecord, *, spent: Mapping[int, int], broker_id: int
) -> TopicRecord | None:
    """Return the record with new epochs for partitions with spent ones that the broker still leads;
    None if there are none.
    """
    leaders = {
        partition: broker_id
        for partition, epoch in spent.items()
        if partition < len(record.partitions)
        and not record.is_deleted
        and record.partitions[partition].leader == broker_id
        and record.partitions[partition].leader_epoch <= epoch
    }
    return record.with_leaders(leaders) if leaders else None
