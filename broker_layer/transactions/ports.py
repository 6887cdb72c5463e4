"""Interfaces of transactions to the rest of a broker.

Leaves their implementations to `broker_layer.log.state_log`, `view_leaders`, `local_markers` and
`metadata.store.number_blocks`.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Protocol

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.peer import PeerAddress
from broker_layer.transactions.values import Marker, TopicPartition


class DurableLog(Protocol):
    """The records of one state partition, in order (`broker_layer.log.state_log.StateLog`)."""

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this broker leads the partition."""

    def append(self, record: bytes) -> Future[None]:
        """Append in order; the future is done when the record is durable. Raises TopicError if
        the log does not accept it.
        """

    async def aclose(self) -> None:
        """Close the log in order."""


class OpenDurableLog(Protocol):
    """Function that takes a state partition over."""

    def __call__(
        self,
        *,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
    ) -> Awaitable[DurableLog]:
        """Replay every record through `load` and open the log."""


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
    """The topic is known to be deleted."""


class PartitionLeaders(Protocol):
    """Source of the leaders of partitions, including internal ones."""

    def leader_of(self, partition: TopicPartition) -> PeerAddress | NoLeader:
        """Return the leader that this broker knows."""


class LocalMarkers(Protocol):
    """Writer of markers to the partitions that this broker leads."""

    def write(self, partition: TopicPartition, marker: Marker) -> Awaitable[ErrorCode]:
        """Append a marker before this returns; the result comes when it is committed or refused.

        Refusals: NOT_LEADER_OR_FOLLOWER; TRANSACTION_COORDINATOR_FENCED if the partition knows a
        newer coordinator of this producer; INVALID_PRODUCER_EPOCH if it knows a newer epoch.
        """
