"""Limits of transactions, and the value of one transactional id with the transitions of its state.

Leaves permission for a transition to `machine`, and the order and durability of records to
`broker_layer.log.state_log`.

Invariants: immutable; the epoch of a producer id never decreases; a transaction that is being ended
keeps its partitions until all markers are stored.

Source: KIP-98, KIP-360.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

from broker_layer.coordinator_partitions import by_topic
from metadata.msgpack_fields import pack
from metadata.records import TEXT, Count, Ms, codec_of, whole

MARKERS_MAX: Final = 1_000
"""Maximum number of markers in one request: all are appended before another request is served."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings of one broker's coordination of transactions. Immutable."""

    timeout_ms_max: int = 15 * 60 * 1000
    """Maximum timeout that a producer may request (transaction.max.timeout.ms)."""
    id_idle_ms_max: int = 7 * 24 * 3600 * 1000
    """Time after which an unused transactional id is removed (transactional.id.expiration.ms)."""
    ids_per_partition_max: int = 1_000_000
    """Maximum number of transactional ids in one state partition; further ones are refused."""
    timeout_check_period_s: float = 1.0
    expiry_check_period_s: float = 3600.0

    marker_timeout_s: float = 30.0
    """Time to wait for a leader's answer that it stored markers."""
    marker_store_wait_s: float = 2.0
    """Time that a leader waits for the commit of a marker before it answers REQUEST_TIMED_OUT."""
    markers_per_request_max: int = MARKERS_MAX
    marker_pause_first_s: float = 0.02
    marker_pause_max_s: float = 1.0
    absent_topic_patience_s: float = 10.0
    """Time that a topic must be missing from the view of the cluster before its record is read: the
    view of a new coordinator may be older than the topic."""

    verification_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if self.marker_store_wait_s >= self.marker_timeout_s:
            raise ValueError("marker_store_wait_s must be below marker_timeout_s")


NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
NO_CONNECTION: Final = 0
"""Of a claim that another broker passes on."""
EPOCH_MAX: Final = 0x7FFF
"""The highest epoch. It fences the last epoch of a producer, and is never assigned to one."""
INT32_MAX: Final = 2**31 - 1
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""From this epoch on, the next incarnation gets a new producer id."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class ProducerIdentity(NamedTuple):
    """A producer id, and the epoch of one of its incarnations."""

    producer_id: int
    epoch: int


class Claim(NamedTuple):
    """Identity that a client states when it acts for a transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int
    connection_id: int = NO_CONNECTION
    """Number of the producer's connection to this broker; later ones have higher numbers."""

    @property
    def producer(self) -> ProducerIdentity:
        """The stated identity."""
        return ProducerIdentity(self.producer_id, self.epoch)


class Marker(NamedTuple):
    """The end of a transaction, as it is written into each of its partitions."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


class TransactionState(IntEnum):
    """State of a transactional id; the numbers are stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        """The name that Kafka's tools show."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided and its markers are being sent."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open or being ended."""
        return self in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )


