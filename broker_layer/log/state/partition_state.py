"""State of a partition's log at its leader: producers, transactions, leader epochs, offset index.

Leaves each of these to a separate module, the ledgers to `ledger_roller`, and the high watermark
and waiting producers to `log_appender`.

A batch counts here as soon as it is admitted, in the order of the entries. Batches are confirmed
later, in the same order, or the log fails. Then the state is rebuilt from the newest state entry of
the ledgers and the entries after it.

Invariants: offsets rise from entry to entry; every ledger begins with a state entry; the state is
equal to the result of a replay of all entries, except for state dropped by age or at a limit.

Source: topics design, "State entries"; KIP-98.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.primitives import NO_OFFSET
from broker_layer.kafka.record_batch import (
    MAGIC,
    ControlKind,
    RecordBatchError,
    RecordBatchHeader,
    read_control,
    read_header,
)
from broker_layer.log.state.epoch_table import EpochTable
from broker_layer.log.state.offset_index import LedgerIndex
from broker_layer.log.state.producer_state import (
    ACCEPT,
    Accept,
    BatchRefused,
    BatchVerdict,
    ProducerStates,
)
from broker_layer.log.state.state_entry import (
    AbortedPage,
    EntryPlace,
    OlderAborted,
    StateEntry,
    is_state_entry,
)
from broker_layer.log.state.transaction_index import (
    ABORTED_MAX,
    AbortedTransaction,
    TransactionIndex,
)
from metadata.ids import EntryId, LedgerId

STATE_ENTRY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of batches after the newest state entry at which another one is due."""
STATE_ENTRY_BATCHES_MAX: Final = 20_000
"""Number of batches at which another one is due, if they also have STATE_ENTRY_SHARE times the
bytes of the newest state entry."""
STATE_ENTRY_SHARE: Final = 16

Control = tuple[ControlKind, int]
"""The outcome of a transaction, and the epoch of the coordinator that decided it."""


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer, as DescribeProducers shows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int
    """NO_OFFSET without an open transaction."""


