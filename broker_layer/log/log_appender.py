"""Appends to one partition's log: admission and commit of batches.

Leaves the choice of the ledger to `ledger_roller`, except its age, checks of a batch's bytes to
`kafka.record_batch`, and the rules for producers and transactions to `partition_state`.

One record batch is one entry. A batch gets its offsets when it is admitted. It is visible once it
is committed: its ledger is listed and has confirmed it.

Invariants: offsets are given in the order of entries, and once: an exception after an entry was
appended ends the log; the high watermark never decreases; a batch is admitted only into an open
ledger with room; batches that wait are admitted in the order in which they came, and are judged
when they are admitted, not when they came; as in Kafka, a batch is refused for want of replicas
before its sequence is judged, so that no batch behind it looks like a gap; after a failure nothing
is admitted or committed.

Source: topics design, "The mapping"; KIP-98; KIP-467 (errors of records);
KIP-937 (bounds of times).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker_layer.errors import RecordsRefusedError, TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError, RecordError
from broker_layer.kafka.frames import Buffer
from broker_layer.kafka.record_batch import (
    NO_TIMESTAMP,
    Record,
    RecordBatchHeader,
    keyless_records,
    parse_records,
    read_control,
)
from broker_layer.kafka.record_batch.header import placed
from broker_layer.log.ledger_list import LedgerList, deposed
from broker_layer.log.ledger_roller import LedgerRoller, OpenLedger
from broker_layer.log.log_takeover import TakenOver
from broker_layer.log.pending_batches import (
    Appended,
    DeferredBatch,
    MayOpen,
    PendingBatch,
    PendingBatches,
    RecentBatches,
    follow,
    never_opens,
    refuse,
)
from broker_layer.log.state.producer_state import BatchRefused, Duplicate
from broker_layer.log.topic_configs import LogConfig
from ledger_client.errors import LedgerError, NotEnoughInSyncReplicasError
from metadata.callbacks import Callbacks

ROLL_EARLY_SHARE: Final = 0.9
"""Share of a ledger's size at which the next one is created."""
AGAIN: Final = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Codes after which producers send the refused batch again."""
KEYED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum number of decompressed bytes in one batch of a compacted topic, where each record is
checked for a key."""
KEYED_RECORDS_MAX: Final = 50_000
"""Maximum number of records in such a batch. The check blocks the event loop; this many records
take about 0.1 s."""
RECORD_ERRORS_MAX: Final = 1_000
"""Maximum number of refused records that an answer names for one batch."""


log = logging.getLogger(__name__)


