"""Opening of the object that serves a partition: a topic's log, or a coordinator's state.

Leaves the times of opening and closing to `assigned_partition`, and the meaning of the state to the
coordinators.

Invariant: an object that fails reports it once to its opener, and only the opener closes it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from broker_layer.control.assigned_partition import OpenedPartition
from broker_layer.control.assignment import unclean_since
from broker_layer.control.cluster_view import ClusterView
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.log_services import LogServices
from broker_layer.log.state_log import OpenDurableLog, StateLog
from broker_layer.log.topic_configs import LogConfig, TopicDefaults, log_config
from broker_layer.log.topic_log import TopicLog
from ledger_client import LedgerError
from metadata.errors import MetadataError, TopicNotFoundError
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicStore


class CoordinatorPartitions(Protocol):
    """A coordinator of groups or transactions: the methods that load and close its partitions."""

    async def load(self, partition: int, open_log: OpenDurableLog) -> None:
        """Load a partition and serve it. May be cancelled. Raises TopicError, LedgerError or
        MetadataError if it cannot be loaded now.
        """

    async def resign(self, partition: int) -> None:
        """Stop serving a partition and close its log; also after loading it failed."""


@dataclass(slots=True)
class LoadedState:
    """A loaded partition of a coordinator."""

    coordinator: CoordinatorPartitions
    partition: int

    async def aclose(self) -> None:
        """Make the coordinator resign."""
        await self.coordinator.resign(self.partition)


@dataclass(eq=False, repr=False)
class PartitionOpener:
    """Opens partitions by their topics; `coordinators` maps internal topics to coordinators."""

    _services: LogServices
    _view: ClusterView
    _defaults: TopicDefaults
    _coordinators: Mapping[str, CoordinatorPartitions]

    def is_state(self, topic: str) -> bool:
        """Return whether a topic's partitions hold a coordinator's state."""
        return topic in self._coordinators

    async def open(
        self, topic: str, key: PartitionKey, epoch: int, on_failed: Callable[[str], None]
    ) -> OpenedPartition:
        """Take a partition over. Raises TopicError, LedgerError, MetadataError."""
        config = self._config(topic, key, epoch)
        coordinator = self._coordinators.get(topic)
        if coordinator is not None:
            return await self._open_state(coordinator, key, epoch, config, on_failed)
        opened: list[TopicLog] = []

        def failed() -> None:
            failure = opened[0].failure if opened else None
            on_failed("the log failed" if failure is None else failure.text)

        log = await TopicLog.take_over(self._services, topic, key, epoch, config, on_failed=failed)
        opened.append(log)
        return log

    def _config(self, topic: str, key: PartitionKey, epoch: int) -> LogConfig:
        record = self._view.topics.get(topic)
        if record is None or record.topic_id != key.topic_id:
            text = f"topic {topic!r} was deleted, or deleted and created again, during the takeover"
            raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        config = log_config(record.configs, self._defaults)
        since = unclean_since(record.configs, key.partition, epoch)
        return config if since is None else replace(config, unclean_since=since)

    async def _open_state(
        self,
        coordinator: CoordinatorPartitions,
        key: PartitionKey,
        epoch: int,
        config: LogConfig,
        on_partition_failed: Callable[[str], None],
    ) -> OpenedPartition:
        services = self._services

        async def open_log(
            *,
            load: Callable[[bytes], None],
            snapshot: Callable[[], Iterable[bytes]],
            on_failed: Callable[[], None],
        ) -> StateLog:
            def failed() -> None:
                on_failed()
                on_partition_failed("the log of the coordinator's state failed")

            return await StateLog.take_over(
                services,
                key,
                epoch,
                config,
                load=load,
                snapshot=snapshot,
                on_failed=failed,
                has_lapsed=lambda: self._view.lease.has_lapsed,
            )

        try:
            await coordinator.load(key.partition, open_log)
        except BaseException:
            with contextlib.suppress(TopicError, LedgerError, MetadataError):
                await coordinator.resign(key.partition)
            raise
        return LoadedState(coordinator, key.partition)


Reading = asyncio.Task[TopicRecord | None]


class PartitionExistence:
    """Checks whether a partition exists in the present record of its topic.

    A record names all partitions of its topic, and many of them are claimed together. So one read
    serves all callers that were waiting before it was sent. An answer was true at some time during
    the call, even if an earlier read differs.
    """

    def __init__(self, view: ClusterView, topics: TopicStore) -> None:
        self._view = view
        self._topics = topics
        self._due: dict[str, Reading] = {}
        """Reads that were not sent yet, by topic."""
        self._sent: dict[str, Reading] = {}

    async def check(self, key: PartitionKey) -> bool:
        """Return whether a topic has the partition. Raises MetadataError."""
        name = self._view.topic_name_of(key.topic_id)
        if name is None:
            return False  # a leader has read the topic, so the topic was deleted since
        reading = self._due.get(name)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._read(name))
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._due[name] = reading
        record = await asyncio.shield(reading)
        if record is None or record.topic_id != key.topic_id or record.is_deleted:
            return False
        return key.partition < len(record.partitions)

    async def _read(self, name: str) -> TopicRecord | None:
        """Read a record after the read before it has ended; return None if there is no record."""
        if name in self._sent:
            await asyncio.gather(self._sent[name], return_exceptions=True)
        self._sent[name] = self._due.pop(name)
        try:
            return (await self._topics.get(name, fresh=True))[0]
        except TopicNotFoundError:
            return None
        finally:
            del self._sent[name]
