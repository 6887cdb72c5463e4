"""States of the idempotent producers of a partition, and the check of their sequence numbers.

Leaves transactions to `transaction_index`, and the stored format to `state_entry`.

A producer numbers its records with *sequence* numbers, from 0 in each of its epochs; 0 follows
2^31 - 1. A batch counts once it is admitted, confirmed or not: the log confirms in order, or fails.

A batch may be refused for now, while its producer's next ones are on their way. They are refused
for now too until it has come: an error that clients take as final would make them begin a new
epoch, in which batches that are in the log are stored again. An earlier leader may have refused one
too: so a leader begins by awaiting the next sequence of each producer, and in an empty log an
unknown producer repeats a first batch whose sequence is not 0, after earlier batches if there are.

Invariants: within an epoch of a producer, sequences are admitted without a gap; the epochs of a
producer never decrease. The state of at most PRODUCERS_MAX producers is kept, in a transaction or
used in the last PRODUCER_KEPT_MS. One more producer replaces the longest idle one without a
transaction; of that one any sequence is then accepted, as after its expiry, and a marker of any
coordinator. If none was idle for so long, the new producer is refused: a batch that its producer
may still repeat is never stored twice.

Source: KIP-98, KIP-360; KAFKA-15591 for the first batch of a log; topics design, "The mapping".
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import NO_SEQUENCE, NO_TIMESTAMP, RecordBatchHeader
from broker_layer.kafka.record_batch.header import SEQUENCE_MODULUS

RECENT_BATCHES_MAX: Final = 5
"""Maximum number of recent batches kept per producer: clients have at most this many requests in
flight, so they repeat no older batch."""
PRODUCERS_MAX: Final = 20_000
PRODUCER_KEPT_MS: Final = 600_000
"""Idle time after which one more producer may replace another one at the limit, in ms. Clients
repeat a batch for at most 2 minutes by default, or 5 (`delivery.timeout.ms`, `message.timeout.ms`).
"""
AWAITED_MAX: Final = PRODUCERS_MAX
"""Maximum number of producers of which a refused sequence is awaited. One more replaces the oldest
one."""
RUN_LENGTH_MAX: Final = 2**30
"""Half of the range of sequences: farther back, an old sequence looks like a future one."""
NO_COORDINATOR_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch is the next one."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch was admitted before, at these offsets; it may not be confirmed yet."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """NO_TIMESTAMP unless the log set the records' time."""


@dataclass(frozen=True, slots=True)
class BatchRefused:
    """The batch must not be appended."""

    code: ErrorCode
    text: str


BatchVerdict = Accept | Duplicate | BatchRefused
ACCEPT: Final = Accept()


class RecentBatch(NamedTuple):
    """A batch that its producer may send again. A tuple, because one is created for every batch."""

    base_sequence: int
    base_offset: int
    last_offset_delta: int
    append_time_ms: int

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


class ProducerState(NamedTuple):
    """State of one producer in a partition. A tuple, because every batch creates a new one."""

    producer_epoch: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Epoch of the transaction coordinator that sent the newest marker."""
    run_length: int = 0
    """Number of sequences, up to the last one, that are in the log without a gap; at most
    RUN_LENGTH_MAX.
    """
    recent: tuple[RecentBatch, ...] = ()
    """The last batches of this epoch, oldest first."""
    last_timestamp_ms: int = NO_TIMESTAMP
    last_used_ms: int = 0
    """Time of its last append or of the replay of that append, by a broker's clock."""

    @property
    def last_sequence(self) -> int:
        """The last sequence of this epoch; NO_SEQUENCE before its first batch."""
        return self.recent[-1].last_sequence if self.recent else NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """The sequence with which the next batch of this epoch must begin."""
        return (self.last_sequence + 1) % SEQUENCE_MODULUS


class _Awaited(NamedTuple):
    """The sequence with which a producer must continue, because it was refused for now."""

    producer_epoch: int
    sequence: int
    since_ms: int