class LogAppender:
    """The end of one log: admitted batches, committed batches, and callbacks of progress."""

    def __init__(
        self,
        ledger_list: LedgerList,
        name: str,
        config: LogConfig,
        begin: TakenOver,
        on_failed: Callable[[], None],
    ) -> None:
        services = ledger_list.services
        self.config = config
        self.failure: TopicError | None = None
        self.state = begin.state
        self.log_end_offset = self.high_watermark = begin.end_offset
        self._ledger_list = ledger_list
        self._name = name
        self._on_failed = on_failed
        self._wall_clock_ms = services.wall_clock_ms
        self.recent = RecentBatches(services.tail)
        self._pending = PendingBatches(services.pending_bytes_max, services.pending_batches_max)
        self._deferred: deque[DeferredBatch] = deque()
        self._deferred_memory = services.deferred
        self._changed = asyncio.Event()
        self.progress = Callbacks[()]()
        """Called after the high watermark or the log's start moved, and when the log ends."""
        self.wants_roll = False
        """Whether the log is to roll to another ledger soon."""
        self._opened_s = 0.0
        self.roller = LedgerRoller(
            self, ledger_list, config, early_share=ROLL_EARLY_SHARE, last=begin.last
        )

    # -- appending -------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether the pending batches are below their limit, and none is deferred; also true once
        the log has failed, so that nothing waits for it.
        """
        return self.failure is not None or (not self._deferred and self._pending.has_room(0))

    async def wait_for_room(self, size: int) -> None:
        """Wait until `size` more bytes can be admitted, or the log has failed."""
        while self.failure is None and (self._deferred or not self._pending.has_room(size)):
            await self._changed.wait()

    def append(
        self,
        header: RecordBatchHeader,
        data: Buffer,
        *,
        coordinator_epoch: int | None = None,
        may_open: MayOpen = never_opens,
        waits_for_one: bool = False,
    ) -> asyncio.Future[Appended]:
        """See `TopicLog.append`."""
        self.require_usable()
        ledger = self.roller.ledger
        size = len(data)
        if coordinator_epoch is None:
            check_limits(self.config, header, data, self._wall_clock_ms())
        if self._deferred or ledger is None or not ledger.writer.admission.window.is_free(size):
            deferred = DeferredBatch(
                header, data, coordinator_epoch, may_open, waits_for_one=waits_for_one
            )
            self._defer(deferred)
            return deferred.answer
        committed = self._admit(ledger, header, data, coordinator_epoch, may_open)
        return self._early(ledger, committed) if waits_for_one else committed

    def _defer(self, batch: DeferredBatch) -> None:
        """Have a batch wait, if there is memory for it. One batch of each log always has it, so
        that no log waits for another; and so have markers, which are few.
        """
        size = len(batch.data)
        may_be_refused = self._deferred and batch.coordinator_epoch is None
        if may_be_refused and not self._deferred_memory.has_room(size):
            text = "batches that wait for ledgers take all memory that they may"
            advice = "retry; if this lasts, check the bookies and the metadata service"
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, f"{text}: {advice}")
        self._deferred_memory.change(size)
        self._deferred.append(batch)
        self.roller.want_ledger()

    def _take_deferred(self) -> DeferredBatch:
        batch = self._deferred.popleft()
        self._deferred_memory.change(-len(batch.data))
        return batch

    def _admit(
        self,
        ledger: OpenLedger,
        header: RecordBatchHeader,
        data: Buffer,
        coordinator_epoch: int | None,
        may_open: MayOpen,
    ) -> asyncio.Future[Appended]:
        now_ms = self._wall_clock_ms()
        state, writer = self.state, ledger.writer
        try:
            writer.admission.require_open()
        except NotEnoughInSyncReplicasError as error:
            raise TopicError(ErrorCode.NOT_ENOUGH_REPLICAS, str(error)) from error
        except LedgerError as error:
            raise self.fail(str(error)) from error
        may_open_now = header.is_transactional and may_open()
        decision = state.check(header, coordinator_epoch, may_open=may_open_now, now_ms=now_ms)
        if isinstance(decision, BatchRefused):
            raise TopicError(decision.code, decision.text)
        if isinstance(decision, Duplicate):
            return self._answer_duplicate(decision)
        control = None
        if coordinator_epoch is not None:
            control = read_control(data)
        base = self.log_end_offset
        time_ms = now_ms if self.config.uses_append_time else NO_TIMESTAMP
        header, batch = placed(header, data, base, self._ledger_list.epoch, time_ms)
        try:
            entry_id = writer.append_followed(batch)
            answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
            size = len(batch)
            state.admit(entry_id, base, header, control, now_ms)
            end = self.log_end_offset = state.next_offset
            ledger.record_bytes += size
            ledger.written_bytes += size
            ledger.max_timestamp_ms = max(ledger.max_timestamp_ms, header.max_timestamp_ms)
            self.recent.keep(base, end, batch)
            self._pending.add(PendingBatch(ledger, entry_id, base, end, size, time_ms, answer))
            if state.wants_state_entry:
                self.append_state(ledger)
            self.roll_if_due()
        except Exception as error:  # the entry may be written: no other one may get its offsets
            raise self._fail_after(error) from error
        return answer

    def append_state(self, ledger: OpenLedger) -> None:
        """Append a state entry, from which a takeover rebuilds the current state.

        It has no future: it is committed with the batch after it. The writer accepts it even if its
        window is full.
        """
        entry = self.state.to_state_entry(ledger.writer.admission.next_entry_id)
        try:
            entry_id = ledger.writer.admission.push_entry(entry, len(entry))
        except LedgerError as error:
            self.fail(str(error))
            return
        end, size = self.log_end_offset, len(entry)
        ledger.written_bytes += size
        self._pending.add(PendingBatch(ledger, entry_id, end, end, size, NO_TIMESTAMP, None))

    def _answer_duplicate(self, duplicate: Duplicate) -> asyncio.Future[Appended]:
        """Return the result of the batch in the log: now, or when that batch is committed."""
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        pending = self._pending.find(duplicate.base_offset)
        if pending is None or pending.answer is None:
            answer.set_result(self._appended(duplicate.base_offset, duplicate.append_time_ms))
            return answer
        follow(pending.answer, answer)
        return answer

    def _early(
        self, ledger: OpenLedger, committed: asyncio.Future[Appended]
    ) -> asyncio.Future[Appended]:
        """Return a future for the batch just admitted that is resolved when one bookie stores it.

        If the batch is committed or refused first, the future gets that result.
        """
        newest = self._pending.newest
        if newest is None or newest.answer is not committed:
            return committed  # a duplicate
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        appended = self._appended(newest.base_offset, newest.log_append_time_ms)

        def stored(first: asyncio.Future[int]) -> None:
            if not answer.done() and not first.cancelled() and first.exception() is None:
                answer.set_result(appended)

        ledger.writer.expect_stored(newest.entry_id).add_done_callback(stored)
        follow(committed, answer)
        return answer

    # -- ledgers ---------------------------------------------------------------------------------

    def roll_if_due(self) -> None:
        """Create the next ledger, or roll to it, if it is due by size or age, or wanted."""
        age_s = asyncio.get_running_loop().time() - self._opened_s
        is_old = age_s >= self.config.segment_ms / 1000
        self.roller.roll_if_due(is_wanted=self.wants_roll or is_old)

    def begin_ledger(self, ledger: OpenLedger) -> None:
        """Begin a ledger with a state entry; its batches count once it is listed."""
        self.wants_roll = False
        jitter_ms = self._ledger_list.services.rng.uniform(0, self.config.segment_jitter_ms)
        self._opened_s = asyncio.get_running_loop().time() - jitter_ms / 1000
        self.state.begin_ledger(ledger.writer.id)
        ledger.writer.follow(partial(self.note_progress, ledger))
        self.append_state(ledger)

    def resume(self) -> None:
        """Commit and admit batches: a ledger was listed, or the last one was ended."""
        self.commit()
        self.admit_deferred()

    # -- committing ------------------------------------------------------------------------------

    def note_progress(self, ledger: OpenLedger, error: LedgerError | None) -> None:
        """Process newly confirmed entries of a ledger, or the failure of all unconfirmed ones."""
        if self.failure is None:
            self.commit()
        if error is not None and (lost := self._pending.oldest_in(ledger)) is not None:
            self.fail(str(error.for_entry(lost, "unknown")))

    def _appended(self, base_offset: int, time_ms: int) -> Appended:
        return Appended(base_offset, time_ms, self._ledger_list.record.log_start_offset)

    def commit(self) -> None:
        """Resolve the futures of batches that count now, and advance the high watermark."""
        committed = self._pending.take_committed()
        for batch in committed:
            self.high_watermark = batch.end_offset
            answer = batch.answer
            if answer is not None and not answer.done():
                answer.set_result(self._appended(batch.base_offset, batch.log_append_time_ms))
        if committed:
            if self._deferred:
                self.admit_deferred()
            self._wake()
            self.progress.notify()

    def admit_deferred(self) -> None:
        """Admit batches that waited for a ledger, or for room in one."""
        ledger = self.roller.ledger
        while self._deferred and ledger is not None and self.failure is None:
            first = self._deferred[0]
            if not ledger.writer.admission.window.is_free(len(first.data)):
                return
            self._take_deferred()
            try:
                answer = self._admit(
                    ledger, first.header, first.data, first.coordinator_epoch, first.may_open
                )
                if first.waits_for_one:
                    answer = self._early(ledger, answer)
            except TopicError as error:
                self.note_refused(first.header, error.code)
                refuse(first.answer, error)
            except Exception as error:  # noqa: BLE001 - the producer of this batch waits
                refuse(first.answer, self._fail_after(error))
            else:
                follow(answer, first.answer)
            ledger = self.roller.ledger
        self._wake()

    def refuse_deferred(self, error: TopicError) -> None:
        """Refuse batches that waited for a ledger; nothing of them was written."""
        while self._deferred:
            deferred = self._take_deferred()
            self.note_refused(deferred.header, error.code)
            refuse(deferred.answer, error)
        self._wake()

    def note_refused(self, header: RecordBatchHeader, code: ErrorCode) -> None:
        """Await a refused batch before later ones of its producer, if it will be sent again."""
        if code in AGAIN:
            self.state.await_refused(header, self._wall_clock_ms())

    def _wake(self) -> None:
        self._changed.set()  # every caller that waits now returns from `wait`
        self._changed.clear()

    # -- ending ----------------------------------------------------------------------------------

    def require_usable(self) -> None:
        """Raise the failure that ended the log, if it has ended."""
        if self.failure is not None:
            raise self.failure

    def _fail_after(self, error: Exception) -> TopicError:
        """End the log after an exception inside an append, which is reported to the loop."""
        what = {"message": f"an append to log {self._name} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(what)
        return self.fail(f"an append failed inside the broker ({type(error).__name__}: {error})")

    def fail(self, text: str, *, notifies_owner: bool = True) -> TopicError:
        """End the log; the outcome of batches that were admitted and not committed is unknown."""
        if self.failure is None:
            log.info("log %s ends: %s", self._name, text)
            self.failure = deposed(text)
            self._pending.fail(self.failure)
            self.refuse_deferred(self.failure)
            self.roller.abandon()
            self.progress.notify()
            if notifies_owner:
                self._on_failed()
        return self.failure


def check_limits(config: LogConfig, header: RecordBatchHeader, data: Buffer, now_ms: int) -> None:
    """Raise TopicError if a topic with these settings does not accept the size, keys or times of a
    batch.

    A refusal for single records names them, so that clients can distinguish them from the other
    records of the batch. A batch with more than KEYED_RECORDS_MAX records, KEYED_BYTES_MAX bytes or
    RECORD_ERRORS_MAX refused records is refused with fewer names or none.
    """
    size = len(data)
    if size > config.max_message_bytes:
        text = (
            f"the batch has {size} B, and the topic's max.message.bytes is "
            f"{config.max_message_bytes}: send smaller batches, or raise max.message.bytes"
        )
        raise TopicError(ErrorCode.MESSAGE_TOO_LARGE, text)
    if config.is_compacted:
        _check_keys(header, data)
    if config.uses_append_time:
        return
    after_ms, before_ms = config.timestamp_after_max_ms, config.timestamp_before_max_ms
    if after_ms is not None and header.max_timestamp_ms > now_ms + after_ms:
        time_ms, latest_ms = header.max_timestamp_ms, now_ms + after_ms
        text = f"a record's time, {time_ms}, is more than {after_ms} ms ahead of the broker's clock"
        raise _untimely(header, data, text, lambda ms: ms > latest_ms)
    if before_ms is not None and 0 <= header.first_timestamp_ms < now_ms - before_ms:
        time_ms, earliest_ms = header.first_timestamp_ms, now_ms - before_ms
        text = f"a record's time, {time_ms}, is more than {before_ms} ms behind the broker's clock"
        raise _untimely(header, data, text, lambda ms: 0 <= ms < earliest_ms)


def _check_keys(header: RecordBatchHeader, data: Buffer) -> None:
    try:
        keyless = keyless_records(
            data, header, records_max=KEYED_RECORDS_MAX, bytes_max=KEYED_BYTES_MAX
        )
    except RecordBatchError as error:
        raise TopicError(error.code, error.text) from error
    if keyless:
        text = (
            f"{len(keyless)} records have no key, but the topic is compacted: give every record a "
            "key"
        )
        records = [
            RecordError(index, "the record has no key, but the topic is compacted")
            for index in keyless[:RECORD_ERRORS_MAX]
        ]
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, text, records)


def _untimely(
    header: RecordBatchHeader, data: Buffer, text: str, is_wrong: Callable[[int], bool]
) -> TopicError:
    records: list[RecordError] = []
    try:
        for index, record in enumerate(_opened(header, data)):
            if is_wrong(record.timestamp_ms) and len(records) < RECORD_ERRORS_MAX:
                what = f"the record's time, {record.timestamp_ms}, is out of bounds"
                records.append(RecordError(index, what))
    except RecordBatchError:
        records = []  # its records cannot be read: the batch is refused as a whole
    return RecordsRefusedError(ErrorCode.INVALID_TIMESTAMP, text, records)


def _opened(header: RecordBatchHeader, data: Buffer) -> Iterator[Record]:
    if header.record_count > KEYED_RECORDS_MAX:
        return iter(())
    return parse_records(data, bytes_max=KEYED_BYTES_MAX, with_headers=False)
