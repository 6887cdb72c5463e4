"""Interfaces of transactions to the rest of a broker.

Leaves their implementations to `view_leaders`, `local_markers` and `metadata.store.number_blocks`.
"""

from collections.abc import Awaitable
from enum import Enum
from typing import Protocol

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.peer import PeerAddress
from broker_layer.transactions.values import Marker, TopicPartition


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
