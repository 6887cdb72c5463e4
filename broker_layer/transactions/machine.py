"""Decides what one transactional id may do next.

Leaves storing to `state_partition`, which reports back, and the values to `values`.

Invariants: a decision is stored before anybody hears of it; while one is being stored no other
starts; a transaction ends by one decision, and is complete only when the marker of every partition
is stored; who is refused changes nothing.

Source: KIP-98 (data flow and fencing), KIP-360 (a producer that names its id and epoch), KIP-890
(verification). Differs from Kafka in one point: a producer that names an epoch which is no longer
current is fenced at once, also while a newer incarnation's transaction is open, which is left
alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.values import (
    EPOCH_EXHAUSTED,
    NO_EPOCH,
    Claim,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)

PARTITIONS_PER_TRANSACTION_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing changes; the answer is this code."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing is to be stored; what was asked for is so already."""


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """Ask again with a fresh producer id in hand."""


@dataclass(frozen=True, slots=True)
class Store:
    """Store this; then tell the machine, and only then whoever asked."""

    transaction: Transaction


Decision = Refused | Unchanged | Store
InitDecision = Refused | ProducerIdNeeded | Store

_UNCHANGED: Final = Unchanged()
_CONCURRENT: Final = Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED: Final = Refused(ErrorCode.PRODUCER_FENCED)
_WRONG_STATE: Final = Refused(ErrorCode.INVALID_TXN_STATE)


