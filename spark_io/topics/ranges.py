"""Search for the entries that hold a query's offsets.

Leaves the ends of partitions to `partitions`, and splitting them into parts to `spark_io.ranges`.

A ledger that is read completely needs no search. Within a ledger, the search alternates between
interpolation and bisection, until few entries are left: reading these costs less than a further
search.

Invariants: every record of the covered offsets is in the returned entries; lost records are an
error that names the topic, the partition and the offsets, or, with failOnDataLoss=false, a line in
the driver's log. Records are lost only if the log certainly ends before them.

Source: Spark design, "Reading"; topics design, "The mapping" (offset).
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from broker_layer.kafka.record_batch import read_header
from broker_layer.log.state.state_entry import (
    AbortedPage,
    OlderAborted,
    StateEntry,
    is_state_entry,
    older_aborted,
)
from broker_layer.log.state.transaction_index import AbortedTransaction
from ledger_client.errors import LedgerNotFoundError
from ledger_client.info import LedgerInfo
from ledger_client.reading.reader import LedgerReader
from metadata.ids import EntryId, LedgerId
from metadata.topics.partition import PartitionSegment
from spark_io.errors import RecordsLostError, RecordsUnreadableError
from spark_io.ranges import ENTRY_BYTES_ASSUMED
from spark_io.topics.access import TopicServices
from spark_io.topics.offsets import TopicRange
from spark_io.topics.partitions import PartitionNow, PartitionView, look_at

SLACK_ENTRIES: Final = 4
FINDS_AT_ONCE: Final = 32
POINTS_MAX: Final = 10_000
"""Maximum number of places of offsets that are kept for later micro-batches."""

NOT_VISIBLE: Final = (
    "they are not visible yet: a transaction is open, or the bookies that answer do not know that "
    "the records are confirmed. Nothing is left out: start the query again later. If no broker "
    "leads the partition, start one"
)

_log = logging.getLogger(__name__)


class RangeFinder:
    """Search for the entries of offsets, with a cache of places where batches began and ended."""

    def __init__(self, services: TopicServices, *, fail_on_data_loss: bool) -> None:
        self._services = services
        self._fail_on_data_loss = fail_on_data_loss
        self._finding = asyncio.Semaphore(FINDS_AT_ONCE)
        self._points: OrderedDict[tuple[LedgerId, int], int] = OrderedDict()

    async def find(
        self, view: PartitionView, first_offset: int, end_offset: int
    ) -> list[TopicRange]:
        """Return the ranges that hold the offsets `first_offset` to `end_offset` - 1 of a
        partition.

        Raises RecordsLostError, RecordsUnreadableError, LedgerError.
        """
        is_seen = first_offset >= end_offset or end_offset <= view.now.bounds.end
        is_end_certain = not is_seen and await view.find_end()
        now = view.now  # a snapshot: the bounds and the ledgers may change during waits
        first, end = self._within(
            view, now, (first_offset, end_offset), is_end_certain=is_end_certain
        )
        wanted = [
            (segment, max(first, segment.base_offset), min(end, now.end_of(segment)))
            for segment in now.segments
        ]
        wanted = [part for part in wanted if part[1] < part[2]]
        before = await older_aborted(now.older, first, end, self._page_of)
        infos = await self._infos([segment.ledger_id for segment, _, _ in wanted])
        ranges: list[TopicRange] = []
        for (segment, first, end), info in zip(wanted, infos, strict=True):
            if info is None:
                self._lose(view, first, end, f"ledger {segment.ledger_id} was deleted")
                continue
            ranges.append(await self._range_of(view, now, segment, (first, end), info, before))
        return ranges

    async def _range_of(
        self,
        view: PartitionView,
        now: PartitionNow,
        segment: PartitionSegment,
        offsets: tuple[int, int],
        info: LedgerInfo,
        before: list[AbortedTransaction],
    ) -> TopicRange:
        """Return the range of some offsets of one ledger."""
        first, end = offsets
        last = info.last_entry_id
        if last is None and now.tail_ledger_id == segment.ledger_id:
            last = EntryId(now.tail_entry_id)
        if last is None:
            why = f"ledger {segment.ledger_id} is open, but should be closed"
            raise RecordsUnreadableError(*view.partition, first, end, why)
        async with self._finding:
            low, high = await self._entries(now, segment, offsets, last)
        entry_bytes = now.entry_bytes or ENTRY_BYTES_ASSUMED
        if info.last_entry_id is not None and info.length is not None:
            entry_bytes = info.length / (last + 1)
        return TopicRange(
            segment.ledger_id,
            low,
            high,
            entry_bytes,
            info.creation_token,
            partition=view.partition,
            first_offset=first,
            end_offset=end,
            aborted=tuple(
                transaction
                for transaction in (*before, *now.aborted)
                if transaction.first_offset < end and transaction.last_offset >= first
            ),
        )

    async def _page_of(self, older: OlderAborted, _: int) -> AbortedPage:
        """Return the aborted transactions that a state entry names. If its ledger was deleted, all
        of them were in it, or before it, and are deleted too.
        """
        services, place = self._services, older.place
        ledger_id, entry_id = place.ledger_id, place.entry_id
        try:
            async with (
                services.client.open_ledger(ledger_id, password=services.password) as reader,
                aclosing(look_at(reader, entry_id, entry_id)) as entries,
            ):
                async for _, data, _ in entries:
                    return AbortedPage.of(StateEntry.decode(data), older.end_offset)
        except LedgerNotFoundError:
            if await self._infos([ledger_id]) != [None]:
                raise
            return AbortedPage((), None)
        raise AssertionError("a read yields the requested entries, or raises")

    def _within(
        self,
        view: PartitionView,
        now: PartitionNow,
        offsets: tuple[int, int],
        *,
        is_end_certain: bool,
    ) -> tuple[int, int]:
        """Return the existing part of a range of offsets. What is not visible yet is not lost."""
        first, end = offsets
        if first < end and first < (start := now.bounds.start):
            gone = min(end, start)
            self._lose(view, first, gone, f"they are deleted: the log begins at {start} now")
            first = gone
        if first < end and is_end_certain and now.known_end < end:
            gone = max(first, now.known_end)
            self._lose(view, gone, end, f"they do not exist: the log ends at {gone} now")
            end = gone
        if first < end and now.bounds.end < end:
            unseen = max(first, now.bounds.end)
            raise RecordsUnreadableError(*view.partition, unseen, end, NOT_VISIBLE)
        return first, end

    async def _infos(self, ledger_ids: Sequence[LedgerId]) -> list[LedgerInfo | None]:
        infos = self._services.client.ledger_infos(ledger_ids)
        return [info async for info in infos] if ledger_ids else []

    async def _entries(
        self, now: PartitionNow, segment: PartitionSegment, offsets: tuple[int, int], last: EntryId
    ) -> tuple[int, int]:
        """Return the first and the last entry, among 0 to `last` of one ledger, that hold some of
        its offsets.
        """
        first, end = offsets
        ledger_id, known_end = segment.ledger_id, now.end_of(segment)
        low, high = 0, int(last)
        if ledger_id == now.tail_ledger_id:
            self._note(ledger_id, now.next_offset, now.tail_entry_id)
        if first > segment.base_offset or end < known_end:
            services = self._services
            async with services.client.open_ledger(ledger_id, password=services.password) as reader:
                if first > segment.base_offset:
                    low, _ = await self._around(reader, segment, known_end, last, first)
                if end < known_end:
                    _, high = await self._around(reader, segment, known_end, last, end)
        return low, high

    def _lose(self, view: PartitionView, first_offset: int, end_offset: int, why: str) -> None:
        if self._fail_on_data_loss:
            raise RecordsLostError(*view.partition, first_offset, end_offset, why)
        _log.warning(
            "topic %r, partition %d: left out offsets %d to %d, %d in all: %s",
            *view.partition,
            first_offset,
            end_offset - 1,
            end_offset - first_offset,
            why,
        )

    async def _around(
        self,
        reader: LedgerReader,
        segment: PartitionSegment,
        known_end: int,
        last: int,
        offset: int,
    ) -> tuple[int, int]:
        """Return a lower and an upper bound of the entry that has the offset. If no entry has it,
        they are bounds of the first entry after it. The bounds are close to each other.
        """
        low, low_offset = self._points.get((reader.id, offset), 0), segment.base_offset
        high, high_offset = last + 1, known_end  # from `high` on, everything is after the offset
        by_halves = low > 0
        while high - low > SLACK_ENTRIES:
            middle = (low + high) // 2
            if not by_halves:
                share = (offset - low_offset) / max(1, high_offset - low_offset)
                middle = low + int((high - low) * min(1.0, share))
            middle = min(max(middle, low + 1), high - 1)
            by_halves = not by_halves
            reached = await _offset_at(reader, middle)
            if reached <= offset:
                low, low_offset = middle, reached
            else:
                high, high_offset = middle, reached
        self._note(reader.id, offset, low)
        return low, min(last, high)

    def _note(self, ledger_id: LedgerId, offset: int, entry_id: int) -> None:
        """Cache an entry at or after which an offset is found."""
        self._points[ledger_id, offset] = entry_id
        self._points.move_to_end((ledger_id, offset))
        while len(self._points) > POINTS_MAX:
            self._points.popitem(last=False)


async def _offset_at(reader: LedgerReader, entry_id: int) -> int:
    """Return the first offset of an entry."""
    async with aclosing(look_at(reader, entry_id, entry_id)) as entries:
        async for _, data, _ in entries:
            if is_state_entry(data):
                return StateEntry.decode(data).next_offset
            return read_header(data).base_offset
    raise AssertionError("a read yields the requested entries, or raises")
