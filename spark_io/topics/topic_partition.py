"""Readable range of one partition: its ledgers, its log's start, and its end.

Leaves parsing the newest entries to `topic_tail`, and complete topics to `topic_view`.

Closed ledgers may be read completely, the open one up to its LAC. A read of only committed records
ends at the first record of an open transaction.

Invariants: no ledger is ever fenced or recovered; the end never goes back, unless an unclean
recovery lost records. The present end is a lower bound: only `find_end` decides whether there is
more.

Source: topics design, "The mapping" (high watermark, log start offset); Spark design, "Reading".
"""

import asyncio
import contextlib
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_layer.log.state.state_entry import OlderAborted
from broker_layer.log.state.transaction_index import AbortedTransaction
from ledger_client.errors import (
    EntryLostError,
    EntryNotFoundError,
    LedgerError,
    LedgerNotFoundError,
)
from ledger_client.reading.reader import LedgerReader
from metadata.errors import NodeNotFoundError
from metadata.ids import NO_ENTRY, LedgerId
from metadata.paths import partition_path
from metadata.topics.partition import PartitionRecord, PartitionSegment
from metadata.topics.partition_store import PartitionKey
from spark_io.topics.topic_access import TopicServices
from spark_io.topics.topic_offsets import Bounds, TopicPartition
from spark_io.topics.topic_tail import LogTail, TailState

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

NOTHING: Final = Bounds(0, 0)
READS_MAX: Final = 10
"""Maximum number of attempts to read a list of ledgers while retention deletes some of them."""
SETTLE_S: Final = 1.5
"""Time to wait for the LAC of an acknowledged record, in seconds: a broker without appends sends it
to bookies after one second."""
PROGRESS_WAIT_S: Final = 2.0
FOLLOW_PAUSE_S: Final = 0.02
"""Appends within this time are read together, in seconds."""


@dataclass(frozen=True, slots=True)
class PartitionNow:
    """Readable range of a partition at one moment, and the facts that determine it."""

    bounds: Bounds = NOTHING
    segments: tuple[PartitionSegment, ...] = ()
    """All ledgers, oldest first; the readable end is within them."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """The newer aborted transactions of the log, if only committed records are read."""
    older: OlderAborted | None = None
    """Where older ones are."""
    tail_ledger_id: LedgerId | None = None
    """Ledger of the newest entry that was read."""
    tail_entry_id: int = NO_ENTRY
    next_offset: int = 0
    """Offset after that entry."""
    entry_bytes: float = 0.0
    """Approximate size of that ledger's entries, in bytes."""

    @property
    def known_end(self) -> int:
        """Offset after the last confirmed record, also of an open transaction."""
        return max(self.bounds.end, self.next_offset)

    def end_of(self, segment: PartitionSegment) -> int:
        """Return the offset after the readable part of a segment."""
        end = self.bounds.end if segment.end_offset is None else segment.end_offset
        return max(segment.base_offset, min(end, self.bounds.end))