@dataclass(slots=True)
class ProducerStates:
    """The producers of one partition, the longest idle first."""

    in_transaction: Collection[int]
    """Live view of the producers with an open transaction, which are never dropped."""
    _states: OrderedDict[int, ProducerState] = field(default_factory=OrderedDict)
    _awaited: OrderedDict[int, _Awaited] = field(default_factory=OrderedDict)

    def check(
        self, header: RecordBatchHeader, *, is_log_empty: bool, now_ms: int = 0
    ) -> BatchVerdict:
        """Decide whether a batch of records with a producer id may be appended.

        An unknown producer may begin with any sequence, because its state may have been dropped, or
        the topic deleted and made again; but not behind a sequence that was refused for now.
        """
        if header.producer_epoch < 0 or header.base_sequence < 0:
            return BatchRefused(
                ErrorCode.INVALID_RECORD, "the producer epoch or sequence is negative"
            )
        state = self._states.get(header.producer_id)
        if state is None:
            return self._check_first(header, now_ms, is_log_empty=is_log_empty)
        if header.producer_epoch < state.producer_epoch:
            return _stale_epoch(header.producer_epoch, state)
        verdict: BatchVerdict = ACCEPT
        if header.producer_epoch == state.producer_epoch:
            verdict = _check_sequence(header, state)
        elif header.base_sequence:
            verdict = _out_of_order(header, 0)
        if isinstance(verdict, BatchRefused):
            return self._check_awaited(header, now_ms) or verdict
        return verdict

    def _check_first(
        self, header: RecordBatchHeader, now_ms: int, *, is_log_empty: bool
    ) -> BatchVerdict:
        """Decide about a batch of an unknown producer."""
        if (refused := self._check_awaited(header, now_ms)) is not None:
            return refused
        if is_log_empty and header.base_sequence and self._awaited_from(header, now_ms) is None:
            what = f"producer {header.producer_id} begins with sequence {header.base_sequence}"
            text = f"{what} in an empty log: repeat the batch, after earlier ones"
            return BatchRefused(ErrorCode.NOT_ENOUGH_REPLICAS, text)
        if len(self._states) >= PRODUCERS_MAX and self._replaceable(now_ms) is None:
            return _too_many()
        return ACCEPT

    def _check_awaited(self, header: RecordBatchHeader, now_ms: int) -> BatchRefused | None:
        """Refuse a batch for now if it comes behind one that was refused for now."""
        awaited = self._awaited_from(header, now_ms)
        if awaited is None or not _is_behind(header.base_sequence, awaited):
            return None
        what = f"producer {header.producer_id} in epoch {header.producer_epoch} sent sequence"
        text = f"{what} {header.base_sequence} before {awaited}, which is to be repeated: retry"
        return BatchRefused(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> Accept | BatchRefused:
        """Decide whether the marker of a transaction may be appended."""
        state = self._states.get(producer_id)
        if state is None:
            return ACCEPT
        if producer_epoch < state.producer_epoch:
            return _stale_epoch(producer_epoch, state)
        if coordinator_epoch < state.coordinator_epoch:
            known = state.coordinator_epoch
            text = f"coordinator epoch {coordinator_epoch} is below the known epoch {known}"
            return BatchRefused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, text)
        return ACCEPT

    def await_refused(self, header: RecordBatchHeader, now_ms: int) -> None:
        """Await the sequence of a batch that was refused for now, unless an earlier one is."""
        producer_id, sequence = header.producer_id, header.base_sequence
        for known in (self._states.get(producer_id), self._awaited.get(producer_id)):
            if known is not None and known.producer_epoch > header.producer_epoch:
                return
        awaited = self._awaited_from(header, now_ms)
        if awaited is not None and _is_behind(sequence, awaited):
            return
        self._awaited[producer_id] = _Awaited(header.producer_epoch, sequence, now_ms)
        self._awaited.move_to_end(producer_id)
        while len(self._awaited) > AWAITED_MAX:
            self._awaited.popitem(last=False)

    def await_next(self, now_ms: int) -> None:
        """Await the next sequence of each producer: an earlier leader may have refused it."""
        for producer_id, state in self._states.items():
            awaited = _Awaited(state.producer_epoch, state.next_sequence, now_ms)
            self._awaited[producer_id] = awaited

    def _awaited_from(self, header: RecordBatchHeader, now_ms: int) -> int | None:
        """Return the awaited sequence of a batch's producer and epoch, unless it is too old."""
        awaited = self._awaited.get(header.producer_id)
        if awaited is None or awaited.producer_epoch != header.producer_epoch:
            return None
        is_over = now_ms - awaited.since_ms >= PRODUCER_KEPT_MS
        return None if is_over else awaited.sequence

    def apply(self, header: RecordBatchHeader, base_offset: int, now_ms: int) -> None:
        """Apply a batch of records that was admitted at `base_offset`."""
        append_time_ms = header.max_timestamp_ms if header.uses_append_time else NO_TIMESTAMP
        count = header.last_offset_delta + 1
        batch = RecentBatch(
            header.base_sequence, base_offset, header.last_offset_delta, append_time_ms
        )
        known = self._states.get(header.producer_id)
        recent: tuple[RecentBatch, ...] = (batch,)
        if (
            known is not None
            and known.producer_epoch == header.producer_epoch
            and known.next_sequence == header.base_sequence
        ):
            recent = (*known.recent[1 - RECENT_BATCHES_MAX :], batch)
            count += known.run_length
        coordinator_epoch = NO_COORDINATOR_EPOCH if known is None else known.coordinator_epoch
        state = ProducerState(
            producer_epoch=header.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            run_length=min(count, RUN_LENGTH_MAX),
            recent=recent,
            last_timestamp_ms=header.max_timestamp_ms,
            last_used_ms=now_ms,
        )
        self._put(header.producer_id, state)

    def apply_marker(self, header: RecordBatchHeader, coordinator_epoch: int, now_ms: int) -> None:
        """Apply a marker that was admitted; a newer producer epoch resets the sequences.

        At the limit, no state is dropped for a marker of an unknown producer, which ends nothing.
        """
        known = self._states.get(header.producer_id)
        if known is None and len(self._states) >= PRODUCERS_MAX:
            return
        if known is None or known.producer_epoch != header.producer_epoch:
            known = ProducerState(header.producer_epoch)
        state = known._replace(
            coordinator_epoch=coordinator_epoch,
            last_timestamp_ms=header.max_timestamp_ms,
            last_used_ms=now_ms,
        )
        self._put(header.producer_id, state)

    def epoch_of(self, producer_id: int) -> int | None:
        """Return a producer's epoch; None if the producer is unknown."""
        state = self._states.get(producer_id)
        return None if state is None else state.producer_epoch

    def expire(self, now_ms: int, idle_ms: int) -> int:
        """Drop producers that were idle for `idle_ms` and have no open transaction; count them."""
        idle = [
            producer_id
            for producer_id, state in self._states.items()
            if now_ms - state.last_used_ms >= idle_ms and producer_id not in self.in_transaction
        ]
        for producer_id in idle:
            del self._states[producer_id]
        return len(idle)

    def snapshot(self) -> tuple[tuple[int, ProducerState], ...]:
        """Return all producers, the longest idle first."""
        return tuple(self._states.items())

    def load(self, states: Iterable[tuple[int, ProducerState]]) -> None:
        """Replace all producers with those of a snapshot."""
        self._states = OrderedDict(states)

    def _put(self, producer_id: int, state: ProducerState) -> None:
        if producer_id not in self._states and len(self._states) >= PRODUCERS_MAX:
            idlest = self._idlest()
            if idlest is None:
                return  # no leader accepts such a batch
            del self._states[idlest]
        self._awaited.pop(producer_id, None)
        self._states[producer_id] = state
        self._states.move_to_end(producer_id)

    def _replaceable(self, now_ms: int) -> int | None:
        """Return the longest idle producer, if it may be dropped at the limit."""
        idlest = self._idlest()
        if idlest is None or now_ms - self._states[idlest].last_used_ms < PRODUCER_KEPT_MS:
            return None
        return idlest

    def _idlest(self) -> int | None:
        """Return the longest idle producer without a transaction; None if all have one."""
        if len(self.in_transaction) >= len(self._states):
            return None
        while (idlest := next(iter(self._states))) in self.in_transaction:
            self._states.move_to_end(idlest)
        return idlest