class PartitionState:
    """The state of one partition's log after all admitted batches."""

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset
        """The offset of the next record."""
        self.log_start_offset = 0
        self.epochs = EpochTable()
        self.index: LedgerIndex | None = None
        """Index of the ledger that is being written or replayed."""
        self._transactions = TransactionIndex()
        self._producers = ProducerStates(self._transactions.producers)
        # The newest state entry with the index of its ledger; and those of the ledger before.
        self._newest: tuple[EntryId, LedgerIndex] | None = None
        self._former: tuple[EntryId, LedgerIndex] | None = None
        self.newest_page: AbortedPage | None = None
        """What was dropped last of the aborted transactions: its entry may not be readable yet."""
        self.older: OlderAborted | None = None
        """Where the aborted transactions are that are no longer kept here."""
        self._newest_bytes = 0
        self._bytes_since = 0
        self._batches_since = 0

    # Admission.

    def check(
        self,
        header: RecordBatchHeader,
        coordinator_epoch: int | None = None,
        *,
        may_open: bool = False,
        now_ms: int = 0,
    ) -> BatchVerdict:
        """Decide whether a batch may be appended now; a marker needs its coordinator's epoch.

        A batch opens a transaction only if it `may_open` one, which its coordinator confirms. At
        the time 0 no producer counts as idle.
        """
        if header.is_control:
            if coordinator_epoch is None:
                return BatchRefused(
                    ErrorCode.INVALID_RECORD, "clients must not write control batches"
                )
            return self._producers.check_marker(
                header.producer_id, header.producer_epoch, coordinator_epoch
            )
        if not header.has_producer:
            if header.is_transactional:
                text = "a transactional batch has no producer id"
                return BatchRefused(ErrorCode.INVALID_RECORD, text)
            return ACCEPT
        is_empty = self.next_offset == 0
        verdict = self._producers.check(header, is_log_empty=is_empty, now_ms=now_ms)
        if not isinstance(verdict, Accept):
            return verdict
        has_open = self._transactions.first_offset_of(header.producer_id) is not None
        is_confirmed = may_open or self.is_open(header.producer_id, header.producer_epoch)
        if header.is_transactional and not is_confirmed:
            text = f"producer {header.producer_id} has no open transaction here, and its"
            text += " coordinator has not confirmed one since the last marker: retry"
            return BatchRefused(ErrorCode.NOT_ENOUGH_REPLICAS, text)
        if has_open and not header.is_transactional:
            text = f"producer {header.producer_id} has an open transaction, and the batch is not"
            text += " transactional"
            return BatchRefused(ErrorCode.INVALID_TXN_STATE, text)
        return ACCEPT

    def await_refused(self, header: RecordBatchHeader, now_ms: int) -> None:
        """Await the sequence of a batch that was refused for now; later ones are refused too."""
        if header.has_producer and header.base_sequence >= 0:
            self._producers.await_refused(header, now_ms)

    def await_next(self, now_ms: int) -> None:
        """Await the next sequence of each known producer; later ones are refused for now."""
        self._producers.await_next(now_ms)

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer has an open transaction in this partition in this epoch."""
        is_known = self._transactions.first_offset_of(producer_id) is not None
        return is_known and self._producers.epoch_of(producer_id) == producer_epoch

    def admit(
        self,
        entry_id: EntryId,
        base_offset: int,
        header: RecordBatchHeader,
        control: Control | None,
        now_ms: int,
    ) -> None:
        """Add a batch that gets this entry and offset; give `control` exactly for control batches.

        The header is that of the stored batch, except for base offset and leader epoch.
        """
        assert base_offset >= self.next_offset
        assert header.is_control == (control is not None)
        if control is not None:
            kind, coordinator_epoch = control
            is_aborted = kind is ControlKind.ABORT
            self._transactions.end(header.producer_id, base_offset, is_aborted=is_aborted)
            self._producers.apply_marker(header, coordinator_epoch, now_ms)
        elif header.has_producer:
            self._producers.apply(header, base_offset, now_ms)
            if header.is_transactional:
                self._transactions.begin(header.producer_id, base_offset)
        assert self.index is not None
        self.index.add(entry_id, base_offset, header.size_bytes, header.max_timestamp_ms)
        self.next_offset = base_offset + header.last_offset_delta + 1
        self._bytes_since += header.size_bytes
        self._batches_since += 1

    # Reads.

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the end of what readers of committed records see.

        `high_watermark` must not decrease from one call to the next.
        """
        return max(self.log_start_offset, self._transactions.last_stable_offset(high_watermark))

    def aborted_in(
        self, first_offset: int, end_offset: int, high_watermark: int
    ) -> list[AbortedTransaction]:
        """Return the kept aborted transactions that may have records in a range of offsets."""
        return self._transactions.aborted_in(first_offset, end_offset, high_watermark)

    def active_producers(self) -> list[ActiveProducer]:
        """Return the known producers, the longest idle first."""
        return [
            ActiveProducer(
                producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.last_timestamp_ms,
                state.coordinator_epoch,
                NO_OFFSET if first is None else first,
            )
            for producer_id, state in self._producers.snapshot()
            for first in (self._transactions.first_offset_of(producer_id),)
        ]

    def known_index(self, ledger_id: LedgerId) -> tuple[LedgerIndex, EntryPlace | None] | None:
        """Return the index of the newest ledger or the one before; None for older ledgers.

        The index of an older ledger is in its state entries. If earlier points are missing, the
        returned place is the state entry from which to read backwards.
        """
        for known in (self._newest, self._former):
            if known is not None and known[1].ledger_id == ledger_id:
                entry_id, index = known
                return index, None if index.is_whole else EntryPlace(ledger_id, entry_id)
        return None

    # Expiry and retention.

    def expire_producers(self, now_ms: int, idle_ms: int) -> int:
        """Drop producers that were idle for `idle_ms` and have no open transaction; count them."""
        return self._producers.expire(now_ms, idle_ms)

    def drop_below(self, log_start_offset: int) -> None:
        """Drop aborted transactions and epochs below the log's start."""
        self.log_start_offset = max(self.log_start_offset, log_start_offset)
        self._drop_transactions()
        self.epochs = self.epochs.without_below(self.log_start_offset)

    def _drop_transactions(self) -> None:
        self._transactions.drop_below(self.log_start_offset)
        if self.older is not None and self.older.end_offset <= self.log_start_offset:
            self.older = self.newest_page = None

    # State entries.

    @property
    def wants_state_entry(self) -> bool:
        """Whether a state entry is due, so that a takeover stays short."""
        if self._bytes_since >= STATE_ENTRY_BYTES_MAX:
            return True
        if self._transactions.aborted_count >= ABORTED_MAX:
            return True
        is_worth_it = self._bytes_since >= STATE_ENTRY_SHARE * self._newest_bytes
        return self._batches_since >= STATE_ENTRY_BATCHES_MAX and is_worth_it

    def begin_ledger(self, ledger_id: LedgerId) -> LedgerIndex:
        """Begin the next ledger; return its index, which grows with every batch.

        Entry 0 of the ledger must be a state entry. The index of the ledger before stops growing.
        """
        assert self._newest is None or self._newest[1] is self.index, "no state entry since"
        self.index = LedgerIndex(ledger_id)
        return self.index

    def to_state_entry(self, entry_id: EntryId) -> bytes:
        """Return the state as a state entry, which must be appended next, as `entry_id`."""
        entry = StateEntry(
            next_offset=self.next_offset,
            producers=self._producers.snapshot(),
            open_transactions=self._transactions.open_snapshot(),
            aborted=self._transactions.aborted_snapshot(),
            epochs=self.epochs,
            older=self.older,
        )
        if self._newest is not None:
            newest_entry_id, described = self._newest
            entry = replace(
                entry,
                previous=EntryPlace(described.ledger_id, newest_entry_id),
                points=described.points_after(newest_entry_id),
                max_timestamp_ms=described.max_timestamp_ms,
            )
        data = entry.encode()
        self._pass_state_entry(entry_id, len(data))
        self._leave_to(entry, entry_id)
        return data

    @classmethod
    def from_state_entry(
        cls, data: bytes | bytearray | memoryview, ledger_id: LedgerId, entry_id: EntryId
    ) -> Self:
        """Return the state directly after a state entry. Raises StateEntryError.

        Its index has the points since the previous state entry; `LedgerIndex.add_earlier` adds
        earlier ones.
        """
        entry = StateEntry.decode(data)
        state = cls(entry.next_offset)
        index = state.begin_ledger(ledger_id)
        if entry_id > 0:
            index.add_later(entry.points, entry.max_timestamp_ms)
        state._adopt(entry, entry_id, len(data))
        return state

    def replay(
        self, entry_id: EntryId, data: bytes | bytearray | memoryview, now_ms: int
    ) -> RecordBatchHeader | None:
        """Apply the next stored entry of the ledger; return the header if it is a batch.

        For a batch that is not a marker, the header is enough. Raises TopicError
        KAFKA_STORAGE_ERROR if the entry is not valid here: the log is damaged.
        """
        if is_state_entry(data):
            entry = StateEntry.decode(data)
            self._check_offset(entry_id, entry.next_offset)
            self._adopt(entry, entry_id, len(data))
            return None
        try:
            header = read_header(data)
            control = read_control(data) if header.is_control else None
        except RecordBatchError as error:
            raise _damaged(entry_id, error.text) from error
        if header.magic != MAGIC or header.last_offset_delta < 0:
            raise _damaged(entry_id, "it is not a record batch")
        self._check_offset(entry_id, header.base_offset)
        if header.leader_epoch > self.epochs.latest_epoch:
            self.epochs = self.epochs.with_start(header.leader_epoch, header.base_offset)
        self.admit(entry_id, header.base_offset, header, control, now_ms)
        return header

    def _check_offset(self, entry_id: EntryId, offset: int) -> None:
        if offset < self.next_offset:
            raise _damaged(entry_id, f"its offset is {offset}, below {self.next_offset}")

    def _adopt(self, entry: StateEntry, entry_id: EntryId, size_bytes: int) -> None:
        self.next_offset = entry.next_offset
        self.epochs = entry.epochs.without_below(self.log_start_offset)
        self._producers.load(entry.producers)
        self._transactions.load(entry.open_transactions, entry.aborted)
        self.older, self.newest_page = entry.older, None
        self._drop_transactions()
        self._pass_state_entry(entry_id, size_bytes)
        self._leave_to(entry, entry_id)

    def _leave_to(self, entry: StateEntry, entry_id: EntryId) -> None:
        """Drop the older half of many aborted transactions, which this state entry names."""
        if self._transactions.aborted_count < ABORTED_MAX:
            return
        assert self.index is not None
        end_offset = self._transactions.drop_older_half()
        self.newest_page = AbortedPage.of(entry, end_offset)
        self.older = OlderAborted(EntryPlace(self.index.ledger_id, entry_id), end_offset)

    def _pass_state_entry(self, entry_id: EntryId, size_bytes: int) -> None:
        assert self.index is not None, "no ledger was begun"
        if self._newest is not None and self._newest[1] is not self.index:
            self._former = self._newest
        self.index.pass_state_entry()
        self._newest = (entry_id, self.index)
        self._newest_bytes = size_bytes
        self._bytes_since = self._batches_since = 0


def _damaged(entry_id: EntryId, text: str) -> TopicError:
    return TopicError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"entry {entry_id} of the log is damaged: {text}"
    )
