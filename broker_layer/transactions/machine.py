"""State machine of one transactional id.

Leaves storing to `coordinator`, which reports back, and the values to `values`.

Invariants: a decision is durable before any client receives it; while one is being stored, no other
starts. A transaction ends by one decision, and is complete only when the markers of all partitions
are stored. A refused request changes nothing. Once a producer has acted on a newer connection, what
comes on its older ones changes nothing: it may have been meant for an earlier transaction.

Source: KIP-98 (data flow and fencing), KIP-360 (a producer that names its id and epoch), KIP-890
(verification). Differs from Kafka in one point: a producer that names an old epoch is fenced at
once, even while the transaction of a newer incarnation is open; that transaction continues.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker_layer.errors import check_connection
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.values import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_CONNECTION,
    NO_EPOCH,
    Claim,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)

PARTITIONS_PER_TRANSACTION_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The request changes nothing and is answered with this code."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The request is already satisfied: nothing needs to be stored."""


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """The caller must call again with a fresh producer id."""


@dataclass(frozen=True, slots=True)
class Store:
    """Store this; when it is durable, call the machine's `stored`, then answer the request."""

    transaction: Transaction


Decision = RequestRefused | Unchanged | Store
InitDecision = RequestRefused | ProducerIdNeeded | Store

_UNCHANGED: Final = Unchanged()
_CONCURRENT: Final = RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED: Final = RequestRefused(ErrorCode.PRODUCER_FENCED)
_WRONG_STATE: Final = RequestRefused(ErrorCode.INVALID_TXN_STATE)


class TransactionMachine:
    """One transactional id: its stored state, the one being stored, and the missing markers."""

    def __init__(self, transaction: Transaction | None = None) -> None:
        self.transaction = transaction
        """The durable state; None before the first record is durable."""
        self.pending: Transaction | None = None
        """The state that is being stored."""
        self.unmarked: dict[TopicPartition, None] = {}
        """After the end is decided: partitions whose markers are not known to be stored."""
        self._members: frozenset[TopicPartition] = frozenset()
        self._acted: Claim | None = None
        """The claim on the newest connection of the last producer that acted."""
        self._note_durable()

    @property
    def newest(self) -> Transaction | None:
        """Return the state last passed on for storing, which a snapshot must contain."""
        return self.pending or self.transaction

    # Requests of producers

    def init_producer_id(
        self,
        claim: ProducerIdentity | None,
        transactional_id: str,
        timeout_ms: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> InitDecision:
        """Start a new incarnation; `claim` is the identity that the producer states (KIP-360).

        If the stored state is PREPARE_ABORT, the transaction of the previous incarnation is being
        aborted, and the producer must retry.
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
        """Open a transaction, or add partitions to the open one. Raises LeftConnectionError."""
        refusal = self._refusal_of_act(claim)
        if refusal is not None:
            return refusal
        current = self.transaction
        assert current is not None, "a claim is accepted only for a stored id"
        if self.pending is not None or current.state.is_prepared:
            return _CONCURRENT
        added = tuple(partition for partition in partitions if partition not in self._members)
        if not added:
            return _UNCHANGED
        if len(current.partitions) + len(added) > PARTITIONS_PER_TRANSACTION_MAX:
            return RequestRefused(ErrorCode.POLICY_VIOLATION)
        return Store(current.with_partitions(added, now_ms))

    def end(self, claim: Claim, *, committed: bool, now_ms: int) -> Decision:
        """Decide the end of the open transaction; a repeated request changes nothing. Raises
        LeftConnectionError.
        """
        refusal = self._refusal_of_act(claim)
        if refusal is not None:
            return refusal
        if self.pending is not None:
            return _CONCURRENT
        current = self.transaction
        assert current is not None, "a claim is accepted only for a stored id"
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
        """Return for each partition whether it is in the claimed, open transaction."""
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

    # Timeouts

    def time_out(self, now_ms: int) -> Decision:
        """Abort a transaction that is open longer than its timeout, and fence its producer."""
        current = self.transaction
        if self.pending is not None or current is None:
            return _UNCHANGED
        if current.state is not TransactionState.ONGOING:
            return _UNCHANGED
        if now_ms - current.started_ms <= current.timeout_ms:
            return _UNCHANGED
        return Store(current.fenced(now_ms))

    def expire(self, now_ms: int, idle_ms_max: int) -> Decision:
        """Remove an id that was not used for `idle_ms_max`."""
        current = self.transaction
        if self.pending is not None or current is None or not current.state.is_idle:
            return _UNCHANGED
        if now_ms - current.changed_ms < idle_ms_max:
            return _UNCHANGED
        return Store(current.expired(now_ms))

    # Reports of storing

    def storing(self, transaction: Transaction) -> None:
        """Record that a decision is being stored."""
        assert self.pending is None, "one decision at a time"
        self.pending = transaction

    def stored(self) -> None:
        """Record that the decision is durable."""
        assert self.pending is not None, "a decision was being stored"
        self.transaction, self.pending = self.pending, None
        self._note_durable()

    def marker_stored(self, partition: TopicPartition) -> None:
        """Record that a partition has its marker, or is gone."""
        self.unmarked.pop(partition, None)

    def complete(self, now_ms: int) -> Decision:
        """Complete the transaction if no marker is missing."""
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

    def _refusal_of_act(self, claim: Claim) -> RequestRefused | None:
        refusal = self._refusal(claim)
        if refusal is not None or claim.connection_id == NO_CONNECTION:
            return refusal
        last = self._acted
        if last is not None and last.producer == claim.producer:
            check_connection(claim.transactional_id, last.connection_id, claim.connection_id)
        self._acted = claim
        return None

    def _refusal(self, claim: Claim) -> RequestRefused | None:
        current = self.transaction
        if current is None or current.state is TransactionState.DEAD:
            return RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if claim.producer_id != current.producer_id:
            return RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_current = claim.epoch == current.producer_epoch and claim.epoch != EPOCH_MAX
        return None if is_current else _FENCED


def _may_continue(claim: ProducerIdentity, current: Transaction) -> bool:
    if claim.producer_id == current.producer_id:
        return True
    # The epochs of its id ran out, it got a new id, and the answer was lost.
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
    is_current = claim == (current.producer_id, epoch)
    if current.has_exhausted_epochs and (claim is None or is_current):
        if fresh_producer_id is None:
            return ProducerIdNeeded()
        last_epoch = NO_EPOCH if claim is None else epoch
        return Store(
            current.with_new_producer_id(fresh_producer_id, last_epoch, timeout_ms, now_ms)
        )
    if claim is None:
        return Store(current.reinitialised(epoch + 1, NO_EPOCH, timeout_ms, now_ms))
    if is_current:
        return Store(current.reinitialised(epoch + 1, epoch, timeout_ms, now_ms))
    if claim.epoch == current.last_epoch and claim.epoch != NO_EPOCH:
        return Store(current.reinitialised(epoch, claim.epoch, timeout_ms, now_ms))
    return _FENCED