def _check_sequence(header: RecordBatchHeader, state: ProducerState) -> BatchVerdict:
    expected = state.next_sequence
    if header.base_sequence == expected:
        return ACCEPT
    last_sequence = header.last_sequence
    for batch in reversed(state.recent):
        if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
            last_offset = batch.base_offset + batch.last_offset_delta
            return Duplicate(batch.base_offset, last_offset, batch.append_time_ms)
    back = (expected - header.base_sequence) % SEQUENCE_MODULUS
    recent_count = sum(batch.last_offset_delta + 1 for batch in state.recent)
    if back - header.last_offset_delta > recent_count and back <= state.run_length:
        text = f"sequence {header.base_sequence} is in the log already, before the recent batches"
        return BatchRefused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, text)
    return _out_of_order(header, expected)


def _is_behind(sequence: int, awaited: int) -> bool:
    """Return whether a sequence comes after the awaited one."""
    return 0 < (sequence - awaited) % SEQUENCE_MODULUS < RUN_LENGTH_MAX


def _too_many() -> BatchRefused:
    text = (
        f"the partition has {PRODUCERS_MAX} producers, its limit, and all have open transactions "
        f"or wrote in the last {PRODUCER_KEPT_MS // 1000} s: use fewer producers, for longer"
    )
    return BatchRefused(ErrorCode.POLICY_VIOLATION, text)


def _out_of_order(header: RecordBatchHeader, expected: int) -> BatchRefused:
    text = (
        f"producer {header.producer_id} in epoch {header.producer_epoch} sent sequence "
        f"{header.base_sequence}; expected {expected}"
    )
    return BatchRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)


def _stale_epoch(epoch: int, state: ProducerState) -> BatchRefused:
    text = f"producer epoch {epoch} is below the current epoch {state.producer_epoch}"
    return BatchRefused(ErrorCode.INVALID_PRODUCER_EPOCH, text)
