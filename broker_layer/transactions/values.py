"""Describes one transactional id as a value, with the transitions that its state may make.

Leaves who may ask for which transition to `machine`, and the bytes to `records`.

Invariants: immutable; an epoch never goes back for one producer id; a transaction that is being
ended keeps its partitions until every marker is stored.

Source: KIP-98, KIP-360.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 0x7FFF
"""The highest epoch of all; it fences the last one that a producer got, and is never handed out."""
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""From this epoch on, the next incarnation gets a new producer id."""

GROUP_TOPIC: Final = "__consumer_offsets"
STATE_TOPIC: Final = "__transaction_state"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class ProducerIdentity(NamedTuple):
    """A producer id, and which incarnation of it."""

    producer_id: int
    epoch: int


class Claim(NamedTuple):
    """Who says to act for a transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int


class Marker(NamedTuple):
    """The end of a transaction, as it is written into each of its partitions."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


class TransactionState(IntEnum):
    """Where a transactional id stands; the numbers are stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        """Return the name that Kafka's tools show."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Return whether the decision is made and its markers are under way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Return whether no transaction is open or being ended."""
        return self in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )


@dataclass(frozen=True, slots=True)
class Transaction:
    """What the coordinator stores of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int
    """The id whose epochs ran out just before, so that its holder may ask again; else -1."""
    last_epoch: int
    """The epoch before the last bump that its own holder asked for, so that it may ask again."""
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    """In order, without repetition."""
    started_ms: int
    """When the open transaction, or the last one, began; -1 before the first."""
    changed_ms: int

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
        """Return whether the producer id has no epoch left for another incarnation."""
        return self.producer_epoch >= EPOCH_EXHAUSTED

    def reinitialised(
        self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        """Return it with the next epoch, or the same for a repeated request, and no transaction."""
        assert self.state.is_idle, "an open transaction is aborted first"
        assert self.producer_epoch <= epoch <= EPOCH_EXHAUSTED, "epochs go up by one"
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
        """Return it under another producer id, from epoch 0."""
        assert self.state.is_idle, "an open transaction is aborted first"
        fresh = Transaction.created(self.transactional_id, producer_id, timeout_ms, now_ms)
        return replace(fresh, previous_producer_id=self.producer_id, last_epoch=last_epoch)

    def with_partitions(self, added: tuple[TopicPartition, ...], now_ms: int) -> "Transaction":
        """Return it open, with more partitions."""
        assert not self.state.is_prepared, "what is decided gets no more partitions"
        assert self.state is not TransactionState.DEAD, "what is dead stays so"
        is_open = self.state is TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            previous_producer_id=NO_PRODUCER_ID,
            partitions=tuple(sorted(dict.fromkeys(self.partitions + added))),
            started_ms=self.started_ms if is_open else now_ms,
            changed_ms=now_ms,
        )

    def decided(self, *, committed: bool, now_ms: int) -> "Transaction":
        """Return it with its end decided."""
        assert self.state is TransactionState.ONGOING, "only an open transaction is ended"
        prepared = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        return replace(self, state=prepared, changed_ms=now_ms)

    def fenced(self, now_ms: int) -> "Transaction":
        """Return it aborted under an epoch that nobody is given: its producer is shut out."""
        assert self.producer_epoch < EPOCH_MAX, "the highest epoch is never handed out"
        aborted = self.decided(committed=False, now_ms=now_ms)
        return replace(aborted, producer_epoch=self.producer_epoch + 1, last_epoch=NO_EPOCH)

    def completed(self, now_ms: int) -> "Transaction":
        """Return it with every marker stored."""
        assert self.state.is_prepared, "a decision comes before its end"
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        return replace(self, state=done, partitions=(), changed_ms=now_ms)

    def expired(self, now_ms: int) -> "Transaction":
        """Return its tombstone."""
        assert self.state.is_idle, "only an idle id expires"
        return replace(self, state=TransactionState.DEAD, partitions=(), changed_ms=now_ms)

    def marker(self, coordinator_epoch: int) -> Marker:
        """Return the marker that tells its partitions the decision."""
        assert self.state.is_prepared, "markers leave after the decision"
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return Marker(self.producer_id, self.producer_epoch, is_commit, coordinator_epoch)
