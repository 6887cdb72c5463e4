"""Says what the server needs of the parts below it: partitions' logs, the cluster, transactions.

Leaves being them to `topic_log`, `partition_manager`, `cluster_view` and `transactions`; tests
bring their own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from broker_layer.kafka.record_batch import BatchHeader
from broker_layer.log.partition_state import ActiveProducer
from broker_layer.server.exchange import Buffer

if TYPE_CHECKING:
    from broker_layer.log.pending_batches import Appended


class ReadBatches(Protocol):
    """What a read gives."""

    @property
    def batches(self) -> Sequence[Buffer]:
        """Whole batches, in order."""

    @property
    def high_watermark(self) -> int:
        """As of this read."""

    @property
    def last_stable_offset(self) -> int:
        """As of this read."""

    @property
    def log_start_offset(self) -> int:
        """As of this read."""

    @property
    def aborted(self) -> Sequence[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions in the batches."""


class FoundOffset(Protocol):
    """A record that was looked for by time."""

    @property
    def offset(self) -> int:
        """The record's offset."""

    @property
    def timestamp_ms(self) -> int:
        """Its timestamp."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leadership that appended it."""


class ServedLog(Protocol):
    """One partition's log, as `topic_log.TopicLog` is one."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of this leadership."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def log_end_offset(self) -> int:
        """Behind the last record that was appended."""

    @property
    def high_watermark(self) -> int:
        """Behind the last committed record."""

    @property
    def last_stable_offset(self) -> int:
        """The first offset whose transaction is open, or the high watermark."""

    @property
    def has_room(self) -> bool:
        """Whether more should be appended now."""

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Tell whether a producer's transaction has begun in this partition."""

    def append(
        self,
        header: BatchHeader,
        data: Buffer,
        *,
        coordinator_epoch: int | None = None,
        waits_for_one: bool = False,
    ) -> "asyncio.Future[Appended]":
        """Take a batch. Raises TopicError."""

    async def wait_for_room(self, size: int) -> None:
        """Return when there is room."""

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, at_least_one: bool
    ) -> ReadBatches:
        """Read what is visible. Raises TopicError."""

    async def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """Return the first record with this time or a later one. Raises TopicError."""

    async def max_timestamp(self) -> FoundOffset | None:
        """Return the first record with the greatest time. Raises TopicError."""

    def end_offset_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above this one, and where it ends. Raises TopicError."""

    async def delete_records(self, before_offset: int) -> int:
        """Let the log begin at an offset; return where it begins. Raises TopicError."""

    def active_producers(self) -> Sequence[ActiveProducer]:
        """List who has written lately."""

    def on_progress(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after every move; return what ends that."""


class PartitionLogs(Protocol):
    """Finds logs."""

    def log_of(self, topic: str, partition: int) -> ServedLog:
        """Return the log, if this broker leads the partition. Raises TopicError."""

    def opening(self, topic: str, partition: int) -> asyncio.Event | None:
        """Return what is set once this broker's attempt to lead a partition has ended; None if none
        is under way.
        """


class ClusterNames(Protocol):
    """Knows topics by id, leaders, and where they are."""

    def topic_name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id."""

    def leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return (broker id, leader epoch) as far as is known here; -1: no broker."""

    def address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return where clients of a listener reach a broker."""

    def rack_of(self, broker_id: int) -> str | None:
        """Return the rack that a broker is in, as Metadata says it."""


class Confirmation(Protocol):
    """That a partition is in a producer's open transaction, until a marker comes."""

    def holds(self) -> bool:
        """Tell whether a batch may be appended, without waiting for anything first."""

    def release(self) -> None:
        """Say that it is not needed any more."""


class TransactionVerifier(Protocol):
    """Asks coordinators."""

    def verify(
        self,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str,
        topic: str,
        partition: int,
        *,
        knows_abortable: bool = False,
    ) -> Awaitable[Confirmation]:
        """Return if the partition is in the producer's open transaction. Raises TopicError with the
        code for the producer.
        """
