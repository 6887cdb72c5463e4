"""Appends batches to a partition's open ledger, and tells when they are committed.

Leaves which ledger that is to `log_rolling`, and what producers and transactions may do to
`partition_state`.

One record batch is one entry. Its offsets are given when it is admitted, and it is visible once it
is committed: confirmed by its ledger, which the list of ledgers names.

Invariants: offsets are given in the order of entries; the high watermark never goes back; a batch
is admitted only into an open ledger with room, and one that must wait keeps its turn; after a
failure nothing is admitted or committed.

Source: topics design, "The mapping"; KIP-98.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import BatchError
from broker_layer.kafka.record_batch import NO_TIMESTAMP, BatchHeader, check_keys, read_control
from broker_layer.log.batch_stamping import placed
from broker_layer.log.ledger_chain import LedgerChain, deposed
from broker_layer.log.ledger_roller import LogRolling
from broker_layer.log.log_config import LogConfig
from broker_layer.log.log_takeover import TakenOver
from broker_layer.log.pending_batches import (
    Appended,
    DeferredBatch,
    OpenLedger,
    PendingBatch,
    PendingBatches,
    RecentBatches,
    follow,
)
from broker_layer.log.producer_state import Duplicate, Refused
from ledger_client.errors import LedgerError, NotEnoughInSyncReplicasError

Callback = Callable[[], None]
Batch = bytes | bytearray | memoryview

KEYED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of the unpacked records of one batch of a compacted topic: each is looked at for its key."""
KEYED_RECORDS_MAX: Final = 50_000
"""Of that batch: nothing else is done meanwhile, and this many take about a tenth of a second."""

log = logging.getLogger(__name__)


