"""Readable ranges of partitions: read once, or updated in the background.

Leaves the ranges of a query to `ranges`, and reading entries to the ledger client.

Closed ledgers may be read completely, the open one up to its LAC. A read of only committed records
ends at the first record of an open transaction. It needs the open transactions: so it reads all
entries after the newest state entry once, and later appends after them. Other reads need only the
last entry, which has its offset.

Invariants: no ledger is ever fenced or recovered; the end never goes back, unless an unclean
recovery lost records. The present end is a lower bound: only `find_end` decides whether there is
more. A topic that was deleted, or deleted and created again, is never treated as the requested one.

Source: topics design, "The mapping" (high watermark, log start offset) and "State entries"; Spark
design, "Reading"; KIP-98, "Last stable offset".
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_layer.kafka.record_batch import (
    HEADER_BYTES,
    ControlKind,
    RecordBatchError,
    read_control,
    read_header,
)
from broker_layer.log.state.state_entry import (
    OlderAborted,
    StateEntry,
    StateEntryError,
    is_state_entry,
)
from broker_layer.log.state.transaction_index import AbortedTransaction, TransactionIndex
from ledger_client.errors import (
    EntryLostError,
    EntryNotFoundError,
    LedgerError,
    LedgerNotFoundError,
)
from ledger_client.metadata_failures import translate
from ledger_client.reading.reader import LedgerReader
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, NodeNotFoundError, TopicNotFoundError
from metadata.ids import NO_ENTRY, LedgerId
from metadata.paths import partition_path
from metadata.topics.partition import PartitionRecord, PartitionSegment
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicId, TopicRecord
from spark_io.errors import RecreatedError, UnknownTopicError
from spark_io.offsets import Identities
from spark_io.topics.access import TopicServices
from spark_io.topics.offsets import Bounds, TopicPartition

if TYPE_CHECKING:
    from metadata.store.interface import Cancel


STARTS_AT_ONCE: Final = 16
TOPICS_WAIT_S: Final = 5.0
RETRY_S: Final = 0.5
UNSEEN_MAX_S: Final = 60.0
"""Time for which a stream continues from the last known state while the cluster does not respond,
in seconds."""
READS_MAX: Final = 10
"""Maximum number of attempts to read a list of ledgers while retention deletes some of them."""
SETTLE_S: Final = 1.5
"""Time to wait for the LAC of an acknowledged record, in seconds: a broker without appends sends it
to bookies after one second."""
PROGRESS_WAIT_S: Final = 2.0
FOLLOW_PAUSE_S: Final = 0.02
"""Appends within this time are read together, in seconds."""
WINDOW_ENTRIES: Final = 64
"""Number of entries of the first read backwards from the end; it doubles each time."""
WINDOW_ENTRIES_MAX: Final = 8_192
NOTHING: Final = Bounds(0, 0)
LookedAt = tuple[int, bytes, int]
"""An entry's id, its relevant bytes (only the header of a batch that is not a marker), and its
size."""


_log = logging.getLogger(__name__)


class TailState:
    """State after the entries up to one of them."""

    def __init__(self) -> None:
        self.next_offset = 0
        """Offset after the last record."""
        self.aborted: tuple[AbortedTransaction, ...] = ()
        """Aborted transactions within the log, from their markers."""
        self.older: OlderAborted | None = None
        """Where older ones are."""
        self._transactions = TransactionIndex()
        self._entry_count = 0
        self._entry_bytes = 0

    @property
    def stable_offset(self) -> int:
        """Offset before which the outcome of every transaction is known."""
        return self._transactions.last_stable_offset(self.next_offset)

    @property
    def entry_bytes(self) -> float:
        """Mean size of the entries that were read, in bytes."""
        return self._entry_bytes / max(1, self._entry_count)

    def take(self, data: bytes, size_bytes: int) -> None:
        """Apply the next entry's relevant bytes. Raises BatchError, StateEntryError if they are not
        valid.
        """
        self._entry_count += 1
        self._entry_bytes += size_bytes
        if is_state_entry(data):
            entry = StateEntry.decode(data)
            self.next_offset = entry.next_offset
            self._transactions.load(entry.open_transactions, entry.aborted)
            self.aborted, self.older = entry.aborted, entry.older
            return
        header = read_header(data)
        self.next_offset = header.next_offset
        if header.is_control:
            is_aborted = read_control(data)[0] is ControlKind.ABORT
            self._transactions.end(header.producer_id, header.base_offset, is_aborted=is_aborted)
            if len(self.aborted) != self._transactions.aborted_count:
                self.aborted = self._transactions.aborted_snapshot()
        elif header.is_transactional:
            self._transactions.begin(header.producer_id, header.base_offset)


class LogTail:
    """Newest entries of one ledger of a partition."""

    def __init__(self, reader: LedgerReader, *, is_committed: bool) -> None:
        self.reader = reader
        self.state = TailState()
        self.last_entry_id = -1
        """Last entry that was applied."""
        self._is_committed = is_committed

    async def advance(self, last: int) -> None:
        """Apply needed entries up to `last`. Raises LedgerError, BatchError, StateEntryError."""
        if last <= self.last_entry_id:
            return
        if not self._is_committed:
            await self._take(last, last)
        elif self.last_entry_id < 0:
            for _, data, size_bytes in await self._later_state_entry(last):
                self.state.take(data, size_bytes)
        else:
            await self._take(self.last_entry_id + 1, last)
        self.last_entry_id = last

    async def _take(self, first: int, last: int) -> None:
        async with aclosing(look_at(self.reader, first, last)) as entries:
            async for _, data, size_bytes in entries:
                self.state.take(data, size_bytes)

    async def _later_state_entry(self, last: int) -> list[LookedAt]:
        """Return the newest state entry and the entries after it."""
        later: list[LookedAt] = []
        end, window = last, WINDOW_ENTRIES
        while end >= 0:
            start = max(0, end - window + 1)
            parts: list[LookedAt] = []
            async with aclosing(look_at(self.reader, start, end)) as entries:
                async for entry in entries:
                    if is_state_entry(entry[1]):
                        parts.clear()
                    parts.append(entry)
            later = parts + later
            if is_state_entry(later[0][1]):
                break
            end, window = start - 1, min(2 * window, WINDOW_ENTRIES_MAX)
        return later


async def look_at(reader: LedgerReader, first: int, last: int) -> AsyncGenerator[LookedAt, None]:
    """Yield the relevant bytes of the entries `first` to `last`. Raises LedgerError, BatchError."""
    async with aclosing(reader.read_unconfirmed(first, last)) as batches:
        async for batch in batches:
            payload, offsets = batch.buffers()
            for index in range(len(batch)):
                data = payload[offsets[index] : offsets[index + 1]]
                is_whole = is_state_entry(data) or read_header(data).is_control
                counts = bytes(data if is_whole else data[:HEADER_BYTES])
                yield batch.first_entry_id + index, counts, len(data)


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
        for ledger_id in [reader for reader in self._readers if reader not in used]:
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


class TopicsView:
    """Partitions of some topics, in the order of topics and numbers."""

    def __init__(
        self, services: TopicServices, topics: Sequence[str], *, is_committed: bool
    ) -> None:
        self.partitions: dict[TopicPartition, PartitionView] = {}
        self._services = services
        self._topics = topics
        self._is_committed = is_committed
        self._ids: dict[str, TopicId] = {}
        self._starting = asyncio.Semaphore(STARTS_AT_ONCE)
        self._changed = asyncio.Event()
        self._cancels: list[Cancel] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: Exception | None = None

    @property
    def bounds(self) -> Mapping[TopicPartition, Bounds]:
        """Readable offsets of each partition. Raises the error that ended the updates."""
        if self._failure is not None:
            raise self._failure
        return {partition: view.now.bounds for partition, view in self.partitions.items()}

    @property
    def identities(self) -> Identities:
        """Ids of the topics by their names."""
        return {name: topic_id.hex() for name, topic_id in self._ids.items()}

    async def load(self) -> None:
        """Find the topics and read the state of all partitions. Raises UnknownTopicError,
        LedgerError, MetadataError, RecordBatchError, StateEntryError.
        """
        for name in self._topics:
            await self._add(name)
        await asyncio.gather(*[view.settle() for view in self.partitions.values()])

    async def follow(self) -> None:
        """Load, and update the state in the background from then on. Raises as `load`."""
        for name in self._topics:
            self._cancels.append(self._services.topics.watch(name, self._changed.set))
        await self.load()
        for view in self.partitions.values():
            self._begin(self._keep(view))
        self._begin(self._keep_topics())

    async def aclose(self) -> None:
        """Stop the updates, and close all partitions."""
        for cancel in self._cancels:
            cancel()
        await cancel_and_wait(*self._tasks)
        for view in self.partitions.values():
            await view.aclose()

    async def _add(self, name: str) -> list[PartitionView]:
        """Add the partitions of a topic that are not known yet; return them."""
        record = await self._record_of(name)
        new: list[PartitionView] = []
        for number in range(len(record.partitions)):
            partition = TopicPartition(name, number)
            if partition not in self.partitions:
                key = PartitionKey(record.topic_id, number)
                committed = self._is_committed
                new.append(PartitionView(self._services, partition, key, is_committed=committed))
        ends = await asyncio.gather(*[self._start(view) for view in new], return_exceptions=True)
        failure = next((end for end in ends if end is not None), None)
        if failure is not None:
            for view in new:
                await view.aclose()
            raise failure
        self.partitions |= {view.partition: view for view in new}
        return new

    async def _start(self, view: PartitionView) -> None:
        async with self._starting:
            await view.start()

    async def _record_of(self, name: str) -> TopicRecord:
        try:
            record, _ = await self._services.topics.get(name, fresh=True)
        except TopicNotFoundError:
            raise UnknownTopicError(name, "does not exist") from None
        if record.is_deleted:
            raise UnknownTopicError(name, "was deleted")
        if self._ids.setdefault(name, record.topic_id) != record.topic_id:
            raise RecreatedError("topic", name, "the query began")
        return record

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._note_end)
        self._tasks.append(task)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and self._failure is None:
            self._failure = error

    async def _keep_topics(self) -> None:
        seen = _now_s()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), TOPICS_WAIT_S)
            self._changed.clear()
            try:
                for name in self._topics:
                    for view in await self._add(name):
                        self._begin(self._keep(view))
                seen = _now_s()
            except (LedgerError, MetadataError, RecordBatchError, StateEntryError) as error:
                await self._pause_after(error, seen)

    async def _keep(self, view: PartitionView) -> None:
        seen = _now_s()
        while True:
            try:
                await view.follow()
                seen = _now_s()
            except (LedgerError, MetadataError, RecordBatchError, StateEntryError) as error:
                await self._pause_after(error, seen)

    async def _pause_after(self, error: Exception, seen: float) -> None:
        """Pause before a retry; after `UNSEEN_MAX_S` of errors the query fails."""
        if _now_s() - seen > UNSEEN_MAX_S and self._failure is None:
            self._failure = translate(error, None) if isinstance(error, MetadataError) else error
            _log.warning("topics cannot be followed: %s", error)
        await asyncio.sleep(RETRY_S)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