class PartitionView:
    """One partition, as of its last refresh."""

    def __init__(
        self,
        services: TopicServices,
        partition: TopicPartition,
        key: PartitionKey,
        *,
        is_committed: bool,
    ) -> None:
        self.partition = partition
        self.now = PartitionNow()
        self._services = services
        self._key = key
        self._is_committed = is_committed
        self._record = PartitionRecord()
        self._segments: tuple[PartitionSegment, ...] = ()
        self._tail: LogTail | None = None
        self._readers: dict[LedgerId, LedgerReader] = {}
        """Readers of the newest ledgers: those without entries, and one that has some."""
        self._changed = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._cancel_watch: Cancel | None = None

    async def start(self) -> None:
        """Refresh, and watch the list for changes from then on. Raises as `refresh`."""
        path = partition_path(self._key)
        self._cancel_watch = self._services.store.watch_value(path, self._changed.set)
        await self.refresh()

    async def refresh(self, *, relist: bool = True) -> None:
        """Update the partition's end; with `relist`, also its list of ledgers.

        Raises LedgerError, MetadataError, BatchError, StateEntryError.
        """
        async with self._refreshing:
            for _ in range(READS_MAX - 1):
                if relist:
                    await self._list()
                try:
                    await self._read_end()
                except LedgerNotFoundError:
                    relist = True  # retention has just deleted it
                    continue
                return
            await self._read_end()

    async def find_end(self) -> bool:
        """Refresh; return whether the log certainly ends at `now.known_end`. It is not certain
        while bookies may hold entries that are not known to be confirmed. Raises as `refresh`.
        """
        await self.refresh()
        reader = self._newest
        is_certain = reader is None or reader.is_closed
        if reader is not None and not is_certain:
            is_certain = not await _has_entry(reader, reader.last_confirmed + 1)
        await self.refresh(relist=False)  # the answers may have had a newer LAC
        return is_certain

    async def settle(self) -> None:
        """Wait until records acknowledged just before the call are visible: an idle leader sends
        its ledger's LAC to bookies with a delay. Raises as `refresh`.
        """
        reader = self._newest
        if reader is None or reader.is_closed:
            return
        last = reader.last_confirmed
        if await _has_entry(reader, last + 1):
            await reader.wait_confirmed(last, timeout=SETTLE_S)
            await self.refresh(relist=reader.is_closed)

    async def follow(self) -> None:
        """Wait until there may be new records, and refresh; call this in a loop."""
        reader = self._newest
        if reader is None or reader.is_closed:
            with contextlib.suppress(TimeoutError):  # a watch may be lost with its session
                await asyncio.wait_for(self._changed.wait(), PROGRESS_WAIT_S)
            await self.refresh()
            return
        await reader.wait_confirmed(reader.last_confirmed, timeout=PROGRESS_WAIT_S)
        await asyncio.sleep(FOLLOW_PAUSE_S)
        await self.refresh(relist=self._changed.is_set() or reader.is_closed)

    async def aclose(self) -> None:
        """Close all readers and watches."""
        if self._cancel_watch is not None:
            self._cancel_watch()
        for ledger_id in list(self._readers):
            await self._readers.pop(ledger_id).aclose()

    @property
    def _newest(self) -> LedgerReader | None:
        """Reader of the newest ledger; None if the list has its end."""
        last = self._segments[-1] if self._segments else None
        return None if last is None else self._readers.get(last.ledger_id)

    async def _list(self) -> None:
        self._changed.clear()
        partitions = self._services.partitions
        for _ in range(READS_MAX):
            try:
                record, _ = await partitions.get(self._key)
            except NodeNotFoundError:
                return  # it never had a leader
            if record.token == self._record.token:
                return
            try:
                segments = await partitions.segments(self._key, record)
            except NodeNotFoundError:
                continue  # a chunk of the list has just been dropped
            self._record, self._segments = record, segments
            return

    async def _read_end(self) -> None:
        start = end = self._record.log_start_offset
        used: list[LedgerId] = []
        for segment in reversed(self._segments):
            end = max(end, segment.base_offset)
            if segment.end_offset is not None and not self._is_committed:
                end = max(end, segment.end_offset)
                break
            used.append(segment.ledger_id)
            state = await self._state_of(segment.ledger_id)
            if state is not None:
                end = state.stable_offset if self._is_committed else state.next_offset
                break
        self.now = self._as_of_now(Bounds(start, max(start, end)))
        for ledger_id in [each for each in self._readers if each not in used]:
            await self._readers.pop(ledger_id).aclose()

    def _as_of_now(self, bounds: Bounds) -> PartitionNow:
        if self._tail is None:
            return PartitionNow(bounds, self._segments)
        state = self._tail.state
        return PartitionNow(
            bounds,
            self._segments,
            state.aborted if self._is_committed else (),
            state.older if self._is_committed else None,
            self._tail.reader.id,
            self._tail.last_entry_id,
            state.next_offset,
            state.entry_bytes,
        )

    async def _state_of(self, ledger_id: LedgerId) -> TailState | None:
        """Return the state from the newest entries of a ledger; None if none is confirmed yet."""
        reader = self._readers.get(ledger_id)
        if reader is None:
            services = self._services
            reader = await services.client.open_ledger(ledger_id, password=services.password)
            self._readers[ledger_id] = reader
        last = await reader.learn_last_confirmed()
        if last < 0:
            return None
        if self._tail is None or self._tail.reader is not reader:
            self._tail = LogTail(reader, is_committed=self._is_committed)
        await self._tail.advance(last)
        return self._tail.state


async def _has_entry(reader: LedgerReader, entry_id: int) -> bool:
    """Return whether there may be an entry after the LAC."""
    try:
        async with aclosing(reader.read_unconfirmed(entry_id, entry_id)) as batches:
            async for _ in batches:
                return True
    except (EntryNotFoundError, EntryLostError):
        return False
    except LedgerError:
        return True  # the bookies that may hold it did not respond
    return False
