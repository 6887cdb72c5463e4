"""Interfaces of the parts that the server uses: partitions' logs, cluster names, transactions.

Leaves the implementations to `log.topic_log`, `control.partition_manager`, `control.cluster_view`
and `transactions.verification`; tests use others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.frames import Buffer
from broker_layer.kafka.record_batch import RecordBatchHeader
from broker_layer.log.log_reader import RecordPosition
from broker_layer.log.pending_batches import MayOpen, never_opens
from broker_layer.log.state.partition_state import ActiveProducer
from broker_layer.log.topic_log import LogReadResult
from broker_layer.transactions.values import Claim, TopicPartition
from broker_layer.transactions.verification import Confirmation

if TYPE_CHECKING:
    from broker_layer.log.pending_batches import Appended


class PartitionLog(Protocol):
    """One partition's log; `topic_log.TopicLog` implements it."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of this leadership."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last appended record."""

    @property
    def high_watermark(self) -> int:
        """The offset after the last committed record."""

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark."""

    @property
    def has_room(self) -> bool:
        """Whether a batch can be appended without waiting."""

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer's transaction is open in this partition."""

    def append(
        self,
        header: RecordBatchHeader,
        data: Buffer,
        *,
        coordinator_epoch: int | None = None,
        may_open: MayOpen = never_opens,
        waits_for_one: bool = False,
    ) -> "asyncio.Future[Appended]":
        """Append a batch. Raises TopicError."""

    def note_refused(self, header: RecordBatchHeader, code: ErrorCode) -> None:
        """Note that a batch was refused: later ones of its producer must not overtake it."""

    async def wait_for_room(self, size: int) -> None:
        """Wait until `size` more bytes can be appended."""

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, at_least_one: bool
    ) -> LogReadResult:
        """Read visible batches. Raises TopicError."""

    async def offset_for_timestamp(self, timestamp_ms: int) -> RecordPosition | None:
        """Return the first record with this time or a later one. Raises TopicError."""

    async def max_timestamp(self) -> RecordPosition | None:
        """Return the first record with the greatest time. Raises TopicError."""

    def end_offset_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above this one, and its end offset. Raises TopicError."""

    async def delete_records(self, before_offset: int) -> int:
        """Move the log's start to an offset; return the start. Raises TopicError."""

    def active_producers(self) -> Sequence[ActiveProducer]:
        """Return the known producers."""

    def on_progress(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Register a callback of progress; return a function that removes it."""


class PartitionLogs(Protocol):
    """Lookup of partitions' logs."""

    def log_of(self, topic: str, partition: int) -> PartitionLog:
        """Return the log, if this broker leads the partition. Raises TopicError."""

    def opening(self, topic: str, partition: int) -> asyncio.Event | None:
        """Return an event that is set when this broker's attempt to lead a partition ends.

        Returns None if there is no attempt now.
        """


class ClusterNames(Protocol):
    """Lookup of topic ids, leaders and addresses of brokers."""

    def topic_name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id."""

    def leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the known (broker id, leader epoch); broker id -1 for no leader."""

    def address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return the address of a broker for clients of a listener."""

    def rack_of(self, broker_id: int) -> str | None:
        """Return the rack of a broker, as in Metadata."""


class ProduceVerifier(Protocol):
    """The method of `transactions.verification.TransactionVerifier` that Produce uses."""

    def verify(
        self, claim: Claim, partition: TopicPartition, *, knows_abortable: bool = False
    ) -> Awaitable[Confirmation]:
        """Confirm that a partition is in the producer's open transaction.

        Raises TopicError with the code for the producer.
        """
