"""Decides which batches of idempotent producers continue what a partition has, and remembers of
each producer what that takes.

Leaves transactions to `transaction_index`, and the bytes of what is remembered to `state_entry`.

A producer numbers its records: *sequence* numbers from 0 in each of its epochs, back to 0 behind
2^31 - 1. What was admitted counts, confirmed or not: the log confirms in order or fails as a whole.

Invariants: of one producer, sequences are admitted without a gap within an epoch, and epochs never
go back. At most PRODUCERS_MAX producers are remembered: one more takes the place of the one that
was idle longest and has no open transaction, of which then any sequence is accepted, as after its
expiry; where all have open transactions, a new producer is refused.

Source: KIP-98, KIP-360; KAFKA-15591 for the first batch of a log; topics design, "The mapping".
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import NO_SEQUENCE, NO_TIMESTAMP, BatchHeader

RECENT_BATCHES_MAX: Final = 5
"""Clients have at most so many requests under way, so no older batch is sent again."""
PRODUCERS_MAX: Final = 10_000
SEQUENCE_MODULUS: Final = 2**31
RUN_LENGTH_MAX: Final = 2**30
"""Half of the circle of sequences: what is farther back cannot be told from what is ahead."""
NO_COORDINATOR_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch is the next one."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch was admitted before, at these offsets; maybe it is not confirmed yet."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """NO_TIMESTAMP unless the log had set the records' time."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The batch must not be appended."""

    code: ErrorCode
    text: str


Verdict = Accept | Duplicate | Refused
ACCEPT: Final = Accept()


class RecentBatch(NamedTuple):
    """A batch that its producer may send again. A tuple, for one is made for every batch."""

    base_sequence: int
    base_offset: int
    last_offset_delta: int
    append_time_ms: int

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


class ProducerState(NamedTuple):
    """What a partition knows of one producer. A tuple, for every batch makes another one."""

    producer_epoch: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Of the transaction coordinator that sent the newest marker."""
    run_length: int = 0
    """So many sequences up to the last are known to be in the log, without a gap; counted up to
    RUN_LENGTH_MAX.
    """
    recent: tuple[RecentBatch, ...] = ()
    """The last batches of this epoch, oldest first."""
    last_timestamp_ms: int = NO_TIMESTAMP
    last_used_ms: int = 0
    """By a broker's clock, when it appended last, or when that was replayed."""

    @property
    def last_sequence(self) -> int:
        """The newest sequence of this epoch; NO_SEQUENCE before its first batch."""
        return self.recent[-1].last_sequence if self.recent else NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """The sequence with which the next batch of this epoch must begin."""
        return (self.last_sequence + 1) % SEQUENCE_MODULUS


@dataclass(slots=True)
class ProducerStates:
    """The producers of one partition, the one that was idle longest first."""

    in_transaction: Collection[int]
    """A live view: the producers with an open transaction, which are never dropped."""
    _states: OrderedDict[int, ProducerState] = field(default_factory=OrderedDict)

    def check(self, header: BatchHeader, *, is_log_empty: bool) -> Verdict:
        """Decide on a batch of records with a producer id.

        An unknown producer begins with any sequence, for it may have been forgotten; but nothing
        was forgotten where nothing was ever appended.
        """
        if header.producer_epoch < 0 or header.base_sequence < 0:
            return Refused(ErrorCode.INVALID_RECORD, "a producer id without epoch or sequence")
        state = self._states.get(header.producer_id)
        if state is None:
            if is_log_empty and header.base_sequence:
                return _out_of_order(header, 0)
            if self._is_full_of_transactions():
                text = f"all of {PRODUCERS_MAX} producers have open transactions"
                return Refused(ErrorCode.POLICY_VIOLATION, text)
            return ACCEPT
        if header.producer_epoch < state.producer_epoch:
            return _stale_epoch(header.producer_epoch, state)
        if header.producer_epoch > state.producer_epoch:
            return _out_of_order(header, 0) if header.base_sequence else ACCEPT
        return _check_sequence(header, state)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> Accept | Refused:
        """Decide on the marker of a transaction's end."""
        state = self._states.get(producer_id)
        if state is None:
            return ACCEPT
        if producer_epoch < state.producer_epoch:
            return _stale_epoch(producer_epoch, state)
        if coordinator_epoch < state.coordinator_epoch:
            text = f"coordinator epoch {coordinator_epoch} is below {state.coordinator_epoch}"
            return Refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, text)
        return ACCEPT

    def apply(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Take in a batch of records that was admitted at an offset."""
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

    def apply_marker(self, header: BatchHeader, coordinator_epoch: int, now_ms: int) -> None:
        """Take in a marker that was admitted; one of a newer epoch ends the sequences before."""
        known = self._states.get(header.producer_id)
        if known is None or known.producer_epoch != header.producer_epoch:
            known = ProducerState(header.producer_epoch)
        state = known._replace(
            coordinator_epoch=coordinator_epoch,
            last_timestamp_ms=header.max_timestamp_ms,
            last_used_ms=now_ms,
        )
        self._put(header.producer_id, state)

    def epoch_of(self, producer_id: int) -> int | None:
        """Return a producer's epoch; None for one that is not known."""
        state = self._states.get(producer_id)
        return None if state is None else state.producer_epoch

    def expire(self, now_ms: int, idle_ms: int) -> int:
        """Forget who was idle for `idle_ms` and has no open transaction; return how many."""
        idle = [
            producer_id
            for producer_id, state in self._states.items()
            if now_ms - state.last_used_ms >= idle_ms and producer_id not in self.in_transaction
        ]
        for producer_id in idle:
            del self._states[producer_id]
        return len(idle)

    def snapshot(self) -> tuple[tuple[int, ProducerState], ...]:
        """Return all producers, the one that was idle longest first."""
        return tuple(self._states.items())

    def load(self, states: Iterable[tuple[int, ProducerState]]) -> None:
        """Hold what `snapshot` returned, and nothing else."""
        self._states = OrderedDict(states)

    def _put(self, producer_id: int, state: ProducerState) -> None:
        if producer_id not in self._states and len(self._states) >= PRODUCERS_MAX:
            if self._is_full_of_transactions():
                return  # only a marker comes here, of a producer without a transaction in this log
            self._drop_idlest()
        self._states[producer_id] = state
        self._states.move_to_end(producer_id)

    def _is_full_of_transactions(self) -> bool:
        return len(self.in_transaction) >= PRODUCERS_MAX

    def _drop_idlest(self) -> None:
        while (idlest := next(iter(self._states))) in self.in_transaction:
            self._states.move_to_end(idlest)
        del self._states[idlest]


def _check_sequence(header: BatchHeader, state: ProducerState) -> Verdict:
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
        text = f"sequence {header.base_sequence} is in the log, before the last batches"
        return Refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, text)
    return _out_of_order(header, expected)


def _out_of_order(header: BatchHeader, expected: int) -> Refused:
    text = (
        f"producer {header.producer_id} in epoch {header.producer_epoch} sent sequence "
        f"{header.base_sequence}, the next is {expected}"
    )
    return Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)


def _stale_epoch(epoch: int, state: ProducerState) -> Refused:
    text = f"producer epoch {epoch} is below {state.producer_epoch}"
    return Refused(ErrorCode.INVALID_PRODUCER_EPOCH, text)
