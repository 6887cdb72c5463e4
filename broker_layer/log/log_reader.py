"""Reads of one partition's log, by offset and by time.

Leaves the newest batches to `pending_batches`, entries to `segment_reading`, and the limit of what
may be read to the caller.

A read that begins where an earlier one ended continues there. Any other read starts at an entry
from the ledger's index. The index of an older ledger is built from its state entries when it is
first needed.

Invariants: no record at or above the limit is returned, and the limit is at most the high
watermark; results are complete batches in the order of offsets, without state entries; they keep
little more in memory than their bytes.

Source: topics design, "The mapping"; Kafka's ListOffsets (KIP-79, KIP-734).
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    NO_TIMESTAMP,
    DecompressionTooLargeError,
    RecordBatchError,
    RecordBatchHeader,
    parse_records,
    read_header,
    read_last_offset,
)
from broker_layer.log.ledger_list import LedgerList
from broker_layer.log.ledger_roller import LedgerRoller
from broker_layer.log.log_services import BUFFERS_RATIO_MAX
from broker_layer.log.read_ahead import CURSORS_MAX, Batch, BatchSelection, ReadAhead, ReadBatch
from broker_layer.log.segment_reading import SegmentReaders
from broker_layer.log.state.offset_index import LedgerIndex
from broker_layer.log.state.partition_state import PartitionState
from broker_layer.log.state.state_entry import (
    AbortedPage,
    EntryPlace,
    OlderAborted,
    StateEntry,
    StateEntryError,
    is_state_entry,
    older_aborted,
)
from broker_layer.log.state.transaction_index import AbortedTransaction
from metadata.errors import MetadataError
from metadata.ids import EntryId, LedgerId
from metadata.topics.partition import PartitionSegment

POSITIONS_MAX: Final = 2 * CURSORS_MAX
"""Maximum number of known positions: where readers continue, and where batches read ahead end."""
INDICES_MAX: Final = 16
PAGES_MAX: Final = 2
"""Maximum number of entries whose aborted transactions are kept, each up to 100,000."""
KNOWN_PAGES_MAX: Final = 10_000
"""Maximum number of such entries that are passed over without being read again."""
SEARCH_BYTES: Final = 512 * 1024
OPENED_BYTES_MAX: Final = 32 * 1024 * 1024
OPENED_RECORDS_MAX: Final = 100_000
"""A batch is opened for the times of its records only if it has at most OPENED_RECORDS_MAX records
and OPENED_BYTES_MAX decompressed bytes."""
RECORDS_AT_ONCE: Final = 1_000
"""Number of records that are checked before other tasks of the event loop run."""


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """A record that was found by time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class _KnownPage:
    """What is kept of an entry with aborted transactions: enough to pass over it."""

    least_first_offset: int
    older: OlderAborted | None


