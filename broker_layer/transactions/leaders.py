"""Leaders of partitions and their addresses, as transactions need them.

Leaves updating the view to `broker_layer.control.cluster_view`.

Invariants: the view shows a topic as deleted only if its record was marked as deleted. The number
of stored partitions is from a read that began after the question.
"""

from collections.abc import Awaitable, Container
from enum import Enum
from typing import Protocol

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.peer import PeerAddress
from broker_layer.transactions.values import Marker, TopicPartition
from metadata.errors import TopicNotFoundError
from metadata.ids import Version
from metadata.topics.topic import TopicRecord


class ProducerIds(Protocol):
    """Source of producer ids (`metadata.store.number_blocks.NumberBlocks`)."""

    async def next(self) -> int:
        """Return an id that no other call in the cluster returns."""


class NoLeader(Enum):
    """Reason why a partition has no reachable leader."""

    NOT_NOW = "not now"
    """The partition has no leader, or its leader is not known to be up."""
    ABSENT = "absent"
    """The view does not show the topic or partition: it is deleted or too new."""
    DELETED = "deleted"
    """The view shows that the topic is deleted; a topic of its name may have been made since."""


class PartitionLeaders(Protocol):
    """Source of the leaders of partitions, including internal ones."""

    def leader_of(self, partition: TopicPartition) -> PeerAddress | NoLeader:
        """Return the leader that this broker knows."""

    async def stored_count(self, topic: str) -> int:
        """Return the number of partitions in the topic's present record; 0 if there is none, or the
        topic is deleted. Raises MetadataError.
        """


class LocalMarkers(Protocol):
    """Writer of markers to the partitions that this broker leads."""

    def write(self, partition: TopicPartition, marker: Marker) -> Awaitable[ErrorCode]:
        """Append a marker before this returns; the result comes when it is committed or refused.

        Refusals: NOT_LEADER_OR_FOLLOWER; TRANSACTION_COORDINATOR_FENCED if the partition knows a
        newer coordinator of this producer; INVALID_PRODUCER_EPOCH if it knows a newer epoch.
        """


class LeaderView(Protocol):
    """Part of the view that is used here (`broker_layer.control.cluster_view.ClusterView`)."""

    @property
    def deleting(self) -> Container[str]:
        """The topics that are marked as deleted."""

    def leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return a partition's leader and leader epoch; None if there is no such partition."""

    def address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return a broker's host and port for a listener; None if it has none."""


class TopicRecords(Protocol):
    """The method of `metadata.topics.topic_store.TopicStore` that is used here."""

    async def get(self, name: str, *, fresh: bool = False) -> tuple[TopicRecord, Version]:
        """Read a topic. Raises TopicNotFoundError, MetadataError."""


class ViewLeaders:
    """Leaders in one broker's view, with their addresses on one listener."""

    def __init__(self, view: LeaderView, listener: str, records: TopicRecords) -> None:
        self._view = view
        self._listener = listener
        self._records = records

    def leader_of(self, partition: TopicPartition) -> PeerAddress | NoLeader:
        """Return the leader, or the reason why there is none."""
        if partition.topic in self._view.deleting:
            return NoLeader.DELETED
        current = self._view.leader_of(partition.topic, partition.partition)
        if current is None:
            return NoLeader.ABSENT
        leader, _ = current
        address = self._view.address_of(leader, self._listener)
        return NoLeader.NOT_NOW if address is None else PeerAddress(leader, *address)

    async def stored_count(self, topic: str) -> int:
        """Return the number of partitions in the topic's record; see `ports.PartitionLeaders`."""
        try:
            record, _ = await self._records.get(topic, fresh=True)
        except TopicNotFoundError:
            return 0
        return 0 if record.is_deleted else len(record.partitions)
