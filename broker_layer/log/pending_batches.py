"""Tracks what a log has admitted and not yet committed, and the recent batches behind it.

Leaves admission and commitment to `topic_log`.

Invariants: batches are committed in the order of their offsets; a batch counts as committed once
its ledger is listed and confirmed to its entry, which is derived, never noted.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_layer.errors import TopicError
from broker_layer.kafka.record_batch import BatchHeader
from broker_layer.log.log_services import TailMemory
from ledger_client.writing.writer import LedgerWriter
from metadata.ids import EntryId
from metadata.topics.partition import Segment

COMPACT_AFTER: Final = 1_024
NO_TIMESTAMP: Final = -1


class Appended(NamedTuple):
    """Where a batch is. `log_append_time_ms` is NO_TIMESTAMP unless the log stamps batches. A
    tuple, for one is made for every batch.
    """

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


@dataclass(slots=True)
class OpenLedger:
    """A ledger that this leader writes. It counts once the list names it."""

    writer: LedgerWriter
    segment: Segment
    is_listed: bool
    written_bytes: int = 0
    record_bytes: int = 0
    max_timestamp_ms: int = NO_TIMESTAMP

    @property
    def confirmed(self) -> EntryId:
        """The last entry that counts."""
        return self.writer.last_confirmed if self.is_listed else EntryId(-1)


@dataclass(slots=True)
class PendingBatch:
    """A batch, or a state entry, which has no answer, on its way to the bookies."""

    ledger: OpenLedger
    entry_id: EntryId
    base_offset: int
    end_offset: int
    size: int
    log_append_time_ms: int
    answer: asyncio.Future[Appended] | None


class DeferredBatch:
    """A batch that waits to be admitted: for a ledger, or for room in it."""

    __slots__ = ("answer", "coordinator_epoch", "data", "header", "waits_for_one")

    def __init__(
        self,
        header: BatchHeader,
        data: bytes | bytearray | memoryview,
        coordinator_epoch: int | None,
        *,
        waits_for_one: bool,
    ) -> None:
        self.header = header
        self.data = data
        self.coordinator_epoch = coordinator_epoch
        self.waits_for_one = waits_for_one
        self.answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def fail(self, error: TopicError) -> None:
        """Refuse it."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # whoever waited may have given up


def follow(first: asyncio.Future[Appended], answer: asyncio.Future[Appended]) -> None:
    """Let an answer that is not given yet be what another one will be."""

    def finish(done: asyncio.Future[Appended]) -> None:
        if answer.done():
            return
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
        else:
            answer.set_exception(error)
            answer.exception()  # whoever waited may have given up

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
        """The batch that was admitted last, if it is not committed; state entries do not count."""
        for batch in reversed(self._pending):
            if batch.answer is not None:
                return batch
        return None

    def has_room(self, size: int) -> bool:
        """Tell whether so many bytes may be admitted; anything may when nothing is pending."""
        if not self._pending:
            return True
        return self._bytes + size <= self._bytes_max and len(self._pending) < self._count_max

    def add(self, batch: PendingBatch) -> None:
        """Add the newest."""
        self._pending.append(batch)
        self._bytes += batch.size

    def take_committed(self) -> list[PendingBatch]:
        """Return the oldest, once, that count as committed by now."""
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
        """Return the first entry of a ledger that has a batch and is not confirmed."""
        for batch in self._pending:
            is_here = batch.ledger is ledger and batch.answer is not None
            if is_here and batch.entry_id > ledger.writer.last_confirmed:
                return batch.entry_id
        return None

    def find(self, base_offset: int) -> PendingBatch | None:
        """Return the pending batch that begins at an offset."""
        for batch in self._pending:
            if batch.base_offset == base_offset and batch.answer is not None:
                return batch
        return None

    def fail(self, error: TopicError) -> None:
        """Fail all."""
        while self._pending:
            answer = self._pending.popleft().answer
            if answer is not None and not answer.done():
                answer.set_exception(error)
                answer.exception()  # whoever waited may have given up
        self._bytes = 0


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

    def forget_oldest(self) -> None:
        """Drop the oldest one kept."""
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
        """Return whole batches from the one that holds `offset`, or the next behind it, to below
        `end_offset`: at least one if there is one, more up to `bytes_max`. None if older batches
        would have to be read for it.
        """
        index = bisect_right(self._bases, offset, self._first) - 1
        if index < self._first:
            return None
        if self._ends[index] <= offset:
            index += 1  # a gap: nothing was written there
        found: list[bytes] = []
        size = 0
        while index < len(self._bases) and self._ends[index] <= end_offset:
            batch = self._batches[index]
            if found and size + len(batch) > bytes_max:
                break
            found.append(batch)
            size += len(batch)
            index += 1
        return found