class LogReader:
    """Reader of one log's ledgers."""

    def __init__(
        self, ledger_list: LedgerList, roller: LedgerRoller, state: PartitionState
    ) -> None:
        self._ledger_list = ledger_list
        self._roller = roller
        self._state = state
        self._readers = SegmentReaders(ledger_list.services.client)
        self._ahead = ReadAhead(self._read_piece, ledger_list.services.ahead)
        self._positions: OrderedDict[tuple[LedgerId, int], EntryId] = OrderedDict()
        self._indices: OrderedDict[LedgerId, LedgerIndex] = OrderedDict()
        self._pages: OrderedDict[OlderAborted, AbortedPage] = OrderedDict()
        self._known_pages: dict[OlderAborted, _KnownPage] = {}

    async def read(
        self, offset: int, limit: int, bytes_max: int, *, at_least_one: bool = True
    ) -> list[Batch]:
        """Return complete batches below `limit`, from the one that contains `offset` or follows it.

        They have at most `bytes_max` bytes, except that with `at_least_one` the first is returned
        whatever its size. The result may be short of `bytes_max` by less than one batch. Raises
        TopicError.
        """
        ahead = self._ahead
        cursor = ahead.take(offset)
        selection = BatchSelection(limit, bytes_max, at_least_one)
        try:
            cursor.kept.move_into(selection)
            while selection.has_room and cursor.kept.read_offset < limit:
                wanted = (
                    bytes_max - selection.size
                    if selection.batches
                    else max(bytes_max, SEARCH_BYTES)
                )
                if not await ahead.add_piece(cursor, wanted):
                    break
                cursor.kept.move_into(selection)
        except BaseException:
            ahead.drop(cursor)
            raise
        if selection.newest is not None:
            self._note(selection.newest)
        ahead.keep(cursor, limit, bytes_max)
        return _without_large_buffers(selection)

    async def offset_for_timestamp(
        self, timestamp_ms: int, start: int, limit: int
    ) -> RecordPosition | None:
        """Return the first record of offsets start..limit-1 with this time or a later one."""
        for segment in await self._segments():
            newest_ms = segment.max_timestamp_ms
            is_earlier = not segment.is_open and newest_ms is not None and newest_ms < timestamp_ms
            if is_earlier or segment.is_below(start):
                continue
            if segment.base_offset >= limit:
                return None
            record = await self._find_time(segment, timestamp_ms, start, limit)
            if record is not None:
                return record
        return None

    async def max_timestamp(self, start: int, limit: int) -> RecordPosition | None:
        """Return the first record with the greatest time in a range of offsets.

        The greatest time of the list and the index is tried first. It may be the time of a record
        that is not visible, or no longer; then the batches are read.
        """
        segments = [segment for segment in await self._segments() if not segment.is_below(start)]
        known = [part.max_timestamp_ms for part in segments if part.max_timestamp_ms is not None]
        index = self._state.index
        if index is not None and self._roller.ledger is not None:
            known.append(index.max_timestamp_ms)
        record = None
        if known:
            record = await self.offset_for_timestamp(max(known), start, limit)
        if record is not None or start >= limit:
            return record
        greatest_ms = max([await self._greatest_time(part, start, limit) for part in segments])
        return await self.offset_for_timestamp(greatest_ms, start, limit)

    async def older_aborted(
        self, older: OlderAborted | None, first_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        """Return aborted transactions that only state entries of the log name. Raises TopicError.

        The entries are read one after the other, and each is decoded once for many reads: of those
        that have nothing in the range only the place of the next one is needed.
        """
        return await older_aborted(older, first_offset, end_offset, self._page_of)

    async def _page_of(self, older: OlderAborted, end_offset: int) -> AbortedPage:
        newest = self._state.newest_page
        if newest is not None and older is self._state.older:
            return newest
        known = self._known_pages.get(older)
        if known is not None and known.least_first_offset >= end_offset:
            return AbortedPage((), known.older)
        page = self._pages.get(older)
        if page is None:
            page = AbortedPage.of(await self._state_entry(older.place), older.end_offset)
            least = min((abort.first_offset for abort in page.aborted), default=older.end_offset)
            if len(self._known_pages) < KNOWN_PAGES_MAX:
                self._known_pages[older] = _KnownPage(least, page.older)
            self._pages[older] = page
            while len(self._pages) > PAGES_MAX:
                self._pages.popitem(last=False)
        self._pages.move_to_end(older)
        return page

    async def aclose(self) -> None:
        """Close all readers."""
        await self._ahead.aclose()
        await self._readers.aclose()

    # -- one segment -----------------------------------------------------------------------------

    async def _segments(self) -> list[PartitionSegment]:
        """Return the ledgers that are listed and not empty, in order."""
        return [part for part in await self._listed() if part.end_offset != part.base_offset]

    async def _listed(self) -> list[PartitionSegment]:
        try:
            return await self._ledger_list.segments()
        except MetadataError as error:
            text = f"the list of older ledgers cannot be read now, retry: {error}"
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error

    async def _read_piece(self, offset: int, bytes_max: int) -> list[ReadBatch]:
        """Return about `bytes_max` bytes of confirmed batches of one ledger.

        The first batch contains `offset` or follows it. The list is empty at the end of the log.
        """
        segments = await self._segments()
        at = max(0, bisect_right([part.base_offset for part in segments], offset) - 1)
        for segment in segments[at:]:
            if segment.is_below(offset):
                continue
            batches = await self._read_segment(segment, offset, bytes_max)
            if batches:
                self._note(batches[-1])
                return batches
        return []

    async def _read_segment(
        self, segment: PartitionSegment, offset: int, bytes_max: int
    ) -> list[ReadBatch]:
        last_id = await self._last_entry_of(segment)
        position = await self._position_of(segment, offset)
        batches: list[ReadBatch] = []
        while position <= last_id and not batches:
            for entry_id, data in await self._read(segment, position, last_id, bytes_max):
                position = EntryId(entry_id + 1)
                if is_state_entry(data):
                    continue
                try:
                    last_offset = read_last_offset(data)
                except RecordBatchError as error:
                    raise _no_batch(segment, entry_id, error) from error
                if last_offset >= offset:
                    batches.append(ReadBatch(last_offset, segment.ledger_id, entry_id, data))
        return batches

    async def _find_time(
        self, segment: PartitionSegment, timestamp_ms: int, start: int, limit: int
    ) -> RecordPosition | None:
        position = (await self._index_of(segment)).find_timestamp(timestamp_ms)
        async with aclosing(self._visible(segment, position, start, limit)) as batches:
            async for header, data in batches:
                if header.max_timestamp_ms >= timestamp_ms:
                    record = await _record_at(header, data, timestamp_ms, start)
                    if record is not None:
                        return record
        return None

    async def _greatest_time(self, segment: PartitionSegment, start: int, limit: int) -> int:
        position = await self._position_of(segment, start)
        greatest_ms = NO_TIMESTAMP
        async with aclosing(self._visible(segment, position, start, limit)) as batches:
            async for header, _ in batches:
                greatest_ms = max(greatest_ms, header.max_timestamp_ms)
        return greatest_ms

    async def _visible(
        self, segment: PartitionSegment, position: EntryId, start: int, limit: int
    ) -> AsyncGenerator[tuple[RecordBatchHeader, Batch], None]:
        """Yield the batches from entry `position` on that have records in start..limit-1."""
        last_id = await self._last_entry_of(segment)
        while position <= last_id:
            for entry_id, data in await self._read(segment, position, last_id, SEARCH_BYTES):
                position = EntryId(entry_id + 1)
                if is_state_entry(data):
                    continue
                try:
                    header = read_header(data)
                except RecordBatchError as error:
                    raise _no_batch(segment, entry_id, error) from error
                if header.last_offset >= limit:
                    return
                if header.last_offset >= start:
                    yield header, data

    async def _read(
        self, segment: PartitionSegment, first: int, last: int, bytes_max: int
    ) -> list[tuple[EntryId, memoryview]]:
        return await self._readers.read(segment.ledger_id, first, last, bytes_max)

    async def _last_entry_of(self, segment: PartitionSegment) -> EntryId:
        """Return the last entry of a ledger that may be read."""
        confirmed = self._roller.confirmed_of(segment.ledger_id)
        if confirmed is not None:
            return confirmed
        return await self._readers.last_entry_of(segment.ledger_id)

    # -- where to start --------------------------------------------------------------------------

    def _note(self, batch: ReadBatch) -> None:
        """Record the end of a batch, for a read that continues there."""
        place = (batch.ledger_id, batch.last_offset + 1)
        self._positions[place] = EntryId(batch.entry_id + 1)
        self._positions.move_to_end(place)
        while len(self._positions) > POSITIONS_MAX:
            self._positions.popitem(last=False)

    async def _position_of(self, segment: PartitionSegment, offset: int) -> EntryId:
        """Return an entry at or before the batch that contains `offset`."""
        if offset <= segment.base_offset:
            return EntryId(0)
        known = self._positions.get((segment.ledger_id, offset))
        return known if known is not None else (await self._index_of(segment)).find(offset)

    async def _index_of(self, segment: PartitionSegment) -> LedgerIndex:
        index = self._indices.get(segment.ledger_id)
        if index is None:
            index = await self._build_index(segment.ledger_id)
            self._indices[segment.ledger_id] = index
            while len(self._indices) > INDICES_MAX:
                self._indices.popitem(last=False)
        self._indices.move_to_end(segment.ledger_id)
        return index

    async def _build_index(self, ledger_id: LedgerId) -> LedgerIndex:
        """Collect the points of a ledger from its state entries, from the last one backwards.

        The points after its last state entry are in the first entry of the next ledger, or were
        replayed.
        """
        known = self._state.known_index(ledger_id)
        if known is not None:
            index, place = known
        else:
            index, place = LedgerIndex(ledger_id), None
            following = await self._following(ledger_id)
            if following is not None:
                entry = await self._state_entry(EntryPlace(following, EntryId(0)))
                if entry.previous is not None and entry.previous.ledger_id == ledger_id:
                    index.add_later(entry.points, entry.max_timestamp_ms)
                    place = entry.previous
        while place is not None and place.ledger_id == ledger_id and place.entry_id > 0:
            entry = await self._state_entry(place)
            if entry.previous is not None and entry.previous.ledger_id == ledger_id:
                index.add_earlier(entry.points)
            place = entry.previous
        return index

    async def _following(self, ledger_id: LedgerId) -> LedgerId | None:
        """Return the next ledger that has entries."""
        is_behind = False
        for segment in await self._listed():
            if is_behind and await self._last_entry_of(segment) >= 0:
                return segment.ledger_id
            is_behind = is_behind or segment.ledger_id == ledger_id
        return None

    async def _state_entry(self, place: EntryPlace) -> StateEntry:
        [(_, data)] = await self._readers.read(place.ledger_id, place.entry_id, place.entry_id, 1)
        entry = StateEntry.decode(data)
        before = entry.previous
        if before is None or before.ledger_id != place.ledger_id:
            return entry
        if before.entry_id >= place.entry_id:
            raise StateEntryError("a state entry names itself, or a later one, as the earlier one")
        return entry


def _without_large_buffers(selection: BatchSelection) -> list[Batch]:
    """Return the batches, or copies if they are a small part of the buffers that they keep."""
    batches = selection.batches
    if not batches:
        return batches
    buffers = [memoryview(batch).obj for batch in (batches[0], batches[-1])]
    # Only the first and the last one can have bytes of other batches.
    kept = {id(buffer): memoryview(buffer).nbytes for buffer in buffers}
    if sum(kept.values()) <= BUFFERS_RATIO_MAX * selection.size:
        return batches
    return [bytes(batch) for batch in batches]


def _no_batch(segment: PartitionSegment, entry_id: EntryId, error: RecordBatchError) -> TopicError:
    text = (
        f"entry {entry_id} of ledger {segment.ledger_id} is neither a batch nor a state entry: "
        f"{error}. If all brokers have this release, keep the ledger and report this"
    )
    return TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text)


async def _record_at(
    header: RecordBatchHeader, data: Batch, timestamp_ms: int, start: int
) -> RecordPosition | None:
    """Return the first record of a batch at or above `start` with this time or a later one.

    If the batch is too large to open, its first record is returned, so that no record is skipped.
    """
    first = RecordPosition(
        max(start, header.base_offset), header.max_timestamp_ms, header.leader_epoch
    )
    if header.uses_append_time or header.record_count > OPENED_RECORDS_MAX:
        return first
    try:
        records = parse_records(data, bytes_max=OPENED_BYTES_MAX, with_headers=False)
        for number, record in enumerate(records, 1):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                return RecordPosition(record.offset, record.timestamp_ms, header.leader_epoch)
            if number % RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)
    except DecompressionTooLargeError:
        return first
    except RecordBatchError as error:
        text = (
            f"the batch at offset {header.base_offset} cannot be decompressed: {error}. "
            "The producer wrote it like that: seek by offset instead of by time"
        )
        raise TopicError(ErrorCode.CORRUPT_MESSAGE, text) from error
    return None