class TransactionMachine:
    """One transactional id: what is stored of it, what is being stored, which markers miss."""

    def __init__(self, transaction: Transaction | None = None) -> None:
        self.transaction = transaction
        """What is durable; None before the first record is."""
        self.pending: Transaction | None = None
        """What is being stored."""
        self.unmarked: dict[TopicPartition, None] = {}
        """Partitions whose marker is not known to be stored, once the end is decided."""
        self._members: frozenset[TopicPartition] = frozenset()
        self._note_durable()

    @property
    def newest(self) -> Transaction | None:
        """Return what was handed over for storing last: what a snapshot must hold."""
        return self.pending or self.transaction

    # What producers ask for

    def init_producer_id(
        self,
        claim: ProducerIdentity | None,
        transactional_id: str,
        timeout_ms: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> InitDecision:
        """Start another incarnation; `claim` is who the producer says to be (KIP-360).

        Once the decision is stored, PREPARE_ABORT means that the previous incarnation's
        transaction is being aborted: the producer is to ask again.
        """
        if self.pending is not None:
            return _CONCURRENT
        current = self.transaction
        if current is None:
            if fresh_producer_id is None:
                return ProducerIdNeeded()
            return Store(
                Transaction.created(transactional_id, fresh_producer_id, timeout_ms, now_ms)
            )
        if claim is not None and not _may_continue(claim, current):
            return _FENCED
        if current.state.is_prepared:
            return _CONCURRENT
        if current.state is TransactionState.ONGOING:
            if claim is not None and claim.epoch != current.producer_epoch:
                return _FENCED
            return Store(current.fenced(now_ms))
        return _next_incarnation(current, claim, timeout_ms, now_ms, fresh_producer_id)

    def add_partitions(
        self, claim: Claim, partitions: Iterable[TopicPartition], now_ms: int
    ) -> Decision:
        """Open a transaction, or widen it."""
        refusal = self._refusal(claim)
        if refusal is not None:
            return refusal
        current = self.transaction
        assert current is not None, "a claim is checked against something"
        if self.pending is not None or current.state.is_prepared:
            return _CONCURRENT
        added = tuple(partition for partition in partitions if partition not in self._members)
        if not added:
            return _UNCHANGED
        if len(current.partitions) + len(added) > PARTITIONS_PER_TRANSACTION_MAX:
            return Refused(ErrorCode.POLICY_VIOLATION)
        return Store(current.with_partitions(added, now_ms))

    def end(self, claim: Claim, *, committed: bool, now_ms: int) -> Decision:
        """Decide the end of the open transaction; a repeated request changes nothing."""
        refusal = self._refusal(claim)
        if refusal is not None:
            return refusal
        if self.pending is not None:
            return _CONCURRENT
        current = self.transaction
        assert current is not None, "a claim is checked against something"
        match current.state:
            case TransactionState.ONGOING:
                return Store(current.decided(committed=committed, now_ms=now_ms))
            case TransactionState.PREPARE_COMMIT:
                return _CONCURRENT if committed else _WRONG_STATE
            case TransactionState.PREPARE_ABORT:
                return _WRONG_STATE if committed else _CONCURRENT
            case TransactionState.COMPLETE_COMMIT:
                return _UNCHANGED if committed else _WRONG_STATE
            case TransactionState.COMPLETE_ABORT:
                return _WRONG_STATE if committed else _UNCHANGED
            case TransactionState.EMPTY | TransactionState.DEAD:
                return _WRONG_STATE

    def verify(
        self, claim: Claim, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Say of each partition whether it is in the claimed, open transaction."""
        refusal = self._refusal(claim)
        current = self.transaction
        if refusal is None and current is not None and current.state.is_prepared:
            refusal = _CONCURRENT
        if refusal is not None:
            return dict.fromkeys(partitions, refusal.code)
        return {
            partition: ErrorCode.NONE
            if partition in self._members
            else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    # What time brings

    def time_out(self, now_ms: int) -> Decision:
        """Abort a transaction that is open longer than its timeout, and shut its producer out."""
        current = self.transaction
        if self.pending is not None or current is None:
            return _UNCHANGED
        if current.state is not TransactionState.ONGOING:
            return _UNCHANGED
        if now_ms - current.started_ms <= current.timeout_ms:
            return _UNCHANGED
        return Store(current.fenced(now_ms))

    def expire(self, now_ms: int, idle_ms_max: int) -> Decision:
        """Forget an id that was not used for long."""
        current = self.transaction
        if self.pending is not None or current is None or not current.state.is_idle:
            return _UNCHANGED
        if now_ms - current.changed_ms < idle_ms_max:
            return _UNCHANGED
        return Store(current.expired(now_ms))

    # What became of it

    def storing(self, transaction: Transaction) -> None:
        """Note that a decision is on its way to the log."""
        assert self.pending is None, "one decision at a time"
        self.pending = transaction

    def stored(self) -> None:
        """Note that it is durable."""
        assert self.pending is not None, "a decision was on its way"
        self.transaction, self.pending = self.pending, None
        self._note_durable()

    def marker_stored(self, partition: TopicPartition) -> None:
        """Note that a partition holds the decision, or is gone."""
        self.unmarked.pop(partition, None)

    def complete(self, now_ms: int) -> Decision:
        """End the transaction once no marker is missing."""
        current = self.transaction
        if self.pending is not None or current is None or not current.state.is_prepared:
            return _UNCHANGED
        return _UNCHANGED if self.unmarked else Store(current.completed(now_ms))

    def _note_durable(self) -> None:
        current = self.transaction
        if current is None:
            return
        self._members = frozenset(current.partitions)
        self.unmarked = dict.fromkeys(current.partitions if current.state.is_prepared else ())

    def _refusal(self, claim: Claim) -> Refused | None:
        current = self.transaction
        if current is None or current.state is TransactionState.DEAD:
            return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if claim.producer_id != current.producer_id:
            return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return _FENCED if claim.epoch != current.producer_epoch else None


def _may_continue(claim: ProducerIdentity, current: Transaction) -> bool:
    if claim.producer_id == current.producer_id:
        return True
    # Its epochs ran out, it got a new id, and the answer was lost.
    was_last = claim.producer_id == current.previous_producer_id
    return was_last and claim.epoch >= EPOCH_EXHAUSTED


def _next_incarnation(
    current: Transaction,
    claim: ProducerIdentity | None,
    timeout_ms: int,
    now_ms: int,
    fresh_producer_id: int | None,
) -> InitDecision:
    epoch = current.producer_epoch
    if current.has_exhausted_epochs and (claim is None or claim.epoch == epoch):
        if fresh_producer_id is None:
            return ProducerIdNeeded()
        last_epoch = NO_EPOCH if claim is None else epoch
        return Store(
            current.with_new_producer_id(fresh_producer_id, last_epoch, timeout_ms, now_ms)
        )
    if claim is None:
        return Store(current.reinitialised(epoch + 1, NO_EPOCH, timeout_ms, now_ms))
    if claim.producer_id == current.producer_id and claim.epoch == epoch:
        return Store(current.reinitialised(epoch + 1, epoch, timeout_ms, now_ms))
    if claim.epoch == current.last_epoch and claim.epoch != NO_EPOCH:
        return Store(current.reinitialised(epoch, claim.epoch, timeout_ms, now_ms))
    return _FENCED
