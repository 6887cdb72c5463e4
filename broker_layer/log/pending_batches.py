"""Batches that a log has admitted and not committed, and its recent batches.

Leaves admission and commit to `log_appender`.

Invariants: batches are committed in the order of their offsets; a batch is committed once its
ledger is listed and confirmed up to its entry, which is derived and never stored as a flag.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker_layer.errors import TopicError
from broker_layer.kafka.record_batch import RecordBatchHeader
from broker_layer.log.ledger_roller import OpenLedger
from broker_layer.log.log_services import BUFFERS_RATIO_MAX, TailMemory
from metadata.ids import EntryId

COMPACT_AFTER: Final = 1_024
MayOpen = Callable[[], bool]
"""Returns whether a batch may open a transaction now; see `never_opens` and `TopicLog.append`."""


def never_opens() -> bool:
    """Return False: no coordinator has confirmed a transaction."""
    return False


class Appended(NamedTuple):
    """Position of an appended batch. A tuple, because one is created for every batch.

    `log_append_time_ms` is NO_TIMESTAMP unless the log sets the times of records.
    """

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


@dataclass(slots=True)
class PendingBatch:
    """A batch or a state entry that is not committed; a state entry has no `answer`."""

    ledger: OpenLedger
    entry_id: EntryId
    base_offset: int
    end_offset: int
    size: int
    log_append_time_ms: int
    answer: asyncio.Future[Appended] | None


class DeferredBatch:
    """A batch that waits for a ledger, or for room in one."""

    __slots__ = ("answer", "coordinator_epoch", "data", "header", "may_open", "waits_for_one")

    def __init__(
        self,
        header: RecordBatchHeader,
        data: bytes | bytearray | memoryview,
        coordinator_epoch: int | None,
        may_open: MayOpen,
        *,
        waits_for_one: bool,
    ) -> None:
        self.header = header
        if isinstance(data, memoryview):
            frame_bytes = memoryview(data.obj).nbytes
            if frame_bytes > BUFFERS_RATIO_MAX * len(data):
                data = bytes(data)  # its request may be answered, and the frame no longer counted
        self.data = data
        self.coordinator_epoch = coordinator_epoch
        self.may_open = may_open
        self.waits_for_one = waits_for_one
        self.answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()


def refuse(answer: asyncio.Future[Any], error: BaseException) -> None:
    """Fail a future that is not done, for a caller that may no longer wait."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # mark it as retrieved


def follow(first: asyncio.Future[Appended], answer: asyncio.Future[Appended]) -> None:
    """Resolve `answer` with the result of `first`, unless it is resolved before."""

    def finish(done: asyncio.Future[Appended]) -> None:
        if answer.done():
            return
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
        else:
            refuse(answer, error)

    first.add_done_callback(finish)


class PendingBatches:
    """The batches between the high watermark and the end of a log, in order."""

    def __init__(self, bytes_max: int, count_max: int) -> None:
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._pending: deque[PendingBatch] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def newest(self) -> PendingBatch | None:
        """The newest pending batch; state entries are ignored."""
        for batch in reversed(self._pending):
            if batch.answer is not None:
                return batch
        return None

    def has_room(self, size: int) -> bool:
        """Return whether `size` bytes may be admitted; always true if nothing is pending."""
        if not self._pending:
            return True
        return self._bytes + size <= self._bytes_max and len(self._pending) < self._count_max

    def add(self, batch: PendingBatch) -> None:
        """Add the newest batch."""
        self._pending.append(batch)
        self._bytes += batch.size

    def take_committed(self) -> list[PendingBatch]:
        """Remove and return the oldest batches that are committed now."""
        pending, taken = self._pending, list[PendingBatch]()
        ledger: OpenLedger | None = None
        confirmed = EntryId(-1)
        while pending:
            oldest = pending[0]
            if oldest.ledger is not ledger:
                ledger, confirmed = oldest.ledger, oldest.ledger.confirmed
            if oldest.entry_id > confirmed:
                break
            self._bytes -= oldest.size
            taken.append(pending.popleft())
        return taken

    def oldest_in(self, ledger: OpenLedger) -> EntryId | None:
        """Return the first unconfirmed entry of a ledger that is a batch."""
        for batch in self._pending:
            is_here = batch.ledger is ledger and batch.answer is not None
            if is_here and batch.entry_id > ledger.writer.last_confirmed:
                return batch.entry_id
        return None

    def find(self, base_offset: int) -> PendingBatch | None:
        """Return the pending batch with this base offset. There may be very many of them."""
        index = bisect_left(self._pending, base_offset, key=_base_offset)
        while index < len(self._pending) and self._pending[index].base_offset == base_offset:
            if self._pending[index].answer is not None:  # state entries before it have its offset
                return self._pending[index]
            index += 1
        return None

    def fail(self, error: TopicError) -> None:
        """Fail all pending batches."""
        while self._pending:
            answer = self._pending.popleft().answer
            if answer is not None:
                refuse(answer, error)
        self._bytes = 0


def _base_offset(batch: PendingBatch) -> int:
    return batch.base_offset


class RecentBatches:
    """The newest batches of a log, by offset, for readers at its end."""

    def __init__(self, memory: TailMemory) -> None:
        self._memory = memory
        self._bases: list[int] = []
        self._batches: list[bytes] = []
        self._ends: list[int] = []
        self._first = 0

    def keep(self, base_offset: int, end_offset: int, batch: bytes) -> None:
        """Keep the newest batch."""
        self._bases.append(base_offset)
        self._ends.append(end_offset)
        self._batches.append(batch)
        self._memory.keep(self, len(batch))

    def drop_oldest(self) -> None:
        """Drop the oldest kept batch."""
        if self._first >= len(self._bases):
            return
        self._batches[self._first] = b""
        self._first += 1
        if self._first >= COMPACT_AFTER and self._first * 2 >= len(self._bases):
            del self._bases[: self._first]
            del self._ends[: self._first]
            del self._batches[: self._first]
            self._first = 0

    def read(self, offset: int, end_offset: int, bytes_max: int) -> list[bytes] | None:
        """Return complete batches below `end_offset`, from the one with `offset` or the next one.

        They have at most `bytes_max` bytes, but the first is returned whatever its size. Returns
        None if older batches than those kept are needed.
        """
        index = bisect_right(self._bases, offset, self._first) - 1
        if index < self._first:
            return None
        if self._ends[index] <= offset:
            index += 1  # a gap without records
        batches: list[bytes] = []
        size = 0
        while index < len(self._bases) and self._ends[index] <= end_offset:
            batch = self._batches[index]
            if batches and size + len(batch) > bytes_max:
                break
            batches.append(batch)
            size += len(batch)
            index += 1
        return batches