class LogWriting:
    """The end of one log: what is admitted, what is committed, and who wants to know."""

    def __init__(
        self,
        chain: LedgerChain,
        name: str,
        config: LogConfig,
        begin: TakenOver,
        on_failed: Callback,
    ) -> None:
        services = chain.services
        self.config = config
        self.failure: TopicError | None = None
        self.state = begin.state
        self.log_end_offset = self.high_watermark = begin.end_offset
        self._chain = chain
        self._name = name
        self._on_failed = on_failed
        self._wall_clock_ms = services.wall_clock_ms
        self.recent = RecentBatches(services.tail)
        self._pending = PendingBatches(services.pending_bytes_max, services.pending_batches_max)
        self._deferred: deque[DeferredBatch] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._callbacks: dict[int, Callback] = {}
        self._last_callback = 0
        self.rolling = LogRolling(self, chain, begin.last)

    # -- appending -------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether producers need not wait."""
        return self.failure is not None or (not self._deferred and self._pending.has_room(0))

    async def wait_for_room(self, size: int) -> None:
        """Return once so many more bytes may be admitted, or the log has failed."""
        while self.failure is None and (self._deferred or not self._pending.has_room(size)):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def append(
        self,
        header: BatchHeader,
        data: Batch,
        *,
        coordinator_epoch: int | None = None,
        waits_for_one: bool = False,
    ) -> asyncio.Future[Appended]:
        """Append one batch, which was checked; the future is resolved once it is committed, or with
        `waits_for_one` once one bookie has it durably: then it may still be lost.

        `data` must not change until it is committed. With `coordinator_epoch`, it is the marker of
        a transaction. The future fails, or this raises, with TopicError: NOT_ENOUGH_REPLICAS when
        nothing was appended for want of replicas; what KIP-98 says of sequences and epochs;
        NOT_LEADER_OR_FOLLOWER when the outcome is unknown, or another broker leads.
        """
        self.require_usable()
        ledger = self.rolling.ledger
        size = len(data)
        if coordinator_epoch is None:
            self._check_limits(header, data)
        if self._deferred or ledger is None or not ledger.writer.window.is_free(size):
            deferred = DeferredBatch(header, data, coordinator_epoch, waits_for_one=waits_for_one)
            self._deferred.append(deferred)
            self.rolling.want_ledger()
            return deferred.answer
        committed = self._admit(ledger, header, data, coordinator_epoch)
        return self._early(ledger, committed) if waits_for_one else committed

    def _check_limits(self, header: BatchHeader, data: Batch) -> None:
        config = self.config
        size = len(data)
        if size > config.max_message_bytes:
            text = f"a batch of {size} bytes is above max.message.bytes={config.max_message_bytes}"
            raise TopicError(ErrorCode.MESSAGE_TOO_LARGE, text)
        if config.is_compacted:
            try:
                check_keys(data, header, records_max=KEYED_RECORDS_MAX, bytes_max=KEYED_BYTES_MAX)
            except BatchError as error:
                raise TopicError(error.code, error.text) from error
        if config.uses_append_time:
            return
        now_ms = self._wall_clock_ms()
        after_ms, before_ms = config.timestamp_after_max_ms, config.timestamp_before_max_ms
        if after_ms is not None and header.max_timestamp_ms > now_ms + after_ms:
            text = f"time {header.max_timestamp_ms} is more than {after_ms} ms ahead of the clock"
            raise TopicError(ErrorCode.INVALID_TIMESTAMP, text)
        if before_ms is not None and 0 <= header.first_timestamp_ms < now_ms - before_ms:
            text = f"time {header.first_timestamp_ms} is more than {before_ms} ms behind the clock"
            raise TopicError(ErrorCode.INVALID_TIMESTAMP, text)

    def _admit(
        self,
        ledger: OpenLedger,
        header: BatchHeader,
        data: Batch,
        coordinator_epoch: int | None,
    ) -> asyncio.Future[Appended]:
        now_ms = self._wall_clock_ms()
        state, writer = self.state, ledger.writer
        decision = state.check(header, coordinator_epoch)
        if isinstance(decision, Refused):
            raise TopicError(decision.code, decision.text)
        if isinstance(decision, Duplicate):
            return self._answer_duplicate(decision)
        control = None
        if coordinator_epoch is not None:
            control = read_control(data)
        base = self.log_end_offset
        time_ms = now_ms if self.config.uses_append_time else NO_TIMESTAMP
        header, batch = placed(header, data, base, self._chain.epoch, time_ms)
        try:
            entry_id = writer.append_followed(batch)
        except NotEnoughInSyncReplicasError as error:
            raise TopicError(ErrorCode.NOT_ENOUGH_REPLICAS, str(error)) from error
        except LedgerError as error:
            raise self.fail(str(error)) from error
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
        self.rolling.look()
        return answer

    def append_state(self, ledger: OpenLedger) -> None:
        """Append a state entry, from which a takeover rebuilds what is known now. It has no answer:
        it is committed with the batch behind it, and the writer takes it whatever its window holds.
        """
        entry = self.state.to_state_entry(ledger.writer.next_entry_id)
        try:
            entry_id = ledger.writer.push_entry(entry, len(entry))
        except LedgerError as error:
            self.fail(str(error))
            return
        end, size = self.log_end_offset, len(entry)
        ledger.written_bytes += size
        self._pending.add(PendingBatch(ledger, entry_id, end, end, size, NO_TIMESTAMP, None))

    def _answer_duplicate(self, duplicate: Duplicate) -> asyncio.Future[Appended]:
        """Answer for a batch that is in the log: now, or when that one is committed."""
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
        """Return an answer that comes with the first copy of the batch that was just admitted, or
        with what the log says of it, whichever is first.
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

    # -- committing ------------------------------------------------------------------------------

    def note_progress(self, ledger: OpenLedger, error: LedgerError | None) -> None:
        """Take note that a ledger has confirmed entries, or has failed all that it had not."""
        if self.failure is None:
            self.commit()
        if error is not None and (lost := self._pending.oldest_in(ledger)) is not None:
            self.fail(str(error.for_entry(lost, "unknown")))

    def _appended(self, base_offset: int, time_ms: int) -> Appended:
        return Appended(base_offset, time_ms, self._chain.record.log_start_offset)

    def commit(self) -> None:
        """Resolve what counts now, and move the high watermark over it."""
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
            self.tell_progress()

    def admit_deferred(self) -> None:
        """Admit what waited for a ledger, or for room in one."""
        ledger = self.rolling.ledger
        while self._deferred and ledger is not None and self.failure is None:
            first = self._deferred[0]
            if not ledger.writer.window.is_free(len(first.data)):
                return
            self._deferred.popleft()
            try:
                answer = self._admit(ledger, first.header, first.data, first.coordinator_epoch)
                if first.waits_for_one:
                    answer = self._early(ledger, answer)
            except TopicError as error:
                first.fail(error)
            else:
                follow(answer, first.answer)
            ledger = self.rolling.ledger
        self._wake()

    def refuse_deferred(self, error: TopicError) -> None:
        """Refuse what waited for a ledger; nothing of it was written."""
        while self._deferred:
            self._deferred.popleft().fail(error)
        self._wake()

    def on_progress(self, callback: Callback) -> Callback:
        """Call back after the high watermark or the log's start moved, and when the log ends;
        return what cancels it.
        """
        self._last_callback += 1
        number = self._last_callback
        self._callbacks[number] = callback

        def cancel() -> None:
            self._callbacks.pop(number, None)

        return cancel

    def tell_progress(self) -> None:
        """Call everybody back."""
        for callback in list(self._callbacks.values()):
            callback()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # -- ending ----------------------------------------------------------------------------------

    def require_usable(self) -> None:
        """Raise what ended the log, if it has ended."""
        if self.failure is not None:
            raise self.failure

    def fail(self, text: str, *, is_told: bool = True) -> TopicError:
        """End the log: what was admitted and not committed has an unknown outcome."""
        if self.failure is None:
            log.info("log %s ends: %s", self._name, text)
            self.failure = deposed(text)
            self._pending.fail(self.failure)
            self.refuse_deferred(self.failure)
            self.rolling.abandon()
            self.tell_progress()
            if is_told:
                self._on_failed()
        return self.failure
