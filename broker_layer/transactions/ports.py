"""Names what transactions need of the rest of a broker, as interfaces.

Leaves their real versions to `broker_layer.log.state_log`, `view_leaders`, `local_markers` and
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
        """The epoch under which this broker leads the partition."""

    def append(self, record: bytes) -> Future[None]:
        """Append in order; resolved when durable. Raises TopicError when it cannot be taken."""

    async def aclose(self) -> None:
        """End the log in order."""


class OpenDurableLog(Protocol):
    """Takes a state partition over."""

    def __call__(
        self,
        *,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
    ) -> Awaitable[DurableLog]:
        """Replay every record through `load` and open the log."""


class ProducerIds(Protocol):
    """Gives out producer ids (`metadata.store.number_blocks.NumberBlocks`)."""

    async def next(self) -> int:
        """Return an id that no other call in the cluster gets."""


class NoLeader(Enum):
    """Why a partition has no leader to talk to."""

    NOT_NOW = "not now"
    """It has none, or one that is not known to be up."""
    ABSENT = "absent"
    """The topic or partition is not shown: deleted, or too new."""
    DELETED = "deleted"
    """It is known to be deleted."""


class PartitionLeaders(Protocol):
    """Says who leads partitions, internal ones included."""

    def leader_of(self, partition: TopicPartition) -> PeerAddress | NoLeader:
        """Return the leader as this broker knows it."""


class LocalMarkers(Protocol):
    """Writes markers to the partitions that this broker leads."""

    def write(self, partition: TopicPartition, marker: Marker) -> Awaitable[ErrorCode]:
        """Append a marker before this returns; the answer comes when it is committed, or refused.

        Refusals: NOT_LEADER_OR_FOLLOWER, TRANSACTION_COORDINATOR_FENCED when the partition has seen
        a newer coordinator of this producer, INVALID_PRODUCER_EPOCH when a newer producer.
        """
