"""Effect and answers of durable groups of records.

Leaves the decision to accept a record to `bookie.storage.admission`, and its queue to
`bookie.log.log`.

Invariants: only durable records reach the index, in the order of the log; a group takes effect in
one iteration of the event loop and is answered after that; no request is answered OK unless its
group was synced.
Source: protocol rule 4.3; storage design, "One log".
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from bookie.errors import BookieError, DiskFullError, StorageClosedError
from bookie.index import replica_state
from bookie.index.index import Index
from bookie.index.replica_state import ReplicaState
from bookie.log import records
from bookie.log.log import GroupHandler, Log, LogItem
from bookie.log.records import ADDS, RECORD_HEADER_BYTES, RecordKind
from bookie.log.segments import Segments
from bookie.storage.ledgers import Ledgers
from bookie.storage.overlapping import Gaps, QueuedAdd
from bookie.storage.reading import BadRanges
from bookie.storage.recent import RecentEntries
from bookie.wire.batch import BatchView
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId

AnswerCallback = Callable[[Status], None]


@dataclass(slots=True)
class StoredCounts:
    """Counts of what was stored since the storage was opened."""

    entries: int = 0
    bytes: int = 0
    batches: int = 0


class Commits:
    """Records from acceptance to durability."""

    def __init__(
        self,
        ledgers: Ledgers,
        index: Index,
        segments: Segments,
        recent: RecentEntries,
        bad: BadRanges,
        make_log: Callable[[GroupHandler], Log],
        on_disk_full: Callable[[], None],
        on_answered: Callable[[], None],
    ) -> None:
        """`make_log` returns the log, which calls the given function for each group. `on_answered`
        is called after the answers of each group, in the same iteration of the event loop.
        """
        self.counts = StoredCounts()
        self.is_answering = False
        """True while a group is being answered."""
        self.log = make_log(self.on_group)
        self._on_disk_full = on_disk_full
        self._on_answered = on_answered
        self._ledgers = ledgers
        self._index = index
        self._segments = segments
        self._recent = recent
        self._bad = bad

    def accept(
        self,
        state: ReplicaState,
        batch: BatchView,
        gaps: Gaps | None,
        master_key: bytes | None,
        done: AnswerCallback,
    ) -> None:
        """Queue a checked batch. To be called in the iteration of the event loop that checked
        it.
        """
        if state.master_key is None:
            self.keep_key(state, master_key)
        try:
            self.log.append(ADDS, batch.data, QueuedAdd(state, batch, gaps, done))
        except BookieError as error:
            done(status_of(error))
            return
        if replica_state.note_accepted(state, batch.header):
            self._ledgers.notify(state.ledger_id)

    def keep_key(self, state: ReplicaState, master_key: bytes | None) -> None:
        """Store the first master key that a request presents, before the request's record."""
        if master_key is None or state.master_key is not None:
            return
        state.master_key = master_key
        state.touch()
        state.use_count += 1

        def drop_if_failed(status: Status) -> None:
            state.use_count -= 1
            if status is not Status.OK and state.master_key is master_key:
                state.master_key = None
                state.touch()  # a checkpoint may have stored it

        body = records.encode_master_key(state.ledger_id, master_key)
        try:
            self.log.append(RecordKind.MASTER_KEY, body, drop_if_failed)
        except BookieError as error:
            drop_if_failed(status_of(error))

    def advertise_lac(self, state: ReplicaState, lac: EntryId) -> None:
        """Report a LAC to readers from now on. It is true independent of where it is stored."""
        if replica_state.note_lac(state, lac):
            self._ledgers.notify(state.ledger_id)

    def store_lac(
        self, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None, done: AnswerCallback
    ) -> None:
        """Queue an explicit LAC (rule 8.4)."""
        self.keep_key(self._ledgers.get_or_make(ledger_id), master_key)
        self.queue(RecordKind.EXPLICIT_LAC, records.encode_lac(ledger_id, lac), done)

    async def append(self, kind: RecordKind, body: bytes) -> Status:
        """Append a control record; wait until it is durable or refused."""
        future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self.queue(kind, body, partial(resolve, future))
        return await future

    def queue(self, kind: RecordKind, body: bytes, done: AnswerCallback) -> None:
        """Queue a control record. `done` is called when it is durable, or at once if it is
        refused.
        """
        try:
            self.log.append(kind, body, done)
        except BookieError as error:
            done(status_of(error))

    def on_group(self, group: list[LogItem], error: BookieError | None) -> None:
        """Apply a group: index it if it is stored, then answer its requests."""
        answers: list[AnswerCallback] = []
        size = 0
        for item in group:
            context = item.context
            if isinstance(context, QueuedAdd):
                if error is None:
                    size += self._store_add(context, item.lsn)
                replica_state.note_unqueued(context.state)
                answers.append(context.done)
            else:
                if error is None and item.kind == RecordKind.TOMBSTONE:
                    self._store_tombstone(records.decode_ledger(item.body))
                if error is None and item.kind == RecordKind.RELEASED:
                    self._release(records.decode_ledger(item.body))
                answers.append(cast("AnswerCallback", context))
        if size:
            segment = records.segment_of(group[0].lsn)
            self._segments.by_number[segment].live_bytes += size
        if isinstance(error, DiskFullError):
            self._on_disk_full()
        status = Status.OK if error is None else status_of(error)
        self.is_answering = True
        try:
            for answer in answers:
                answer(status)
        finally:
            self.is_answering = False
        self._on_answered()

    def _store_add(self, add: QueuedAdd, lsn: int) -> int:
        batch, state = add.batch, add.state
        header, ledger_id = batch.header, state.ledger_id
        size = RECORD_HEADER_BYTES + len(batch.data)
        first = header.first_entry_id
        if add.gaps is None:
            self._index.insert(ledger_id, first, first + header.count - 1, lsn, size)
            self._recent.put(batch)
        else:
            for gap_first, gap_last in add.gaps:
                self._index.insert(ledger_id, gap_first, gap_last, lsn, size)
            self._bad.clear(ledger_id, first, header.last_entry_id)  # the rest was compared
        replica_state.note_stored(state, header)
        counts = self.counts
        counts.batches += 1
        counts.entries += header.count
        counts.bytes += len(batch.data)
        return size

    def _release(self, ledger_id: LedgerId) -> None:
        self._segments.free(self._index.drop(ledger_id))
        self._recent.drop(ledger_id)
        self._bad.drop(ledger_id)
        replica_state.release(self._ledgers.states[ledger_id])
        self._ledgers.notify(ledger_id)

    def _store_tombstone(self, ledger_id: LedgerId) -> None:
        self._segments.free(self._index.drop(ledger_id))
        self._recent.drop(ledger_id)
        self._bad.drop(ledger_id)
        self._ledgers.delete(ledger_id, has_runs=True)
        self._ledgers.notify(ledger_id)


def resolve(future: asyncio.Future[Status], status: Status) -> None:
    """Set a future to a status, unless the future is done (its waiter was cancelled)."""
    if not future.done():
        future.set_result(status)


def status_of(error: BookieError) -> Status:
    """Return the status for a record that the log did not store. After a failure the outcome is
    unknown.
    """
    if isinstance(error, DiskFullError):
        return Status.READ_ONLY
    return Status.CLOSING if isinstance(error, StorageClosedError) else Status.UNKNOWN