@dataclass(frozen=True, slots=True)
class Transaction:
    """State of one transactional id, as the coordinator stores it: [1, field, ...], in this order.

    A record replaces all earlier ones of its transactional id; DEAD removes the id.
    """

    transactional_id: str
    producer_id: Count
    producer_epoch: Annotated[int, whole(0, EPOCH_MAX)]
    previous_producer_id: Annotated[int, whole(NO_PRODUCER_ID)]
    """The previous id, if its epochs have just run out, so that its producer may retry; else -1."""
    last_epoch: Annotated[int, whole(NO_EPOCH, EPOCH_MAX)]
    """The epoch before the last bump that its producer requested, so that it may retry; else -1."""
    timeout_ms: Annotated[int, whole(0, INT32_MAX)]
    state: TransactionState
    partitions: Annotated[
        tuple[TopicPartition, ...], by_topic(TEXT, whole(0, INT32_MAX), TopicPartition)
    ]
    """Sorted, without duplicates."""
    started_ms: Annotated[int, whole(NO_TIME)]
    """Start of the open or the last transaction; -1 before the first."""
    changed_ms: Ms

    @classmethod
    def created(
        cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        """Return the first state of a transactional id."""
        return cls(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=0,
            previous_producer_id=NO_PRODUCER_ID,
            last_epoch=NO_EPOCH,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=(),
            started_ms=NO_TIME,
            changed_ms=now_ms,
        )

    @property
    def has_exhausted_epochs(self) -> bool:
        """Whether the producer id has no epoch left for another incarnation."""
        return self.producer_epoch >= EPOCH_EXHAUSTED

    def reinitialised(
        self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        """Return it without a transaction, with the next epoch, or the same one for a retry."""
        assert self.state.is_idle, "an open transaction is aborted first"
        assert self.producer_epoch <= epoch <= EPOCH_EXHAUSTED, "an epoch never decreases"
        return replace(
            self,
            producer_epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            started_ms=NO_TIME,
            changed_ms=now_ms,
        )

    def with_new_producer_id(
        self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        """Return it with another producer id, in epoch 0."""
        assert self.state.is_idle, "an open transaction is aborted first"
        fresh = Transaction.created(self.transactional_id, producer_id, timeout_ms, now_ms)
        return replace(fresh, previous_producer_id=self.producer_id, last_epoch=last_epoch)

    def with_partitions(self, added: tuple[TopicPartition, ...], now_ms: int) -> "Transaction":
        """Return it open, with more partitions."""
        assert not self.state.is_prepared, "a decided transaction gets no more partitions"
        assert self.state is not TransactionState.DEAD, "a dead id stays dead"
        is_open = self.state is TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            previous_producer_id=NO_PRODUCER_ID,
            partitions=tuple(sorted(dict.fromkeys(self.partitions + added))),
            started_ms=self.started_ms if is_open else now_ms,
            changed_ms=now_ms,
        )

    def loaded(self, now_ms: int) -> "Transaction":
        """Return it as another coordinator continues it, whose clock shows `now_ms`.

        No time is later than that: if the clock of the coordinator before was ahead, timeouts count
        from now on.
        """
        return replace(
            self,
            started_ms=min(self.started_ms, now_ms),
            changed_ms=min(self.changed_ms, now_ms),
        )

    def decided(self, *, committed: bool, now_ms: int) -> "Transaction":
        """Return it with its end decided."""
        assert self.state is TransactionState.ONGOING, "only an open transaction is ended"
        prepared = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        return replace(self, state=prepared, changed_ms=now_ms)

    def fenced(self, now_ms: int) -> "Transaction":
        """Return it aborted, in an epoch that no producer gets, so that its producer is fenced."""
        assert self.producer_epoch < EPOCH_MAX, "the highest epoch is never assigned"
        aborted = self.decided(committed=False, now_ms=now_ms)
        return replace(aborted, producer_epoch=self.producer_epoch + 1, last_epoch=NO_EPOCH)

    def completed(self, now_ms: int) -> "Transaction":
        """Return it completed, after all markers are stored."""
        assert self.state.is_prepared, "the end is decided before it is completed"
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        return replace(self, state=done, partitions=(), changed_ms=now_ms)

    def expired(self, now_ms: int) -> "Transaction":
        """Return its tombstone."""
        assert self.state.is_idle, "only an idle id expires"
        return replace(self, state=TransactionState.DEAD, partitions=(), changed_ms=now_ms)

    def marker(self, coordinator_epoch: int) -> Marker:
        """Return the marker of the decision, for all partitions."""
        assert self.state.is_prepared, "markers are sent after the decision"
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return Marker(self.producer_id, self.producer_epoch, is_commit, coordinator_epoch)


_RECORD: Final = codec_of(Transaction)
_WHAT: Final = "a transaction's record"


def encode_transaction(transaction: Transaction) -> bytes:
    """Return the record of a transactional id."""
    return pack(_WHAT, [1, *_RECORD.pack_fields(transaction)])


def decode_transaction(record: bytes) -> Transaction:
    """Return the transaction in a record. Raises MetadataFormatError."""
    return _RECORD.unpack(_WHAT, record)
